//! What a node offers, and the version to use with it.
//!
//! The choice is the highest version in all of: what the caller can handle, what the request type encodes, what
//! the response type decodes, what the node lists. API keys this client has no name for survive as numbers.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::protocol::{Message, Request};

use crate::{Error, ErrorKind, Result};

/// What one node said it can do, on one connection.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ApiVersions {
    apis: BTreeMap<i16, (i16, i16)>,
    features: BTreeMap<String, i16>,
}

impl ApiVersions {
    /// Reads the answer of an ApiVersions request.
    pub fn from_response(response: &ApiVersionsResponse) -> Self {
        ApiVersions {
            apis: response
                .api_keys
                .iter()
                .map(|api| (api.api_key, (api.min_version, api.max_version)))
                .collect(),
            features: response
                .finalized_features
                .iter()
                .map(|feature| (feature.name.to_string(), feature.max_version_level))
                .collect(),
        }
    }

    /// The versions listed for an API key.
    pub fn range(&self, api_key: i16) -> Option<RangeInclusive<i16>> {
        self.apis.get(&api_key).map(|(min, max)| *min..=*max)
    }

    /// The cluster's finalized level of a feature; 0 for one that is not in use (such a level is never listed).
    pub fn finalized(&self, feature: &str) -> i16 {
        self.features.get(feature).copied().unwrap_or(0)
    }

    /// The highest version of `R` within `own` that both sides know.
    pub fn choose<R: Request>(&self, own: RangeInclusive<i16>) -> Result<i16> {
        let codec = usable::<R>();
        let (min, max) = (*own.start().max(codec.start()), *own.end().min(codec.end()));
        let Some(listed) = self.range(R::KEY) else {
            return Err(Error::new(ErrorKind::UnsupportedApi, super::api_name(R::KEY))
                .with_detail("the broker does not list it"));
        };
        let (low, high) = (min.max(*listed.start()), max.min(*listed.end()));
        if low > high {
            return Err(Error::new(ErrorKind::UnsupportedApi, super::api_name(R::KEY)).with_detail(format!(
                "the broker speaks versions {} to {}, this call needs {min} to {max}",
                listed.start(),
                listed.end()
            )));
        }
        Ok(high)
    }
}

/// The versions of `R` the codec can encode and whose answers it can decode. Its own table of APIs is not used:
/// it lists versions whose requests cannot be encoded (OffsetCommit 10, OffsetFetch 10, InitProducerId 6).
pub fn usable<R: Request>() -> RangeInclusive<i16> {
    let (request, response) = (<R as Message>::VERSIONS, <R::Response as Message>::VERSIONS);
    request.min.max(response.min)..=request.max.min(response.max)
}

/// Whether an answer starts with a throttle time that the client has to keep by itself. Below these versions
/// (KIP-219) the broker has waited already before it answered.
pub(crate) fn throttles(api_key: i16, version: i16) -> bool {
    let from = match api_key {
        // Fetch
        1 => 8,
        // ListOffsets, JoinGroup, CreateTopics
        2 | 11 | 19 => 3,
        // Metadata
        3 => 6,
        // OffsetCommit, OffsetFetch
        8 | 9 => 4,
        // FindCoordinator, Heartbeat, LeaveGroup, SyncGroup, DescribeGroups, ListGroups, DeleteTopics,
        // OffsetForLeaderEpoch, DescribeConfigs
        10 | 12 | 13 | 14 | 15 | 16 | 20 | 23 | 32 => 2,
        // DeleteRecords, InitProducerId, the transaction's requests, ACLs, AlterConfigs, CreatePartitions,
        // DeleteGroups
        21 | 22 | 24..=26 | 28..=31 | 33 | 37 | 42 => 1,
        // ElectLeaders, IncrementalAlterConfigs, reassignments, quotas, SCRAM, DescribeCluster,
        // DescribeProducers, transactions, KIP-848, telemetry, ListConfigResources, DescribeTopicPartitions
        43..=46 | 48..=51 | 60 | 61 | 64..=66 | 68 | 69 | 71 | 72 | 74 | 75 => 0,
        _ => return false,
    };
    version >= from
}
