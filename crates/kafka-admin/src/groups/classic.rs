//! Groups of the classic protocol (DescribeGroups).
//!
//! What a member wants and has is bytes that the broker passes on unread: another client's word. A member whose
//! bytes do not read is described without them, for one broken member must not hide the rest of its group.

use bytes::Bytes;
use kafka_meta::ErrorCode;
use kafka_meta::wire::guard;
use kafka_meta::wire::protocol::messages::DescribeGroupsRequest;
use kafka_meta::wire::protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};

use super::{GroupDescription, GroupType, MemberDescription, coordinator};
use crate::admin::Call;
use crate::plan::{Answer, Failure, Refusal};
use crate::run::Batch;
use crate::wire::{self, check, optional};

/// What consumers call themselves.
const CONSUMER: &str = "consumer";

/// Asks about groups as of old.
pub(super) async fn describe(
    call: &Call<'_>,
    batch: &Batch,
    groups: Vec<String>,
) -> std::result::Result<Vec<(String, Answer<GroupDescription>)>, Failure> {
    let names = groups.iter().map(|name| wire::group(name)).collect();
    let request = DescribeGroupsRequest::default().with_groups(names);
    let (_, answer) = call.send(batch.to, batch.deadline, 0, request).await?;
    let node = coordinator(batch);
    let read = |group: DescribedGroup| (group.group_id.to_string(), described(group, node));
    Ok(answer.groups.into_iter().map(read).collect())
}

fn described(group: DescribedGroup, coordinator: i32) -> Answer<GroupDescription> {
    check(group.error_code, group.error_message)?;
    if group.group_state.as_str() == "Dead" && group.members.is_empty() {
        // What brokers before version 6 say of a group that is not there.
        return Err(Refusal::new(ErrorCode::GROUP_ID_NOT_FOUND, None));
    }
    let consumers = group.protocol_type.as_str() == CONSUMER;
    let members = group.members.into_iter().map(|member| one(&member, consumers));
    let mut members: Vec<MemberDescription> = members.collect();
    members.sort_by(|a, b| a.member_id.cmp(&b.member_id));
    Ok(GroupDescription {
        group_id: group.group_id.to_string(),
        group_type: GroupType::Classic,
        state: group.group_state.as_str().into(),
        coordinator,
        assignor: group.protocol_data.to_string(),
        protocol_type: group.protocol_type.to_string(),
        group_epoch: None,
        target_epoch: None,
        members,
    })
}

fn one(member: &DescribedGroupMember, consumers: bool) -> MemberDescription {
    let (mut topics, mut assignment) = (Vec::new(), Vec::new());
    if consumers {
        topics = subscribed(&member.member_metadata);
        assignment = assigned(&member.member_assignment);
    }
    MemberDescription {
        member_id: member.member_id.to_string(),
        instance_id: optional(member.group_instance_id.clone()),
        client_id: member.client_id.to_string(),
        host: member.client_host.to_string(),
        rack: None,
        epoch: None,
        topics,
        pattern: None,
        assignment,
        target: None,
        is_classic: Some(true),
    }
}

/// Empty while the group is in between generations: the broker hides both then.
fn subscribed(bytes: &Bytes) -> Vec<String> {
    let read = (!bytes.is_empty()).then(|| guard::subscription(bytes));
    match read {
        Some(Ok(subscription)) => subscription.topics.iter().map(ToString::to_string).collect(),
        Some(Err(error)) => {
            tracing::warn!(%error, "a member's subscription does not read");
            Vec::new()
        }
        None => Vec::new(),
    }
}

fn assigned(bytes: &Bytes) -> Vec<(String, i32)> {
    let read = (!bytes.is_empty()).then(|| guard::assignment(bytes));
    let mut partitions: Vec<(String, i32)> = match read {
        Some(Ok(assignment)) => {
            let topics = assignment.assigned_partitions.into_iter();
            topics
                .flat_map(|topic| {
                    let name = topic.topic.to_string();
                    topic.partitions.into_iter().map(move |index| (name.clone(), index))
                })
                .collect()
        }
        Some(Err(error)) => {
            tracing::warn!(%error, "a member's assignment does not read");
            Vec::new()
        }
        None => Vec::new(),
    };
    partitions.sort();
    partitions
}
