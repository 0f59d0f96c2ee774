//! Groups of the new protocol (ConsumerGroupDescribe, KIP-848).

use kafka_meta::wire::protocol::messages::ConsumerGroupDescribeRequest;
use kafka_meta::wire::protocol::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member,
};

use kafka_meta::{ErrorCode, ErrorKind};

use super::{Described, GroupDescription, GroupType, MemberDescription, coordinator};
use crate::admin::Call;
use crate::plan::{Answer, Failure, Refusal};
use crate::run::Batch;
use crate::wire::{self, check, optional};

/// Asks about groups as ones of the new protocol. A broker that does not know the request answers for each that it
/// does not.
pub(super) async fn describe(
    call: &Call<'_>,
    batch: &Batch,
    groups: Vec<String>,
) -> std::result::Result<Described, Failure> {
    let names = groups.iter().map(|name| wire::group(name)).collect();
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(names);
    let (version, answer) = match call.send(batch.to, batch.deadline, 0, request).await {
        Err(failure) if failure.error.kind() == ErrorKind::UnsupportedApi => {
            let refused = || Err(Refusal::new(ErrorCode::UNSUPPORTED_VERSION, None));
            return Ok(Described(groups.into_iter().map(|group| (group, refused())).collect()));
        }
        answered => answered?,
    };
    let node = coordinator(batch);
    let read = |group: DescribedGroup| (group.group_id.to_string(), described(group, node, version));
    Ok(Described(answer.groups.into_iter().map(read).collect()))
}

fn described(group: DescribedGroup, coordinator: i32, version: i16) -> Answer<GroupDescription> {
    check(group.error_code, group.error_message)?;
    let mut members: Vec<_> = group.members.into_iter().map(|member| one(member, version)).collect();
    members.sort_by(|a: &MemberDescription, b| a.member_id.cmp(&b.member_id));
    Ok(GroupDescription {
        group_id: group.group_id.to_string(),
        group_type: GroupType::Consumer,
        state: group.group_state.as_str().into(),
        coordinator,
        assignor: group.assignor_name.to_string(),
        protocol_type: "consumer".to_owned(),
        group_epoch: Some(group.group_epoch),
        target_epoch: Some(group.assignment_epoch),
        members,
    })
}

fn one(member: Member, version: i16) -> MemberDescription {
    MemberDescription {
        member_id: member.member_id.to_string(),
        instance_id: optional(member.instance_id),
        client_id: member.client_id.to_string(),
        host: member.client_host.to_string(),
        rack: optional(member.rack_id),
        epoch: Some(member.member_epoch),
        topics: member.subscribed_topic_names.iter().map(|name| name.to_string()).collect(),
        pattern: optional(member.subscribed_topic_regex).filter(|pattern| !pattern.is_empty()),
        assignment: partitions(&member.assignment),
        target: Some(partitions(&member.target_assignment)),
        // -1: the broker does not know itself.
        is_classic: (version >= 1 && member.member_type >= 0).then_some(member.member_type == 0),
    }
}

fn partitions(assignment: &Assignment) -> Vec<(String, i32)> {
    let topics = assignment.topic_partitions.iter();
    let mut partitions: Vec<_> = topics
        .flat_map(|topic| topic.partitions.iter().map(|index| (topic.topic_name.to_string(), *index)))
        .collect();
    partitions.sort();
    partitions
}
