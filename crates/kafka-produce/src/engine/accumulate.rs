//! Records in: room, partition, batch. Pure.

use std::sync::Arc;
use std::time::Instant;

use kafka_meta::{Error, ErrorKind, Result, TopicName};
use kafka_read::batch::BatchError;
use kafka_read::batch::write::{BatchOptions, BatchWriter};

use super::partition::{Batch, Content};
use super::{Engine, Topic, Waiting};
use crate::config::Partitioner;
use crate::delivery::{Delivery, Place, Placement};
use crate::partitioner::{Choice, of_key};
use crate::record::ProducerRecord;

/// Bytes of a batch without records.
const OVERHEAD: usize = 61;

/// Where a record is after it came in.
#[derive(Debug)]
pub(crate) enum Sent {
    Placed(Place),
    Waiting(Arc<Placement>),
}

impl Engine {
    /// Takes a record in. What cannot be placed yet waits, at most for `max_block`.
    ///
    /// # Errors
    ///
    /// `Closed`; `InvalidRequest` for a negative partition; `BatchTooLarge` for a record that no request, or no
    /// buffer, can hold.
    pub fn handle_send(&mut self, now: Instant, record: ProducerRecord, timestamp: i64) -> Result<Sent> {
        let named = |error: Error| match record.partition {
            Some(partition) => error.with_partition(record.topic, partition),
            None => error.with_topic(record.topic),
        };
        if let Some(over) = &self.over {
            return Err(named(over.clone()));
        }
        if self.closing {
            return Err(named(Error::new(ErrorKind::Closed, "send")));
        }
        if record.partition.is_some_and(|partition| partition < 0) {
            return Err(named(
                Error::new(ErrorKind::InvalidRequest, "send").with_detail("the partition is negative"),
            ));
        }
        let charge = record.size_bound();
        for (name, limit) in [
            ("max_request_size", self.settings.max_request_size),
            ("buffer_memory", self.settings.buffer_memory),
        ] {
            if OVERHEAD + charge > limit {
                let detail = format!("the record has {charge} bytes, {name} is {limit}");
                return Err(named(Error::new(ErrorKind::BatchTooLarge, "send").with_detail(detail)));
            }
        }
        if self.line.is_empty() && self.has_room(charge) {
            self.used += charge;
            if let Some(place) = self.append(now, &record, timestamp, charge, false)? {
                return Ok(Sent::Placed(place));
            }
            let (waiting, placement) = self.waiting_record(now, record, timestamp, charge);
            self.wait_for_topic(waiting);
            self.effects.supervisor = true;
            return Ok(Sent::Waiting(placement));
        }
        let (waiting, placement) = self.waiting_record(now, record, timestamp, charge);
        if self.line.is_empty() {
            // Whatever lingers goes now: it holds the room.
            self.wake_all();
        }
        self.line.push_back(waiting);
        self.arm(now + self.settings.max_block);
        Ok(Sent::Waiting(placement))
    }

    /// The usual case, told apart for speed: the record goes into a batch that is open and stays so, nobody is told
    /// of anything, and no clock is read. Anything else is [`Engine::handle_send`]'s.
    pub fn append_open(&mut self, record: &ProducerRecord, timestamp: i64) -> Option<Place> {
        let charge = record.size_bound();
        if self.over.is_some() || self.closing || !self.line.is_empty() || !self.has_room(charge) {
            return None;
        }
        let Engine { topics, parts, settings, .. } = self;
        let topic = topics.get_mut(&record.topic).filter(|topic| topic.known)?;
        let (index, sticky) = match (record.partition, &record.key, settings.partitioner) {
            (Some(partition), ..) => (usize::try_from(partition).ok()?, false),
            (None, Some(key), Partitioner::Java) => (of_key(key, topic.parts.len()), false),
            (None, _, Partitioner::RoundRobin) => return None,
            (None, ..) => (topic.sticky.current()?, true),
        };
        let part = parts.get_mut(*topic.parts.get(index)?)?;
        if sticky && part.leader.is_none() {
            return None;
        }
        let batch = part.queue.back_mut().filter(|batch| !batch.closed)?;
        // Below the limit, so that it stays open; a record over any limit never is.
        if batch.count == 0 || batch.len + charge >= settings.batch_size.min(settings.max_request_size) {
            return None;
        }
        let Content::Open(writer) = &mut batch.content else { return None };
        write(writer, record, timestamp).ok()?;
        let place =
            Place { delivery: Arc::clone(&batch.delivery), index: batch.count, partition: part.index };
        batch.count += 1;
        batch.charge += charge;
        batch.len = writer.len();
        part.last_len = batch.len;
        self.used += charge;
        if sticky {
            topic.sticky.appended(charge, settings.batch_size, false);
        }
        Some(place)
    }

    fn waiting_record(
        &mut self,
        now: Instant,
        record: ProducerRecord,
        timestamp: i64,
        charge: usize,
    ) -> (Waiting, Arc<Placement>) {
        let placement = Arc::new(Placement::default());
        let until = now + self.settings.max_block;
        (
            Waiting { record, timestamp, charge, until, urgent: false, placement: Arc::clone(&placement) },
            placement,
        )
    }

    fn has_room(&self, charge: usize) -> bool {
        self.used.saturating_add(charge) <= self.settings.buffer_memory
    }

    /// Lets in who is first in line, as far as there is room.
    pub(super) fn admit(&mut self, now: Instant) {
        while let Some(first) = self.line.front()
            && self.has_room(first.charge)
            && let Some(waiting) = self.line.pop_front()
        {
            self.used += waiting.charge;
            self.effects.supervisor |= self.place(now, waiting);
        }
    }

    /// Places a record that has room, or lets it wait for its topic: whether it does. Whoever asks with a picture
    /// in hand rings nobody about that, or the picture would be shown again, and so on.
    pub(super) fn place(&mut self, now: Instant, waiting: Waiting) -> bool {
        let Waiting { record, timestamp, charge, urgent, .. } = &waiting;
        match self.append(now, record, *timestamp, *charge, *urgent) {
            Ok(Some(place)) => self.effects.placed.push((waiting.placement, Ok(place))),
            Ok(None) => {
                self.wait_for_topic(waiting);
                return true;
            }
            Err(error) => self.effects.placed.push((waiting.placement, Err(error))),
        }
        false
    }

    fn wait_for_topic(&mut self, waiting: Waiting) {
        self.arm(waiting.until);
        if let Some(topic) = self.topics.get_mut(&waiting.record.topic) {
            topic.waiting.push_back(waiting);
        }
    }

    /// Puts a charged record into a batch; `None` while its partition is not known.
    fn append(
        &mut self,
        now: Instant,
        record: &ProducerRecord,
        timestamp: i64,
        charge: usize,
        urgent: bool,
    ) -> Result<Option<Place>> {
        let topic = match self.topics.entry(record.topic) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                self.effects.interest = true;
                entry.insert(Topic::default())
            }
        };
        if !topic.known {
            return Ok(None);
        }
        let by_key = record.key.as_ref().filter(|_| self.settings.partitioner == Partitioner::Java);
        let (index, sticky) = match (record.partition, by_key) {
            (Some(partition), _) => (usize::try_from(partition).unwrap_or(usize::MAX), false),
            (None, Some(key)) => (of_key(key, topic.parts.len()), false),
            (None, None) => {
                let random = self.random.u32(..);
                match self.without_key(record.topic, random) {
                    Some(index) => (index, self.settings.partitioner != Partitioner::RoundRobin),
                    None => return Ok(None),
                }
            }
        };
        let at = self.topics.get(&record.topic).and_then(|topic| topic.parts.get(index).copied());
        let Some(at) = at else { return Ok(None) };
        let placed = self.append_to(at, now, record, timestamp, charge, urgent);
        if placed.is_err() {
            self.used = self.used.saturating_sub(charge);
        }
        let place = placed?;
        if sticky {
            let size = self.settings.batch_size;
            let ended = self.parts.get(at).and_then(|part| part.queue.back()).is_none_or(|last| last.closed);
            if let Some(topic) = self.topics.get_mut(&record.topic) {
                topic.sticky.appended(charge, size, ended);
            }
        }
        Ok(Some(place))
    }

    fn without_key(&mut self, name: TopicName, random: u32) -> Option<usize> {
        let in_turn = self.settings.partitioner == Partitioner::RoundRobin;
        let Engine { topics, parts, .. } = self;
        let topic = topics.get_mut(&name)?;
        let leads = |at: &usize| parts.get(*at).is_some_and(|part| part.leader.is_some());
        if !in_turn
            && let Some(current) = topic.sticky.current()
            && topic.parts.get(current).is_some_and(leads)
        {
            return Some(current);
        }
        let choice = |at: &usize| Choice {
            has_leader: leads(at),
            queued: parts.get(*at).map_or(0, |part| part.queue.len()),
        };
        let choices: Vec<_> = topic.parts.iter().map(choice).collect();
        if in_turn { topic.sticky.in_turn(&choices) } else { topic.sticky.partition(&choices, random) }
    }

    fn append_to(
        &mut self,
        at: usize,
        now: Instant,
        record: &ProducerRecord,
        timestamp: i64,
        charge: usize,
        urgent: bool,
    ) -> Result<Place> {
        let size = self.settings.batch_size;
        let Some(part) = self.parts.get_mut(at) else {
            return Err(Error::new(ErrorKind::Other, "send").with_topic(record.topic));
        };
        let mut news = false;
        if let Some(last) = part.queue.back_mut()
            && !last.closed
            && last.len + charge > size
        {
            last.closed = true;
            news = true;
        }
        if part.queue.back().is_none_or(|batch| batch.closed) {
            let room = part.last_len.clamp(charge.min(size), size.max(charge));
            let options =
                BatchOptions { codec: self.settings.codec, level: self.settings.level, ..Default::default() };
            self.born += 1;
            part.queue.push_back(Batch {
                born: self.born,
                first: 0,
                count: 0,
                total: None,
                delivery: Arc::new(Delivery::default()),
                content: Content::Open(BatchWriter::with_capacity(options, room)),
                created: now,
                charge: 0,
                len: OVERHEAD,
                position: None,
                ordinal: 0,
                attempts: 0,
                doubtful: false,
                closed: false,
                urgent: false,
                last_error: None,
            });
            news = true;
        }
        let (topic, index) = (part.topic, part.index);
        let too_large = || {
            Error::new(ErrorKind::BatchTooLarge, "send")
                .with_partition(topic, index)
                .with_detail("the record does not fit the format")
        };
        let Some(batch) = part.queue.back_mut() else { return Err(too_large()) };
        let Content::Open(writer) = &mut batch.content else { return Err(too_large()) };
        let pushed = write(writer, record, timestamp);
        if pushed.is_err() {
            if batch.count == 0 {
                part.queue.pop_back();
            }
            return Err(too_large());
        }
        let place = Place { delivery: Arc::clone(&batch.delivery), index: batch.count, partition: index };
        batch.count += 1;
        batch.charge += charge;
        batch.len = writer.len();
        batch.urgent |= urgent;
        news |= urgent;
        if batch.len >= size {
            batch.closed = true;
            news = true;
        }
        part.last_len = batch.len;
        let deadline = batch.created + self.settings.delivery_timeout;
        if news {
            self.touch(at);
            self.arm(deadline);
        }
        Ok(place)
    }
}

fn write(writer: &mut BatchWriter, record: &ProducerRecord, timestamp: i64) -> Result<(), BatchError> {
    let (key, value) = (record.key.as_deref(), record.value.as_deref());
    if record.headers.is_empty() {
        return writer.push(timestamp, key, value, &[]);
    }
    let headers: Vec<_> =
        record.headers.iter().map(|(name, value)| (name.as_bytes(), value.as_deref())).collect();
    writer.push(timestamp, key, value, &headers)
}
