//! A newer picture of the cluster: who leads what, and which topics there are. Pure.

use std::time::Instant;

use kafka_meta::client::Snapshot;
use kafka_meta::{ErrorCode, TopicName};

use super::partition::{Content, Part};
use super::{Engine, Topic};

impl Engine {
    /// Takes a picture in.
    pub fn handle_picture(&mut self, now: Instant, picture: &Snapshot) {
        let names: Vec<TopicName> = self.topics.keys().copied().collect();
        for name in names {
            let Some(seen) = picture.topic(name) else { continue };
            let Some(mut topic) = self.topics.remove(&name) else { continue };
            topic.error = seen.error;
            if seen.error.is_none() && !seen.partitions.is_empty() {
                topic.known = true;
                if topic.id != seen.id {
                    // Made anew: nobody there knows this producer.
                    for at in &topic.parts {
                        if let Some(part) = self.parts.get_mut(*at) {
                            part.vouched = None;
                        }
                    }
                    topic.id = seen.id;
                }
                // One that was made anew may have fewer partitions; what is queued for the others has nowhere to go.
                for at in topic.parts.drain(seen.partitions.len().min(topic.parts.len())..) {
                    self.lead(at, None);
                }
                for partition in &seen.partitions {
                    let Ok(index) = usize::try_from(partition.index) else { continue };
                    // Indexes are dense; one that is not is left out rather than guessed around.
                    if index == topic.parts.len() {
                        topic.parts.push(self.parts.len());
                        self.parts.push(Part::new(name, partition.index, &self.settings));
                    }
                    if let Some(at) = topic.parts.get(index) {
                        self.lead(*at, partition.leader);
                    }
                }
            }
            let waiting = std::mem::take(&mut topic.waiting);
            let Topic { known, error, .. } = topic;
            self.topics.insert(name, topic);
            for waiting in waiting {
                let hopeless = !error.is_none()
                    && error != ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                    && !error.is_retriable();
                if hopeless {
                    self.refuse(waiting, false, error);
                } else if known {
                    let _ = self.place(now, waiting);
                } else if let Some(topic) = self.topics.get_mut(&name) {
                    topic.waiting.push_back(waiting);
                }
            }
        }
        self.admit(now);
    }

    fn lead(&mut self, at: usize, leader: Option<i32>) {
        let idempotent = self.settings.idempotent;
        let Some(part) = self.parts.get_mut(at) else { return };
        if part.leader == leader {
            return;
        }
        tracing::debug!(topic = %part.topic, partition = part.index, from = ?part.leader, to = ?leader, "the leader has moved");
        part.leader = leader;
        // The new one has refused nothing yet.
        part.not_before = None;
        let Some(leader) = leader else { return };
        // What is still on its way to the old leader would hold up the new one for as long as a request may take.
        // The new one recognises what was written. Without sequences it could not.
        let elsewhere = part.flights.iter().any(|flight| flight.node != leader);
        let packed = |part: &Part| {
            part.flights.iter().all(|flight| matches!(flight.batch.content, Content::Packed(..)))
        };
        if elsewhere && idempotent && packed(part) {
            for flight in std::mem::take(&mut part.flights) {
                if flight.given_up {
                    part.sequences.given_up();
                    continue;
                }
                let mut batch = flight.batch;
                batch.attempts = batch.attempts.saturating_add(1);
                batch.doubtful = true;
                part.put_back(batch);
                self.counts.retries += 1;
            }
        }
        self.touch(at);
    }
}
