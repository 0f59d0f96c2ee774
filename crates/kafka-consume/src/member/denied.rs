//! Topics of a subscription this client may not see. Pure.
//!
//! Nobody gets their partitions from such a member: a classic coordinator does not say why, and one of KIP-848
//! refuses a whole heartbeat that names one, without saying which. Metadata names them, so that is where they are
//! told from.
//!
//! States per topic: *told*, with the time; absent while it may be seen.
//!
//! Invariant: a topic is told once, and again each [`REMIND_AFTER`] while it lasts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use kafka_meta::client::Snapshot;
use kafka_meta::{Error, ErrorCode, TopicName};

use crate::position::REMIND_AFTER;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Denied {
    told: BTreeMap<TopicName, Instant>,
}

impl Denied {
    /// A new picture of the cluster, or another subscription; answers what is to be told now.
    pub fn handle_picture(
        &mut self,
        now: Instant,
        subscription: &BTreeSet<TopicName>,
        picture: &Snapshot,
    ) -> Vec<Error> {
        self.told.retain(|topic, _| subscription.contains(topic));
        let mut news = Vec::new();
        for topic in subscription {
            // A topic the picture does not cover yet is in no other state than before.
            let Some(seen) = picture.topic(*topic) else { continue };
            if seen.error != ErrorCode::TOPIC_AUTHORIZATION_FAILED {
                self.told.remove(topic);
            } else if self.told.get(topic).is_none_or(|told| now >= *told + REMIND_AFTER) {
                self.told.insert(*topic, now);
                news.push(Error::broker(seen.error, "metadata").with_topic(*topic));
            }
        }
        news
    }

    /// The topics that may not be seen at present.
    pub fn topics(&self) -> BTreeSet<TopicName> {
        self.told.keys().copied().collect()
    }
}
