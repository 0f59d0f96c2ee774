//! Groups taken apart from outside: members removed, groups deleted.

use kafka_meta::wire::protocol::messages::leave_group_request::MemberIdentity;
use kafka_meta::wire::protocol::messages::{DeleteGroupsRequest, LeaveGroupRequest};
use kafka_meta::{Error, ErrorKind, Result};

use crate::admin::{Admin, keyed};
use crate::groups::{matched, on_coordinators};
use crate::plan::{Plan, Refusal, Route, Subject};
use crate::wire::{check, group as wire_group, text};

/// Members are named one by one, and by instance id, from here on (KIP-345).
const LEAVE_EACH: i16 = 3;
/// The reason travels from here on (KIP-800).
const REMOVE: &str = "remove members";

/// Shown in the broker's log.
const REASON: &str = "member was removed by an administrator";

#[derive(Clone, Debug)]
enum Who {
    Instance(String),
    Dynamic(String),
}

impl Who {
    fn name(&self) -> &str {
        match self {
            Who::Instance(id) | Who::Dynamic(id) => id,
        }
    }

    fn identity(&self) -> MemberIdentity {
        let identity = MemberIdentity::default().with_reason(Some(text(REASON)));
        match self {
            Who::Instance(id) => identity.with_group_instance_id(Some(text(id))),
            Who::Dynamic(id) => identity.with_member_id(text(id)),
        }
    }
}

impl Admin {
    /// Deletes groups with their offsets (Java: `deleteConsumerGroups`; KIP-229). Only groups without members can
    /// be deleted.
    ///
    /// Dropping the future leaves it open whether the groups are deleted.
    ///
    /// # Errors
    ///
    /// Per group: `Broker(NON_EMPTY_GROUP)` while it has members, `Broker(GROUP_ID_NOT_FOUND)`, `Authorization`,
    /// `InvalidRequest` for an empty id or a group named twice, `Timeout`.
    pub async fn delete_groups(
        &self,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Vec<(String, Result<()>)>> {
        let groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        let plan = on_coordinators("delete groups", &groups, Plan::changing);
        let (call, asked) = (self.call(), &groups);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let names = batch.items.iter().filter_map(|index| asked.get(*index));
                let names = names.map(|name| wire_group(name)).collect();
                let request = DeleteGroupsRequest::default().with_groups_names(names);
                let (_, answer) = call.send(batch.to, batch.deadline, 0, request).await?;
                let answers = answer
                    .results
                    .into_iter()
                    .map(|group| (group.group_id.to_string(), check(group.error_code, None)));
                Ok(matched(&batch.items, asked, answers))
            }
        });
        let results = results.await?;
        Ok(keyed(groups, results))
    }

    /// Removes static members by their instance ids (Java: `removeMembersFromConsumerGroup`; KIP-345): their
    /// partitions are given to others at once in place of after the session timeout. A member that is alive joins
    /// again by itself.
    ///
    /// Dropping the future leaves it open whether the members are removed.
    ///
    /// # Errors
    ///
    /// Per instance id: `Broker(UNKNOWN_MEMBER_ID)` where no member of the group has it, `Authorization` on the
    /// group, `InvalidRequest` for an id named twice, `Timeout`.
    pub async fn remove_members(
        &self,
        group: &str,
        instance_ids: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Vec<(String, Result<()>)>> {
        let members = instance_ids.into_iter().map(|id| Who::Instance(id.into()));
        self.remove(group, members.collect()).await
    }

    /// Removes every member that the group has at the moment (Java: `removeMembersFromConsumerGroup` without
    /// members; KIP-571), static ones by instance id, the others by member id. Members that are alive join again by
    /// themselves. The results are keyed by instance id or member id.
    ///
    /// Dropping the future leaves it open which members are removed.
    ///
    /// # Errors
    ///
    /// As [`Admin::remove_members`]; the group's own where it cannot be described.
    pub async fn remove_all_members(&self, group: &str) -> Result<Vec<(String, Result<()>)>> {
        let mut described = self.describe_groups([group]).await?;
        let Some((_, described)) = described.pop() else {
            return Err(Error::new(ErrorKind::Other, REMOVE).with_group(group));
        };
        let members = described?.members.into_iter().map(|member| match member.instance_id {
            Some(id) => Who::Instance(id),
            None => Who::Dynamic(member.member_id),
        });
        self.remove(group, members.collect()).await
    }

    async fn remove(&self, group: &str, members: Vec<Who>) -> Result<Vec<(String, Result<()>)>> {
        if group.is_empty() {
            return Err(Error::new(ErrorKind::InvalidRequest, REMOVE).with_detail("the group id is empty"));
        }
        let names: Vec<String> = members.iter().map(|member| member.name().to_owned()).collect();
        let items = names.iter().map(|name| (Subject::Member(name.clone()), Route::Group(group.to_owned())));
        let plan = Plan::changing(REMOVE, items.collect());
        let (call, members) = (self.call(), &members);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let asked = batch.items.iter().filter_map(|index| members.get(*index));
                let request = LeaveGroupRequest::default()
                    .with_group_id(wire_group(group))
                    .with_members(asked.map(Who::identity).collect());
                let (_, answer) = call.send(batch.to, batch.deadline, LEAVE_EACH, request).await?;
                if let Err(refusal) = check(answer.error_code, None) {
                    let all = batch.items.iter().map(|index| (*index, Err(refusal.clone())));
                    return Ok(all.collect());
                }
                // Answered in the order asked; the names are held against it all the same.
                let answers = batch.items.iter().zip(answer.members).map(|(index, member)| {
                    let asked = members.get(*index).map_or("", Who::name);
                    let instance = member.group_instance_id.as_deref();
                    let right = instance == Some(asked) || member.member_id.as_str() == asked;
                    let mixed = Refusal::new(
                        kafka_meta::ErrorCode::UNKNOWN_SERVER_ERROR,
                        Some("the broker answered about another member".to_owned()),
                    );
                    let result = if right { check(member.error_code, None) } else { Err(mixed) };
                    (*index, result)
                });
                Ok(answers.collect())
            }
        });
        let results = results.await?;
        Ok(keyed(names, results))
    }
}
