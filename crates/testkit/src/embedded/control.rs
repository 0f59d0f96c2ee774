//! The control side of an embedded cluster: topics, logs, leaders and transactions; the rest is in
//! [`super::operate`].
//!
//! Every method acts at once and wakes whatever waits. A method that names a topic, partition or node the cluster
//! does not have does nothing and says so by its result.

use bytes::Bytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::Embedded;
use super::configs;
use super::txn;
use super::world::{Lag, Partition};
use super::write::{self, Plain};

/// How a topic is laid out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicSpec {
    partitions: i32,
    replicas: usize,
    placed: Vec<Vec<i32>>,
    log_append_time: bool,
}

impl TopicSpec {
    /// `partitions` partitions of one replica, placed round robin.
    pub fn new(partitions: i32) -> Self {
        TopicSpec { partitions, replicas: 1, placed: Vec::new(), log_append_time: false }
    }

    /// The number of replicas of each partition.
    #[must_use]
    pub fn with_replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Names the nodes of each partition, the leader first.
    #[must_use]
    pub fn with_placement(mut self, placed: Vec<Vec<i32>>) -> Self {
        self.partitions = i32::try_from(placed.len()).unwrap_or(i32::MAX);
        self.placed = placed;
        self
    }

    /// Batches get the time of their append, as with `message.timestamp.type=LogAppendTime`.
    #[must_use]
    pub fn with_log_append_time(mut self) -> Self {
        self.log_append_time = true;
        self
    }
}

/// A transaction that the cluster writes by itself, begun by [`Embedded::begin`].
#[derive(Debug)]
#[must_use = "a transaction stays open until it is committed or aborted"]
pub struct Open {
    cluster: Embedded,
    id: String,
    producer_id: i64,
    epoch: i16,
    sequences: std::collections::HashMap<(String, i32), i32>,
}

impl Open {
    /// The producer's id.
    pub fn producer_id(&self) -> i64 {
        self.producer_id
    }

    /// Appends one transactional batch of `values` (without keys); the offset of its first record, −1 when there
    /// is no such partition.
    pub fn append<V: AsRef<[u8]>>(
        &mut self,
        topic: &str,
        partition: i32,
        values: impl IntoIterator<Item = V>,
    ) -> i64 {
        let values: Vec<V> = values.into_iter().collect();
        let mut world = self.cluster.shared.world();
        let now = world.wall_ms(Instant::now());
        let records: Vec<Plain<'_>> = values.iter().map(|value| (None, Some(value.as_ref()), now)).collect();
        let sequence = self.sequences.entry((topic.to_owned(), partition)).or_insert(0);
        let batch = write::batch(&records, (self.producer_id, self.epoch, *sequence), true);
        *sequence = sequence.saturating_add(i32::try_from(records.len()).unwrap_or(i32::MAX));
        world.transactions.add(&self.id, topic, partition, Instant::now());
        world.append(topic, partition, &batch, Instant::now()).unwrap_or(-1)
    }

    /// Writes commit markers.
    pub fn commit(self) {
        self.end(true);
    }

    /// Writes abort markers.
    pub fn abort(self) {
        self.end(false);
    }

    fn end(self, commit: bool) {
        let mut world = self.cluster.shared.world();
        let _ = txn::end(&mut world, &self.id, (self.producer_id, self.epoch), commit, 5, Instant::now());
    }
}

impl Embedded {
    /// Makes a topic of `partitions` partitions with one replica each, spread over the nodes. `false` when the
    /// name is taken.
    pub fn create_topic(&self, name: &str, partitions: i32) -> bool {
        self.create_topic_with(name, TopicSpec::new(partitions))
    }

    /// Makes a topic laid out as the specification says. `false` when the name is taken.
    pub fn create_topic_with(&self, name: &str, spec: TopicSpec) -> bool {
        let mut world = self.shared.world();
        let placed: Vec<Vec<i32>> = (0..spec.partitions)
            .map(|index| {
                let at = usize::try_from(index).unwrap_or(usize::MAX);
                spec.placed.get(at).cloned().unwrap_or_else(|| world.placement(index, spec.replicas))
            })
            .collect();
        let made = world.create_topic(name, spec.partitions, |index| {
            usize::try_from(index).ok().and_then(|index| placed.get(index).cloned()).unwrap_or_default()
        });
        if made && spec.log_append_time {
            let stamped = ("message.timestamp.type".to_owned(), "LogAppendTime".to_owned());
            configs::put(&mut world, configs::TOPIC, name, [stamped].into());
        }
        made
    }

    /// Deletes a topic and the offsets committed for it.
    pub fn delete_topic(&self, name: &str) -> bool {
        self.shared.world().delete_topic(name)
    }

    /// Deletes a topic and makes it again, empty, with the same layout and another id.
    pub fn recreate_topic(&self, name: &str) -> bool {
        let mut world = self.shared.world();
        let Some(topic) = world.topics.get(name) else { return false };
        let placed: Vec<Vec<i32>> =
            topic.partitions.iter().map(|partition| partition.replicas.clone()).collect();
        world.delete_topic(name);
        world.create_topic(name, i32::try_from(placed.len()).unwrap_or(0), |index| {
            usize::try_from(index).ok().and_then(|index| placed.get(index).cloned()).unwrap_or_default()
        })
    }

    /// Adds partitions to a topic, up to `partitions`.
    pub fn add_partitions(&self, name: &str, partitions: i32) -> bool {
        let mut world = self.shared.world();
        let Some(topic) = world.topics.get(name) else { return false };
        let (has, factor) =
            (topic.partitions.len(), topic.partitions.first().map_or(1, |one| one.replicas.len()));
        let has = i32::try_from(has).unwrap_or(i32::MAX);
        let more: Vec<Partition> =
            (has..partitions).map(|index| Partition::new(index, world.placement(index, factor))).collect();
        if let Some(topic) = world.topics.get_mut(name) {
            topic.partitions.extend(more);
        }
        world.touch();
        true
    }

    /// The topic's id, nil when there is no such topic.
    pub fn topic_id(&self, name: &str) -> Uuid {
        self.shared.world().topics.get(name).map_or(Uuid::nil(), |topic| topic.id)
    }

    fn change<R>(&self, topic: &str, partition: i32, change: impl FnOnce(&mut Partition) -> R) -> Option<R> {
        let mut world = self.shared.world();
        let result = world.partition_mut(topic, partition).map(change);
        world.touch();
        result
    }

    /// Appends batches of any kind as the leader would: base offsets and leader epochs are set, nothing is
    /// checked. v0/v1 messages keep their offsets relative to the first. Returns the first offset, −1 when the
    /// bytes are no whole batches or there is no such partition.
    pub fn append(&self, topic: &str, partition: i32, batches: Bytes) -> i64 {
        self.shared.world().append(topic, partition, &batches, Instant::now()).unwrap_or(-1)
    }

    /// Appends one plain batch with these keys and values; returns the offset of its first record.
    pub fn append_records<K, V>(
        &self,
        topic: &str,
        partition: i32,
        records: impl IntoIterator<Item = (K, V)>,
    ) -> i64
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let owned: Vec<(K, V)> = records.into_iter().collect();
        let now = self.shared.world().wall_ms(Instant::now());
        let plain: Vec<Plain<'_>> =
            owned.iter().map(|(key, value)| (Some(key.as_ref()), Some(value.as_ref()), now)).collect();
        self.append(topic, partition, write::batch(&plain, write::NOBODY, false))
    }

    /// Appends one plain batch of records without keys at these timestamps, values being their index.
    pub fn append_at(&self, topic: &str, partition: i32, timestamps: &[i64]) -> i64 {
        let values: Vec<String> = (0..timestamps.len()).map(|index| index.to_string()).collect();
        let plain: Vec<Plain<'_>> = values
            .iter()
            .zip(timestamps)
            .map(|(value, timestamp)| (None, Some(value.as_bytes()), *timestamp))
            .collect();
        self.append(topic, partition, write::batch(&plain, write::NOBODY, false))
    }

    /// Stores bytes as they are, as if they were a batch of the offsets from the log's end up to `next`: for
    /// damaged ones. The base offset inside is the caller's business. Returns the log's old end.
    pub fn append_raw_damaged(&self, topic: &str, partition: i32, bytes: Bytes, next: i64) -> i64 {
        self.change(topic, partition, |found| found.log.append_raw(bytes, next)).unwrap_or(-1)
    }

    /// Begins a transaction of the producer with this transactional id; one it left open is aborted.
    pub fn begin(&self, transactional_id: &str) -> Open {
        let (producer_id, epoch) = txn::take(&mut self.shared.world(), transactional_id, Instant::now());
        let id = transactional_id.to_owned();
        Open { cluster: self.clone(), id, producer_id, epoch, sequences: std::collections::HashMap::new() }
    }

    /// What an unclean election leaves: everything at and above `to` is gone and a higher leader epoch begins
    /// there.
    pub fn truncate(&self, topic: &str, partition: i32, to: i64, new_epoch: i32) -> bool {
        let done = self.change(topic, partition, |found| {
            found.log.truncate(to);
            found.leader_epoch = found.leader_epoch.max(new_epoch);
            found.log.begin_epoch(found.leader_epoch);
            found.held = found.held.map(|held| held.min(found.log.end));
        });
        done.is_some()
    }

    /// Begins a new log segment at the log's end: no answer crosses from one segment to the next.
    pub fn roll_segment(&self, topic: &str, partition: i32) -> bool {
        self.change(topic, partition, |found| found.log.roll()).is_some()
    }

    /// Moves the log start up to `before`.
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) -> bool {
        self.change(topic, partition, |found| found.log.delete_before(before)).is_some()
    }

    /// Replaces what is stored for the offsets `[from, to)` by these batches, whose base offsets are already
    /// right; no bytes at all leave a hole. What compaction does.
    pub fn replace(&self, topic: &str, partition: i32, from: i64, to: i64, with: Bytes) -> bool {
        self.change(topic, partition, |found| found.log.replace(from, to, &with)).is_some()
    }

    /// The stored bytes of a partition, batch by batch.
    pub fn stored(&self, topic: &str, partition: i32) -> Vec<Bytes> {
        let world = self.shared.world();
        let found = world.partition(topic, partition);
        found
            .map(|found| found.log.batches().iter().map(|stored| stored.bytes.clone()).collect())
            .unwrap_or_default()
    }

    /// The high watermark, −1 when there is no such partition.
    pub fn high_watermark(&self, topic: &str, partition: i32) -> i64 {
        self.shared.world().partition(topic, partition).map_or(-1, Partition::high_watermark)
    }

    /// The last stable offset, −1 when there is no such partition.
    pub fn last_stable_offset(&self, topic: &str, partition: i32) -> i64 {
        self.shared.world().partition(topic, partition).map_or(-1, Partition::last_stable_offset)
    }

    /// The log's end on the leader, −1 when there is no such partition.
    pub fn log_end(&self, topic: &str, partition: i32) -> i64 {
        self.shared.world().partition(topic, partition).map_or(-1, |found| found.log.end)
    }

    /// Holds the high watermark at `at`, or lets it follow the log's end again.
    pub fn set_high_watermark(&self, topic: &str, partition: i32, at: Option<i64>) -> bool {
        self.change(topic, partition, |found| found.held = at).is_some()
    }

    /// Holds a follower's log and its high watermark back at these offsets, or lets it catch up.
    pub fn set_follower(&self, topic: &str, partition: i32, node: i32, lag: Option<(i64, i64)>) -> bool {
        let done = self.change(topic, partition, |found| match lag {
            Some((end, high_watermark)) => {
                found.lags.insert(node, Lag { end, high_watermark });
            }
            None => {
                found.lags.remove(&node);
            }
        });
        done.is_some()
    }

    /// The leader and its epoch.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<(i32, i32)> {
        let world = self.shared.world();
        let found = world.partition(topic, partition)?;
        Some((found.leader?, found.leader_epoch))
    }

    /// Makes `node` the leader under the next epoch; it becomes a replica if it was none.
    pub fn move_leader(&self, topic: &str, partition: i32, node: i32) -> bool {
        let done = self.change(topic, partition, |found| {
            for list in [&mut found.replicas, &mut found.isr] {
                if !list.contains(&node) {
                    list.push(node);
                }
            }
            found.lags.remove(&node);
            found.set_leader(Some(node));
        });
        done.is_some()
    }

    /// Leaves the partition without a leader, under the next epoch.
    pub fn set_leader_unknown(&self, topic: &str, partition: i32) -> bool {
        self.change(topic, partition, |found| found.set_leader(None)).is_some()
    }

    /// Replaces the replicas of a partition; the first becomes the leader if the present one is not among them.
    pub fn set_replicas(&self, topic: &str, partition: i32, replicas: &[i32]) -> bool {
        let done = self.change(topic, partition, |found| {
            found.replicas = replicas.to_vec();
            found.isr = replicas.to_vec();
            if !found.leader.is_some_and(|leader| replicas.contains(&leader)) {
                found.set_leader(replicas.first().copied());
            }
        });
        done.is_some()
    }
}
