//! Records by partition: deleting old ones, and where a log begins and ends. Each leader is asked its part.

use std::collections::HashMap;

use kafka_meta::client::offsets::{self, Ask, Target};
use kafka_meta::wire::protocol::messages::DeleteRecordsRequest;
use kafka_meta::wire::protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_meta::wire::topic_name;
use kafka_meta::{Result, TopicName};

use crate::admin::{Admin, interned, keyed};
use crate::plan::{Plan, Refusal, Route, Subject};
use crate::wire::{by_topic, check};

/// Which offset of a partition is wanted (Java: `OffsetSpec`).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum OffsetSpec {
    /// The first one still in the log.
    Earliest,
    /// The one the next record will get; the last stable offset where only committed records count.
    Latest,
    /// The first record, in log order, whose timestamp is not older than this (milliseconds since the epoch).
    Timestamp(i64),
    /// The first record that has the largest timestamp of the log (KIP-734).
    MaxTimestamp,
}

impl From<OffsetSpec> for Target {
    fn from(spec: OffsetSpec) -> Self {
        match spec {
            OffsetSpec::Earliest => Target::Earliest,
            OffsetSpec::Latest => Target::Latest,
            OffsetSpec::Timestamp(millis) => Target::Timestamp(millis),
            OffsetSpec::MaxTimestamp => Target::MaxTimestamp,
        }
    }
}

/// An offset that was found (Java: `ListOffsetsResultInfo`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ListedOffset {
    /// The offset.
    pub offset: i64,
    /// Timestamp of the record there, ms since the epoch; `None` for the ends of the log.
    pub timestamp: Option<i64>,
    /// Leader epoch of the record there, where the broker tells it.
    pub leader_epoch: Option<i32>,
}

/// Up to where records are deleted (Java: `RecordsToDelete`). An offset converts into [`RecordsToDelete::before`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecordsToDelete {
    before: Option<i64>,
}

impl RecordsToDelete {
    /// Records below this offset.
    pub fn before(offset: i64) -> RecordsToDelete {
        RecordsToDelete { before: Some(offset) }
    }

    /// Every record below the high watermark (Java: `beforeOffset(-1)`).
    pub fn all() -> RecordsToDelete {
        RecordsToDelete { before: None }
    }
}

impl From<i64> for RecordsToDelete {
    fn from(offset: i64) -> Self {
        RecordsToDelete::before(offset)
    }
}

impl Admin {
    /// Deletes the oldest records of partitions for good (Java: `deleteRecords`; KIP-107). The result is the log's
    /// first offset afterwards. A topic that is only compacted refuses.
    ///
    /// Dropping the future leaves it open whether the records are deleted.
    ///
    /// # Errors
    ///
    /// Per partition: `OffsetOutOfRange` for an offset past the high watermark, `UnknownTopic`, `Authorization`,
    /// `Broker(POLICY_VIOLATION)` for a topic that is only compacted, `InvalidRequest` for a negative offset or a
    /// partition named twice, `Timeout`.
    pub async fn delete_records(
        &self,
        records: impl IntoIterator<Item = ((impl Into<String>, i32), impl Into<RecordsToDelete>)>,
    ) -> Result<Vec<((String, i32), Result<i64>)>> {
        let records =
            records.into_iter().map(|((topic, partition), to)| ((topic.into(), partition), to.into()));
        let (partitions, bounds): (Vec<_>, Vec<RecordsToDelete>) = records.unzip();
        let names = interned(&partitions);
        let mut plan = Plan::changing("delete records", led(&names));
        for (index, bound) in bounds.iter().enumerate() {
            if bound.before.is_some_and(|before| before < 0) {
                plan.refuse(index, "the offset is negative");
            }
        }
        let (call, names, bounds) = (self.call(), &names, &bounds);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let asked = batch.items.iter().filter_map(|index| {
                    let ((topic, partition), bound) = (names.get(*index)?, bounds.get(*index)?);
                    let wanted = DeleteRecordsPartition::default()
                        .with_partition_index(*partition)
                        .with_offset(bound.before.unwrap_or(-1));
                    Some((*topic, wanted))
                });
                let asked = by_topic(asked).into_iter().map(|(name, partitions)| {
                    DeleteRecordsTopic::default().with_name(topic_name(name)).with_partitions(partitions)
                });
                let request = DeleteRecordsRequest::default()
                    .with_topics(asked.collect())
                    .with_timeout_ms(batch.timeout_ms());
                let (_, answer) = call.send(batch.to, batch.deadline, 0, request).await?;
                let places = places(&batch.items, names);
                let mut answers = Vec::new();
                for topic in answer.topics {
                    for part in topic.partitions {
                        if let Some(index) = places.get(&(topic.name.as_str(), part.partition_index)) {
                            let result = check(part.error_code, None).map(|()| part.low_watermark);
                            answers.push((*index, result));
                        }
                    }
                }
                Ok(answers)
            }
        });
        let results = results.await?;
        Ok(keyed(partitions, results))
    }

    /// Looks offsets up (Java: `listOffsets`; KIP-396, KIP-734); records of open and aborted transactions count.
    /// `None` where there is no such offset: every record is older than the timestamp, or the log is empty.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Per partition: `UnknownTopic`, `Authorization`, `UnsupportedApi`, `InvalidRequest` for a negative timestamp
    /// or a partition named twice, `Timeout`.
    pub async fn list_offsets(
        &self,
        specs: impl IntoIterator<Item = ((impl Into<String>, i32), OffsetSpec)>,
    ) -> Result<Vec<((String, i32), Result<Option<ListedOffset>>)>> {
        let specs = specs.into_iter().map(|((topic, partition), spec)| ((topic.into(), partition), spec));
        self.look_up(specs.collect(), false).await
    }

    /// As [`Admin::list_offsets`], of what a consumer sees that reads only what is committed (Java:
    /// `ListOffsetsOptions(READ_COMMITTED)`): the log ends at its last stable offset, before the first open
    /// transaction.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn list_committed_offsets(
        &self,
        specs: impl IntoIterator<Item = ((impl Into<String>, i32), OffsetSpec)>,
    ) -> Result<Vec<((String, i32), Result<Option<ListedOffset>>)>> {
        let specs = specs.into_iter().map(|((topic, partition), spec)| ((topic.into(), partition), spec));
        self.look_up(specs.collect(), true).await
    }

    async fn look_up(
        &self,
        specs: Vec<((String, i32), OffsetSpec)>,
        committed_only: bool,
    ) -> Result<Vec<((String, i32), Result<Option<ListedOffset>>)>> {
        let (partitions, specs): (Vec<_>, Vec<_>) = specs.into_iter().unzip();
        let names = interned(&partitions);
        let mut plan = Plan::reading("list offsets", led(&names));
        for (index, spec) in specs.iter().enumerate() {
            if matches!(spec, OffsetSpec::Timestamp(millis) if *millis < 0) {
                plan.refuse(index, "the timestamp is negative");
            }
        }
        let (call, names, specs) = (self.call(), &names, &specs);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let asks = batch.items.iter().filter_map(|index| {
                    let ((topic, partition), spec) = (names.get(*index)?, specs.get(*index)?);
                    Some(Ask {
                        topic: *topic,
                        partition: *partition,
                        leader_epoch: None,
                        target: (*spec).into(),
                    })
                });
                let asks = asks.collect();
                let found =
                    offsets::ask(call.cluster, &call.via, batch.to, committed_only, asks, batch.deadline)
                        .await?;
                let places = places(&batch.items, names);
                let answers = found.into_iter().filter_map(|(topic, partition, answer)| {
                    let index = *places.get(&(topic.as_str(), partition))?;
                    let listed = answer.map_err(|code| Refusal::new(code, None)).map(|found| {
                        found.map(|found| ListedOffset {
                            offset: found.offset,
                            timestamp: Some(found.timestamp).filter(|timestamp| *timestamp >= 0),
                            leader_epoch: found.leader_epoch,
                        })
                    });
                    Some((index, listed))
                });
                Ok(answers.collect())
            }
        });
        let results = results.await?;
        Ok(keyed(partitions, results))
    }
}

fn led(partitions: &[(TopicName, i32)]) -> Vec<(Subject, Route)> {
    let led = |(topic, index): &(TopicName, i32)| {
        (Subject::Partition(*topic, *index), Route::Leader(*topic, *index))
    };
    partitions.iter().map(led).collect()
}

/// Which item is about which partition.
pub(crate) fn places(
    items: &[usize],
    partitions: &[(TopicName, i32)],
) -> HashMap<(&'static str, i32), usize> {
    let places = items.iter().filter_map(|index| {
        let (topic, partition) = partitions.get(*index)?;
        Some(((topic.as_str(), *partition), *index))
    });
    places.collect()
}
