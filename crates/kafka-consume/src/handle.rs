//! A consumer's remote control, for other tasks and for callbacks.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_meta::{CommittedOffset, Error, ErrorKind, GroupMetadata, Result, TopicName};

use crate::consumer::Commits;
use crate::shared::Shared;

/// Moves, pauses, wakes and commits a consumer from elsewhere.
///
/// Cheap to clone; may be moved into a callback or a worker. No method waits for a poll, and every one works
/// while a poll is pending. It does not keep the consumer alive: once that is dropped or closed,
/// commits answer `Closed`.
#[derive(Clone, Debug)]
pub struct ConsumerHandle {
    shared: Arc<Shared>,
}

impl ConsumerHandle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        ConsumerHandle { shared }
    }

    /// Makes a waiting poll, or the next one, return what it has; nothing if it has nothing.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// As [`Consumer::seek`](crate::Consumer::seek).
    ///
    /// # Errors
    ///
    /// `NotAssigned` naming the partition; `InvalidRequest` for a negative offset.
    pub fn seek(&self, topic: &str, partition: i32, offset: i64) -> Result<()> {
        self.shared.with(|core| core.seek(topic, partition, offset))
    }

    /// As [`Consumer::pause`](crate::Consumer::pause); the very next poll heeds it.
    pub fn pause(&self, topic: &str, partition: i32) {
        self.shared.with(|core| core.pause(topic, partition));
    }

    /// As [`Consumer::resume`](crate::Consumer::resume).
    pub fn resume(&self, topic: &str, partition: i32) {
        self.shared.with(|core| core.resume(topic, partition));
    }

    /// As [`Consumer::position`](crate::Consumer::position); inside a stream, after the record yielded last.
    pub fn position(&self, topic: &str, partition: i32) -> Option<i64> {
        self.shared.with(|core| Some(core.partition(topic, partition)?.position()?.offset))
    }

    /// The assigned partitions, in order of topic and partition.
    pub fn assignment(&self) -> Vec<(String, i32)> {
        self.shared.with(|core| core.assignment())
    }

    /// As [`Consumer::group_metadata`](crate::Consumer::group_metadata).
    ///
    /// # Errors
    ///
    /// `InvalidRequest` without a `group_id`.
    pub fn group_metadata(&self) -> Result<GroupMetadata> {
        self.shared.group_metadata()
    }

    /// As [`Consumer::commit_offsets`](crate::Consumer::commit_offsets).
    ///
    /// # Errors
    ///
    /// As there. Dropping the future leaves it open whether the offsets were stored; they are never stored
    /// later over a newer commit.
    pub async fn commit_offsets(
        &self,
        offsets: impl IntoIterator<Item = ((String, i32), CommittedOffset)> + Send,
    ) -> Result<Commits> {
        let offsets = offsets.into_iter().collect();
        self.store(offsets).await
    }

    /// Refuses what must not be stored and stores the rest; the results come in the order of the offsets.
    pub(crate) async fn store(&self, offsets: Vec<((String, i32), CommittedOffset)>) -> Result<Commits> {
        self.shared.start()?;
        let group = self.shared.group("commit offsets")?;
        let identity = self.shared.identity("commit offsets")?;
        let keys: Vec<(TopicName, i32)> =
            offsets.iter().map(|((topic, index), _)| (TopicName::new(topic), *index)).collect();
        let owned: Vec<bool> = self
            .shared
            .with(|core| keys.iter().map(|(topic, index)| core.is_assigned(*topic, *index)).collect());
        let mut wanted = Vec::with_capacity(offsets.len());
        let mut results: Vec<Option<Result<()>>> = Vec::with_capacity(offsets.len());
        for ((key, owned), (_, offset)) in keys.iter().zip(owned).zip(&offsets) {
            let refuse = |kind, detail: &'static str| {
                Err(Error::new(kind, "commit offsets")
                    .with_partition(key.0, key.1)
                    .with_offset(offset.offset)
                    .with_detail(detail))
            };
            results.push(if !owned {
                Some(refuse(ErrorKind::NotAssigned, "the partition is not assigned to this consumer"))
            } else if offset.offset < 0 {
                Some(refuse(ErrorKind::InvalidRequest, "an offset is never negative"))
            } else {
                wanted.push((*key, offset.clone()));
                None
            });
        }
        let stored = if wanted.is_empty() {
            Vec::new()
        } else {
            let own = OwnCommit::begin(&self.shared, wanted.iter().map(|(key, _)| *key).collect());
            let stored = group.commit(wanted, identity, self.shared.deadline()).await?;
            own.ended(&stored);
            stored
        };
        let stored: HashMap<(TopicName, i32), Result<()>> = stored.into_iter().collect();
        let answered = |key: &(TopicName, i32)| {
            stored.get(key).cloned().unwrap_or_else(|| {
                Err(Error::new(ErrorKind::Other, "commit offsets")
                    .with_partition(key.0, key.1)
                    .with_detail("the coordinator did not answer for this partition"))
            })
        };
        Ok(offsets
            .into_iter()
            .zip(keys.iter().zip(results))
            .map(|((name, _), (key, result))| (name, result.unwrap_or_else(|| answered(key))))
            .collect())
    }
}

/// A commit of the application's own, of which a member's auto-commit has to know, however it ends.
struct OwnCommit<'a> {
    shared: &'a Shared,
    keys: Vec<(TopicName, i32)>,
}

impl<'a> OwnCommit<'a> {
    fn begin(shared: &'a Shared, keys: Vec<(TopicName, i32)>) -> Self {
        let own = OwnCommit { shared, keys };
        own.tell();
        own
    }

    fn tell(&self) {
        if let Some(cell) = self.shared.member.get() {
            cell.with(self.shared, |core| core.stores_itself(&self.keys));
        }
    }

    fn ended(self, results: &[((TopicName, i32), Result<()>)]) {
        if let Some(cell) = self.shared.member.get() {
            let stored = results.iter().filter(|(_, result)| result.is_ok()).map(|(key, _)| *key);
            cell.with(self.shared, |core| core.stored_itself(stored));
        }
    }
}

impl Drop for OwnCommit<'_> {
    /// Told again at the end: an auto-commit may have begun in between.
    fn drop(&mut self) {
        self.tell();
    }
}
