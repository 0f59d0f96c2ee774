//! The consumer whose assignment is given by hand: the engine with its caller's side on top.
//!
//! Not here: what is fetched when (`engine/`), and group membership. Every method is cancel safe; each says
//! what dropping its future leaves behind.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use kafka_meta::{Cluster, CommittedOffset, Error, ErrorKind, GroupMetadata, Positions, Result, TopicName};
use kafka_read::Records;
use kafka_read::lookup;
use tokio::time::Instant;

use crate::config::{ConsumerConfig, Position};
use crate::driver::until;
use crate::handle::ConsumerHandle;
use crate::metrics::ConsumerMetrics;
use crate::position::{Pos, Target};
use crate::shared::{Look, Shared};
use crate::stream::{OwnedRecordStream, RecordStream};

/// What a commit answers: one result per partition.
pub(crate) type Commits = Vec<((String, i32), Result<()>)>;

/// Reads the partitions it is told to, from where it is told to.
///
/// Fetching runs in the background from the first `assign` on, one request in flight per broker, bounded by
/// [`ConsumerConfig::fetch_buffer_bytes`]; [`poll`](Consumer::poll) hands out what is there. Made from a
/// [`Cluster`], which other clients may share: each consumer has its own connections for fetching.
///
/// Dropping it never blocks and needs no runtime: background work ends at once and nothing is committed.
#[derive(Debug)]
pub struct Consumer {
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.shared.abort();
    }
}

impl Consumer {
    /// A consumer with nothing assigned. Sends nothing and needs no runtime; settings that cannot work are
    /// reported by the first async call.
    pub fn new(cluster: Cluster, config: ConsumerConfig) -> Consumer {
        Consumer { shared: Shared::new(cluster, config) }
    }

    /// Connects to `bootstrap` (`"host:9092,host2:9092"`) and makes a consumer of its own cluster handle.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` for settings that cannot work; `Disconnected`, `Timeout`, … when no broker answers.
    /// Dropping the future leaves nothing behind.
    pub async fn connect(bootstrap: &str, config: ConsumerConfig) -> Result<Consumer> {
        config.check()?;
        Ok(Consumer::new(Cluster::connect(bootstrap).await?, config))
    }

    /// Replaces the assignment: reads exactly these partitions, each from `position`, those that were assigned
    /// before included. Partitions that leave are forgotten in the next fetch; kept ones stay paused if they
    /// were.
    ///
    /// The assignment changes before anything is awaited. Then the positions are looked up, so that after
    /// `Position::Latest` nothing written later is missed, and `position` knows where each partition starts.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` for a negative offset or partition, an empty topic name, or `Position::Committed`
    /// without a `group_id`: nothing has changed then. Otherwise the assignment stands, and the error is the
    /// first partition's that cannot be read for now: `UnknownTopic`, `Authorization`, `NoOffset`, or `Timeout`
    /// after `api_timeout_ms`; the look-ups go on.
    ///
    /// Dropping the future leaves the new assignment in place; the look-ups go on in the background.
    pub async fn assign(
        &mut self,
        partitions: impl IntoIterator<Item = (String, i32)>,
        position: Position,
    ) -> Result<()> {
        self.assign_each(partitions.into_iter().map(|partition| (partition, position.clone()))).await
    }

    /// As [`assign`](Consumer::assign), each partition from a position of its own. Partitions that are assigned
    /// already and named again start anew; there is no other that stays.
    ///
    /// # Errors
    ///
    /// As [`assign`](Consumer::assign). Dropping the future leaves the new assignment in place.
    pub async fn assign_each(
        &mut self,
        partitions: impl IntoIterator<Item = ((String, i32), Position)>,
    ) -> Result<()> {
        let wanted = self.check_assignment(partitions)?;
        self.shared.start()?;
        let keys = wanted.iter().map(|(key, _)| *key).collect();
        self.shared.with(|core| core.assign(Instant::now().into_std(), wanted));
        self.settle(keys).await
    }

    /// Adds partitions to the assignment, or starts assigned ones anew; the others' positions, buffers and
    /// pauses stay as they are.
    ///
    /// # Errors
    ///
    /// As [`assign`](Consumer::assign). Dropping the future leaves the partitions assigned.
    pub async fn assign_more(
        &mut self,
        partitions: impl IntoIterator<Item = ((String, i32), Position)>,
    ) -> Result<()> {
        let wanted = self.check_assignment(partitions)?;
        self.shared.start()?;
        let keys = wanted.iter().map(|(key, _)| *key).collect();
        self.shared.with(|core| core.assign_more(Instant::now().into_std(), wanted));
        self.settle(keys).await
    }

    /// Takes partitions out of the assignment, with what is buffered for them; the others stay as they are.
    /// Partitions that are not assigned are ignored.
    pub fn unassign(&mut self, partitions: impl IntoIterator<Item = (String, i32)>) {
        let gone: Vec<_> = names(partitions);
        self.shared.with(|core| core.unassign(gone));
    }

    /// The assigned partitions, in order of topic and partition.
    pub fn assignment(&self) -> Vec<(String, i32)> {
        self.shared.with(|core| core.assignment())
    }

    /// Up to [`max_poll_records`](ConsumerConfig::max_poll_records) records, as soon as there is one; after
    /// [`max_wait_ms`](ConsumerConfig::max_wait_ms) none, which is a normal answer. Returns early and empty
    /// when positions moved past offsets that hold nothing to read (markers, aborted data), and when a handle
    /// calls `wake`.
    ///
    /// Records of one partition come in order; the position moves exactly past what is returned.
    ///
    /// # Errors
    ///
    /// What a partition cannot heal from by itself, naming it: `OffsetOutOfRange`, `NoOffset` or `LogTruncated`
    /// without a reset policy, `UnsupportedCodec`, `BatchTooLarge`, `Authorization`, `UnknownTopic`, … It is
    /// returned when no records are ready, or after a second in which there always were, and again every minute
    /// while it lasts; the other partitions go on.
    /// `Closed` after `close`.
    ///
    /// Dropping the future loses nothing: it owns no request, and records are handed over in its last step.
    pub async fn poll(&mut self) -> Result<Records> {
        let deadline = Instant::now() + Duration::from_millis(u64::from(self.shared.config.max_wait_ms));
        self.shared.start()?;
        // A loop that always finds records would never let a current-thread runtime fetch more.
        tokio::task::coop::consume_budget().await;
        loop {
            let mut rung = pin!(self.shared.polls.notified());
            rung.as_mut().enable();
            match self.shared.look(deadline) {
                Look::Done(result) => return result,
                Look::Wait(until) => {
                    tokio::select! {
                        () = rung => {}
                        () = tokio::time::sleep_until(until) => {}
                    }
                }
            }
        }
    }

    /// Takes back records of the last polls that were not used: the positions move back to the first of them,
    /// and the next poll returns them before anything else. What a seek or a new assignment has overtaken since
    /// is dropped, as is what does not directly precede the position.
    pub fn put_back(&mut self, rest: Records) {
        self.shared.with(|core| core.put_back(rest.into_slices()));
    }

    /// Moves a partition's position; takes effect at once: what is buffered is dropped, and the next record of
    /// the partition is the one at `offset`, or the first one after it.
    ///
    /// # Errors
    ///
    /// `NotAssigned` naming the partition; `InvalidRequest` for a negative offset.
    pub fn seek(&mut self, topic: &str, partition: i32, offset: i64) -> Result<()> {
        self.shared.with(|core| core.seek(topic, partition, offset))
    }

    /// Moves every assigned partition to the group's committed offset. One without goes back to where reading it
    /// began, by the assignment or the last seek: nothing of it counts as done.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` without a `group_id`; `Authorization`, `Timeout`; then no position has changed.
    /// Dropping the future leaves every position as it was.
    pub async fn seek_to_committed(&mut self) -> Result<()> {
        self.shared.start()?;
        let offsets = self.shared.group("seek to committed")?.clone();
        let asked: Vec<(TopicName, i32, u64)> = self.shared.with(|core| {
            let mut asked = Vec::new();
            core.visit(|partition| asked.push((partition.topic, partition.index, partition.ticket)));
            asked
        });
        let keys = asked.iter().map(|(topic, index, _)| (*topic, *index)).collect();
        let identity = self.shared.reader_identity()?;
        let stored = offsets.committed(keys, identity, self.shared.deadline()).await?;
        self.shared.with(|core| {
            for (topic, index, ticket) in asked {
                match stored.get(&(topic, index)) {
                    Some(Some(stored)) => {
                        let pos = Pos { offset: stored.offset, epoch: stored.leader_epoch };
                        core.seek_to(topic, index, ticket, pos);
                    }
                    Some(None) => core.seek_to_origin(topic, index, ticket),
                    None => {}
                }
            }
        });
        Ok(())
    }

    /// Moves partitions to the first record their logs still have.
    ///
    /// # Errors
    ///
    /// `NotAssigned` for the first that is not assigned, and then none has moved; else as
    /// [`assign`](Consumer::assign) for the look-up. Dropping the future leaves the look-ups going on.
    pub async fn seek_to_beginning(
        &mut self,
        partitions: impl IntoIterator<Item = (String, i32)>,
    ) -> Result<()> {
        self.seek_to_target(names(partitions), &Target::Earliest).await
    }

    /// Moves partitions to the end of their logs: the last stable offset under
    /// [`Visibility::CommittedOnly`](kafka_read::Visibility), else the high watermark.
    ///
    /// # Errors
    ///
    /// As [`seek_to_beginning`](Consumer::seek_to_beginning). Dropping the future leaves the look-ups going on.
    pub async fn seek_to_end(&mut self, partitions: impl IntoIterator<Item = (String, i32)>) -> Result<()> {
        self.seek_to_target(names(partitions), &Target::Latest).await
    }

    /// Moves partitions to their first record at or after `millis` (since the epoch); to the end of the log
    /// where no record is that young.
    ///
    /// # Errors
    ///
    /// As [`seek_to_beginning`](Consumer::seek_to_beginning); `InvalidRequest` for a negative time. Dropping the
    /// future leaves the look-ups going on.
    pub async fn seek_to_timestamp(
        &mut self,
        partitions: impl IntoIterator<Item = (String, i32)>,
        millis: i64,
    ) -> Result<()> {
        check_millis("seek", millis)?;
        self.seek_to_target(names(partitions), &Target::Timestamp(millis)).await
    }

    async fn seek_to_target(&mut self, keys: Vec<(TopicName, i32)>, target: &Target) -> Result<()> {
        self.shared.start()?;
        self.shared.with(|core| core.seek_to_target(Instant::now().into_std(), &keys, target))?;
        self.settle(keys).await
    }

    /// Stops fetching and handing out a partition. It keeps its position, its buffer and its place in the
    /// assignment; a pause lasts while the partition stays assigned. Not assigned: nothing happens.
    pub fn pause(&mut self, topic: &str, partition: i32) {
        self.shared.with(|core| core.pause(topic, partition));
    }

    /// Lifts a pause; the partition goes on where it stopped. Not assigned: nothing happens.
    pub fn resume(&mut self, topic: &str, partition: i32) {
        self.shared.with(|core| core.resume(topic, partition));
    }

    /// The paused partitions, in order.
    pub fn paused(&self) -> Vec<(String, i32)> {
        self.shared.with(|core| core.paused())
    }

    /// The offset of the next record to be handed out; `None` while it is being looked up, and for a partition
    /// that is not assigned.
    pub fn position(&self, topic: &str, partition: i32) -> Option<i64> {
        self.shared.with(|core| Some(core.partition(topic, partition)?.position()?.offset))
    }

    /// How many offsets lie between the position and the end of the log as last reported (the last stable
    /// offset under [`Visibility::CommittedOnly`](kafka_read::Visibility)); `None` until a fetch has reported
    /// it.
    pub fn lag(&self, topic: &str, partition: i32) -> Option<i64> {
        self.shared.with(|core| core.lag(topic, partition))
    }

    /// Every position that is known: what [`commit`](Consumer::commit) stores, and what a transactional
    /// producer takes. Each carries the leader epoch of the batch that holds the last offset passed, where one
    /// is known.
    pub fn positions(&self) -> Positions {
        self.shared.with(|core| core.positions())
    }

    /// Whether every assigned partition has reached the end that was known first after it was assigned: a
    /// reader that was behind has caught up.
    pub fn caught_up(&self) -> bool {
        self.shared.with(|core| core.caught_up())
    }

    /// Partitions that will not move without the caller, with the kind of error `poll` returned for them.
    pub fn stopped(&self) -> Vec<((String, i32), ErrorKind)> {
        self.shared.with(|core| core.stopped())
    }

    /// Who this consumer is in its group: nobody, since it borrows the storage without being a member.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` without a `group_id`.
    pub fn group_metadata(&self) -> Result<GroupMetadata> {
        self.shared.group_metadata()
    }

    /// Stores the present positions under the consumer's `group_id`, anonymously: brokers accept that only
    /// while the group has no members, and refuse each partition with UNKNOWN_MEMBER_ID otherwise.
    ///
    /// # Errors
    ///
    /// Per partition in the answer. As a whole: `InvalidRequest` without a `group_id`, `Authorization`,
    /// `Timeout` after `api_timeout_ms`. Dropping the future leaves it open whether the offsets were stored;
    /// they are never stored later over a newer commit. May be called again.
    pub async fn commit(&mut self) -> Result<Commits> {
        let positions = self.positions();
        self.commit_offsets(positions).await
    }

    /// Stores these offsets, each the **next** record to read, under the consumer's `group_id`.
    ///
    /// # Errors
    ///
    /// As [`commit`](Consumer::commit). Per partition also: `NotAssigned` for one that is not assigned, and
    /// `InvalidRequest` for a negative offset, which a broker would accept and store.
    pub async fn commit_offsets(
        &mut self,
        offsets: impl IntoIterator<Item = ((String, i32), CommittedOffset)>,
    ) -> Result<Commits> {
        let offsets = offsets.into_iter().collect();
        self.handle().store(offsets).await
    }

    /// The group's committed offsets of the assigned partitions; those without one are absent.
    ///
    /// Offsets in a transaction that is still open are waited for (KIP-447).
    ///
    /// # Errors
    ///
    /// `InvalidRequest` without a `group_id`, `Authorization`, `Timeout`. Dropping the future changes nothing.
    pub async fn committed(&self) -> Result<HashMap<(String, i32), CommittedOffset>> {
        self.shared.start()?;
        let offsets = self.shared.group("committed offsets")?;
        let keys = names(self.assignment());
        let identity = self.shared.reader_identity()?;
        let stored = offsets.committed(keys, identity, self.shared.deadline()).await?;
        Ok(stored
            .into_iter()
            .filter_map(|((topic, index), stored)| Some(((topic.into(), index), stored?)))
            .collect())
    }

    /// The first offset each partition's log still has; the partitions need not be assigned.
    ///
    /// # Errors
    ///
    /// Naming the partition: `UnknownTopic`, `Authorization`, `Timeout`. Dropping the future changes nothing.
    pub async fn beginning_offsets(
        &self,
        partitions: impl IntoIterator<Item = (String, i32)>,
    ) -> Result<HashMap<(String, i32), i64>> {
        self.ends(names(partitions), lookup::Target::Earliest).await
    }

    /// The end of each partition's log: the last stable offset under
    /// [`Visibility::CommittedOnly`](kafka_read::Visibility), else the high watermark.
    ///
    /// # Errors
    ///
    /// As [`beginning_offsets`](Consumer::beginning_offsets). Dropping the future changes nothing.
    pub async fn end_offsets(
        &self,
        partitions: impl IntoIterator<Item = (String, i32)>,
    ) -> Result<HashMap<(String, i32), i64>> {
        self.ends(names(partitions), lookup::Target::Latest).await
    }

    async fn ends(
        &self,
        keys: Vec<(TopicName, i32)>,
        target: lookup::Target,
    ) -> Result<HashMap<(String, i32), i64>> {
        let targets = keys.into_iter().map(|(topic, index)| (topic, index, target)).collect();
        let found = self.find(targets).await?;
        Ok(found.into_iter().filter_map(|(key, found)| Some((key, found?.offset))).collect())
    }

    /// For each partition the first record at or after a time in milliseconds since the epoch, as (offset,
    /// timestamp); `None` where no record is that young.
    ///
    /// # Errors
    ///
    /// As [`beginning_offsets`](Consumer::beginning_offsets); `InvalidRequest` for a negative time. Dropping the
    /// future changes nothing.
    pub async fn offsets_for_times(
        &self,
        times: impl IntoIterator<Item = ((String, i32), i64)>,
    ) -> Result<HashMap<(String, i32), Option<(i64, i64)>>> {
        let mut targets = Vec::new();
        for ((topic, index), millis) in times {
            check_millis("offsets for times", millis)?;
            targets.push((TopicName::new(&topic), index, lookup::Target::Timestamp(millis)));
        }
        let found = self.find(targets).await?;
        Ok(found
            .into_iter()
            .map(|(key, found)| (key, found.map(|found| (found.offset, found.timestamp))))
            .collect())
    }

    async fn find(
        &self,
        targets: Vec<(TopicName, i32, lookup::Target)>,
    ) -> Result<HashMap<(String, i32), Option<lookup::Found>>> {
        self.shared.start()?;
        if targets.is_empty() {
            return Ok(HashMap::new());
        }
        let (cluster, visibility) = (&self.shared.cluster, self.shared.config.visibility);
        let found = lookup::find(cluster, visibility, targets, self.shared.deadline()).await?;
        Ok(found.into_iter().map(|((topic, index), found)| ((topic.into(), index), found)).collect())
    }

    /// A handle for other tasks and for callbacks; it keeps working while a poll is pending.
    pub fn handle(&self) -> ConsumerHandle {
        ConsumerHandle::new(Arc::clone(&self.shared))
    }

    /// The records one by one. The position moves with each record yielded; dropping the stream puts back what
    /// it has not yielded.
    pub fn stream(&mut self) -> RecordStream<'_> {
        RecordStream::new(self)
    }

    /// As [`stream`](Consumer::stream), owning the consumer; `into_inner` gives it back.
    pub fn into_stream(self) -> OwnedRecordStream<Consumer> {
        OwnedRecordStream::new(self)
    }

    /// Counters since the consumer was made, and where each partition stands now.
    pub fn metrics(&self) -> ConsumerMetrics {
        let metrics = self.shared.with(|core| ConsumerMetrics::of(core));
        match self.shared.member.get() {
            Some(member) => member.look(|core| metrics.with_member(&core.counts)),
            None => metrics,
        }
    }

    /// Stops fetching and closes the fetch sessions at the brokers, best effort and within about a second.
    /// Nothing is committed. Afterwards every call that reads answers `Closed`. Idempotent.
    ///
    /// Dropping the future leaves the consumer closed; the goodbyes to the brokers go on in the background.
    pub async fn close(&mut self) -> Result<()> {
        self.shared.with(crate::engine::Core::close);
        let deadline = Instant::now() + CLOSE_WITHIN.min(self.shared.config.api_timeout());
        let mut nap = Duration::from_millis(1);
        while !self.shared.is_quiet() && Instant::now() < deadline {
            tokio::time::sleep_until((Instant::now() + nap).min(deadline)).await;
            nap = (nap * 2).min(Duration::from_millis(20));
        }
        self.shared.abort();
        Ok(())
    }

    /// Waits until the positions of `keys` are known, or one of them cannot be for now.
    async fn settle(&self, keys: Vec<(TopicName, i32)>) -> Result<()> {
        let deadline = self.shared.deadline();
        loop {
            let mut rung = pin!(self.shared.settled.notified());
            rung.as_mut().enable();
            self.shared.check_open()?;
            if !self.shared.with(|core| core.unresolved(&keys))? {
                return Ok(());
            }
            let expired = pin!(until(Some(deadline)));
            if let Either::Right(_) = select(rung, expired).await {
                let open = keys.iter().find(|(topic, index)| self.position(topic, *index).is_none());
                let error = Error::new(ErrorKind::Timeout, "look up the start position")
                    .with_detail("no leader answered within api_timeout_ms; the look-up goes on");
                return Err(match open {
                    Some((topic, index)) => error.with_partition(*topic, *index),
                    None => error,
                });
            }
        }
    }

    fn check_assignment(
        &self,
        partitions: impl IntoIterator<Item = ((String, i32), Position)>,
    ) -> Result<Vec<((TopicName, i32), Position)>> {
        let mut wanted: Vec<((TopicName, i32), Position)> = Vec::new();
        let mut places: HashMap<(TopicName, i32), usize> = HashMap::new();
        for ((topic, index), position) in partitions {
            let refuse = |detail: &'static str| {
                Error::new(ErrorKind::InvalidRequest, "assign")
                    .with_partition(topic.as_str(), index)
                    .with_detail(detail)
            };
            if topic.is_empty() {
                return Err(refuse("the topic name is empty"));
            }
            if index < 0 {
                return Err(refuse("a partition is never negative"));
            }
            self.check_position(&position).map_err(refuse)?;
            let key = (TopicName::new(&topic), index);
            // Named twice: the last word counts.
            match places.entry(key) {
                Entry::Occupied(place) => {
                    if let Some((_, last)) = wanted.get_mut(*place.get()) {
                        *last = position;
                    }
                }
                Entry::Vacant(place) => {
                    place.insert(wanted.len());
                    wanted.push((key, position));
                }
            }
        }
        Ok(wanted)
    }

    fn check_position(&self, position: &Position) -> std::result::Result<(), &'static str> {
        match position {
            Position::Offset(offset) if *offset < 0 => Err("an offset is never negative"),
            Position::Timestamp(millis) if *millis < 0 => Err("a time before the epoch"),
            Position::Committed(_) if self.shared.offsets.is_none() => Err("the consumer has no group_id"),
            Position::Committed(otherwise) => self.check_position(otherwise),
            _ => Ok(()),
        }
    }
}

/// A broker holds a closing fetch behind the long poll before it: at most 500 ms, and the way there and back.
const CLOSE_WITHIN: Duration = Duration::from_millis(1_000);

pub(crate) fn names(partitions: impl IntoIterator<Item = (String, i32)>) -> Vec<(TopicName, i32)> {
    partitions.into_iter().map(|(topic, index)| (TopicName::new(&topic), index)).collect()
}

fn check_millis(operation: &'static str, millis: i64) -> Result<()> {
    if millis < 0 {
        return Err(Error::new(ErrorKind::InvalidRequest, operation)
            .with_detail(format!("{millis} is a time before the epoch")));
    }
    Ok(())
}
