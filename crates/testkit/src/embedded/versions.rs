//! What each node says it speaks, after the tables of real releases.
//!
//! Only APIs that the embedded cluster serves are listed, and only in versions the codec has: a client never
//! meets a listed version that is not answered.

use std::collections::BTreeMap;

use kafka_protocol::messages::ApiKey;

/// A Kafka release whose version table a node imitates.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Release {
    /// Apache Kafka 3.7.0.
    V3_7,
    /// Apache Kafka 3.9.1.
    V3_9,
    /// Apache Kafka 4.0.0.
    V4_0,
    /// Apache Kafka 4.3.1.
    #[default]
    V4_3,
}

/// Served APIs with the codec's range and each release's highest version, 3.7 to 4.3; -1: not there.
const TABLE: &[(ApiKey, i16, [i16; 4])] = &[
    (ApiKey::Produce, 3, [10, 11, 12, 13]),
    (ApiKey::Fetch, 4, [16, 17, 17, 18]),
    (ApiKey::ListOffsets, 1, [8, 9, 10, 10]),
    (ApiKey::Metadata, 0, [12, 12, 13, 13]),
    (ApiKey::OffsetCommit, 2, [9, 9, 9, 9]),
    (ApiKey::OffsetFetch, 1, [9, 9, 9, 9]),
    (ApiKey::FindCoordinator, 0, [4, 6, 6, 6]),
    (ApiKey::ApiVersions, 0, [3, 4, 4, 4]),
    (ApiKey::CreateTopics, 2, [7, 7, 7, 7]),
    (ApiKey::DeleteTopics, 1, [6, 6, 6, 6]),
    (ApiKey::DeleteRecords, 0, [2, 2, 2, 2]),
    (ApiKey::InitProducerId, 0, [4, 5, 5, 5]),
    (ApiKey::OffsetForLeaderEpoch, 2, [4, 4, 4, 4]),
    (ApiKey::AddPartitionsToTxn, 0, [3, 3, 3, 3]),
    (ApiKey::AddOffsetsToTxn, 0, [3, 4, 4, 4]),
    (ApiKey::EndTxn, 0, [3, 4, 5, 5]),
    (ApiKey::TxnOffsetCommit, 0, [3, 4, 5, 5]),
    (ApiKey::JoinGroup, 0, [9, 9, 9, 9]),
    (ApiKey::SyncGroup, 0, [5, 5, 5, 5]),
    (ApiKey::Heartbeat, 0, [4, 4, 4, 4]),
    (ApiKey::LeaveGroup, 0, [5, 5, 5, 5]),
    (ApiKey::DescribeGroups, 0, [5, 5, 6, 6]),
    (ApiKey::ConsumerGroupHeartbeat, 0, [0, 0, 1, 1]),
    (ApiKey::ListGroups, 0, [4, 5, 5, 5]),
    (ApiKey::DescribeConfigs, 1, [4, 4, 4, 4]),
    (ApiKey::CreatePartitions, 0, [3, 3, 3, 3]),
    (ApiKey::DeleteGroups, 0, [2, 2, 2, 2]),
    (ApiKey::IncrementalAlterConfigs, 0, [1, 1, 1, 1]),
    (ApiKey::OffsetDelete, 0, [0, 0, 0, 0]),
    (ApiKey::DescribeCluster, 0, [1, 1, 2, 2]),
    (ApiKey::ConsumerGroupDescribe, 0, [-1, 0, 1, 1]),
];

/// The version ranges and features one node advertises and obeys.
#[derive(Clone, Debug)]
pub(super) struct Versions {
    /// API key number → lowest and highest version.
    pub ranges: BTreeMap<i16, (i16, i16)>,
    /// Finalized features: name → level.
    pub finalized: BTreeMap<&'static str, i16>,
    /// Supported features shown from v4 on: name → lowest and highest level.
    pub supported: Vec<(&'static str, i16, i16)>,
    /// 3.7 has no gate for ListOffsets sentinels above the request's version.
    pub gates_sentinels: bool,
    /// 3.9 answers a committed reader above the last stable offset at once; the others let it wait.
    pub waits_above_stable: bool,
}

impl Versions {
    pub fn of(release: Release) -> Self {
        let column = match release {
            Release::V3_7 => 0,
            Release::V3_9 => 1,
            Release::V4_0 => 2,
            Release::V4_3 => 3,
        };
        let mut ranges = TABLE
            .iter()
            .filter_map(|(key, min, max)| Some((*key as i16, (*min, *max.get(column)?))))
            .filter(|(_, (_, max))| *max >= 0)
            .collect::<BTreeMap<_, _>>();
        if release == Release::V4_0 {
            // The one release that took the oldest versions of JoinGroup away; 4.3 has them again.
            ranges.insert(ApiKey::JoinGroup as i16, (2, 9));
        }
        let finalized: &[(&str, i16)] = match release {
            Release::V3_7 => &[("metadata.version", 19)],
            Release::V3_9 => &[("metadata.version", 21)],
            Release::V4_0 => &[("metadata.version", 25), ("group.version", 1), ("transaction.version", 2)],
            Release::V4_3 => &[("metadata.version", 30), ("group.version", 1), ("transaction.version", 2)],
        };
        Versions {
            ranges,
            finalized: finalized.iter().copied().collect(),
            supported: vec![
                ("group.version", 0, 1),
                ("kraft.version", 0, 1),
                ("metadata.version", 1, 30),
                ("transaction.version", 0, 2),
            ],
            gates_sentinels: release != Release::V3_7,
            waits_above_stable: release != Release::V3_9,
        }
    }

    pub fn allows(&self, key: i16, version: i16) -> bool {
        self.ranges.get(&key).is_some_and(|(min, max)| (*min..=*max).contains(&version))
    }
}
