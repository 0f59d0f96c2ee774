//! Offsets inside transactions: AddOffsetsToTxn and TxnOffsetCommit.
//!
//! They wait beside the group's offsets until the transaction ends: unstable for readers that ask for stable
//! offsets, invisible to the others.

use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};

use super::api::{Api, Call, Started};
use super::groups::{self, Kind, MAX_METADATA, Stored, coordinator};
use super::txn::check_adding;
use super::world::World;

impl Api for AddOffsetsToTxnRequest {
    fn refuse(&self, _call: &Call, code: i16) -> AddOffsetsToTxnResponse {
        AddOffsetsToTxnResponse::default().with_error_code(code)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<AddOffsetsToTxnResponse> {
        let id = self.transactional_id.to_string();
        if coordinator(world, &id) != Some(call.node) {
            return Started::Done(self.refuse(call, 16));
        }
        let asked = (self.producer_id.0, self.producer_epoch);
        let fenced = if call.version >= 2 { 90 } else { 47 };
        let added = check_adding(world, &id, asked, fenced)
            .and_then(|()| world.transactions.admit_group(&id, asked, &self.group_id, true, call.now));
        Started::Done(self.refuse(call, added.err().unwrap_or(0)))
    }

    fn throttle(response: &mut AddOffsetsToTxnResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

impl Api for TxnOffsetCommitRequest {
    fn topics(&self, _world: &World) -> Vec<String> {
        self.topics.iter().map(|topic| topic.name.to_string()).collect()
    }

    fn refuse(&self, _call: &Call, code: i16) -> TxnOffsetCommitResponse {
        let mut response = TxnOffsetCommitResponse::default();
        for topic in &self.topics {
            let mut answer = TxnOffsetCommitResponseTopic::default().with_name(topic.name.clone());
            for partition in &topic.partitions {
                let entry = TxnOffsetCommitResponsePartition::default()
                    .with_partition_index(partition.partition_index);
                answer.partitions.push(entry.with_error_code(code));
            }
            response.topics.push(answer);
        }
        response
    }

    fn start(self, world: &mut World, call: &Call) -> Started<TxnOffsetCommitResponse> {
        match admit(&self, world, call) {
            Ok(()) => {}
            Err(code) => return Started::Done(self.refuse(call, code)),
        }
        let mut response = self.refuse(call, 0);
        for (topic, answer) in self.topics.iter().zip(&mut response.topics) {
            for (asked, entry) in topic.partitions.iter().zip(&mut answer.partitions) {
                let metadata = asked.committed_metadata.as_ref().map(ToString::to_string).unwrap_or_default();
                if world.partition(&topic.name, asked.partition_index).is_none() {
                    entry.error_code = 3;
                } else if metadata.len() > MAX_METADATA {
                    entry.error_code = 12;
                } else {
                    let order = world.groups.next_order();
                    let leader_epoch = if call.version >= 2 { asked.committed_leader_epoch } else { -1 };
                    let stored = Stored { offset: asked.committed_offset, leader_epoch, metadata, order };
                    let group = world.groups.groups.entry(self.group_id.to_string()).or_default();
                    let pending = group.pending.entry(self.producer_id.0).or_default();
                    pending.insert((topic.name.to_string(), asked.partition_index), stored);
                }
            }
        }
        world.touch();
        Started::Done(response)
    }

    fn throttle(response: &mut TxnOffsetCommitResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

/// Whether the producer and the member behind it may commit.
fn admit(request: &TxnOffsetCommitRequest, world: &mut World, call: &Call) -> Result<(), i16> {
    groups::admit(world, call, &request.group_id)?;
    let (id, producer, epoch) =
        (request.transactional_id.as_str(), request.producer_id.0, request.producer_epoch);
    let implicit = call.version >= 5;
    let admitted =
        world.transactions.admit_group(id, (producer, epoch), &request.group_id, implicit, call.now);
    // Up to v3 the general code, from v4 the one that says to abort.
    admitted.map_err(|code| if code == 48 && call.version >= 4 { 120 } else { code })?;
    let (member, generation) = (request.member_id.as_str(), request.generation_id);
    // Without an identity there is no fencing at all, members or not.
    if member.is_empty() && generation < 0 {
        return Ok(());
    }
    let group = world.groups.groups.entry(request.group_id.to_string()).or_default();
    if !group.is_live(call.now) {
        let known = !matches!(group.kind, Kind::Simple);
        return match generation {
            ..0 => Ok(()),
            _ if known => Err(25),
            _ => Err(22),
        };
    }
    let code = match &mut group.kind {
        Kind::Simple => 25,
        Kind::Classic(group) => {
            let instance = request.group_instance_id.as_deref();
            group.may_commit(member, instance, generation, call.now)
        }
        Kind::Consumer(group) => group.may_commit(member, generation, None),
    };
    // Of the new protocol too, a wrong epoch is called an illegal generation here.
    match code {
        0 => Ok(()),
        113 => Err(22),
        code => Err(code),
    }
}
