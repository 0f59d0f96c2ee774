//! What metadata tells a KIP-848 member: the names of topic ids, and topics it may not see. Pure.
//!
//! A coordinator refuses a whole heartbeat that names one topic the member may not see (29). So such topics are
//! left out of what is subscribed to until metadata shows them: the others are read meanwhile, where Java's
//! member is at its end.
//!
//! Invariant: nothing is left out before a coordinator has refused: what one broker's metadata says of a right is
//! no reason to give partitions up.

use std::time::Instant;

use kafka_meta::TopicName;
use kafka_meta::client::Snapshot;

use super::{Membership, Output};

/// How often a refusal may come without metadata naming a topic: the two may lag behind one another.
const UNEXPLAINED: u8 = 5;

impl Membership {
    pub(super) fn learn(&mut self, now: Instant, snapshot: &Snapshot) {
        for topic in snapshot.topics() {
            if !topic.id.is_nil() {
                self.names.insert(topic.id, topic.name);
                self.ids.insert(topic.name, topic.id);
            }
            if topic.internal {
                self.internal.insert(topic.name);
            }
        }
        let news = self.denied.handle_picture(now, &self.subscription.topics, snapshot);
        self.outputs.extend(news.into_iter().map(Output::Fault));
        let denied = self.denied.topics();
        let before = self.left_out.len();
        self.left_out.retain(|topic| denied.contains(topic));
        if self.left_out.len() < before {
            self.subscription_told = false;
            self.retry.clear();
        }
    }

    /// A pattern never matches internal topics, though the coordinator's does: they stay unread. Patterns cannot
    /// say "but not", so the coordinator cannot be told.
    pub(super) fn is_unwanted(&self, topic: &TopicName) -> bool {
        self.internal.contains(topic) && !self.subscription.topics.contains(topic)
    }

    /// The coordinator has refused a topic. Whether that is dealt with here, or asked about again in a moment.
    pub(super) fn leave_out_denied(&mut self) -> bool {
        let denied = self.denied.topics();
        if denied.is_subset(&self.left_out) {
            self.unexplained = self.unexplained.saturating_add(1);
            self.outputs.push_back(Output::NeedIds);
            return self.unexplained < UNEXPLAINED;
        }
        self.unexplained = 0;
        self.left_out.extend(denied);
        true
    }
}
