//! DeleteGroups and OffsetDelete: what an administrator takes away from groups.

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, OffsetDeleteRequest, OffsetDeleteResponse,
};

use super::api::{Api, Call, Started};
use super::groups::{self, Group, Kind};
use super::world::World;

impl Api for DeleteGroupsRequest {
    fn refuse(&self, _call: &Call, code: i16) -> DeleteGroupsResponse {
        let results = self
            .groups_names
            .iter()
            .map(|name| DeletableGroupResult::default().with_group_id(name.clone()).with_error_code(code));
        DeleteGroupsResponse::default().with_results(results.collect())
    }

    fn start(self, world: &mut World, call: &Call) -> Started<DeleteGroupsResponse> {
        let mut response = self.refuse(call, 0);
        for answer in &mut response.results {
            let name = answer.group_id.to_string();
            answer.error_code = match groups::admit(world, call, &name) {
                Err(code) => code,
                Ok(()) => match world.groups.groups.get_mut(&name).map(|group| group.is_live(call.now)) {
                    None => 69,
                    Some(true) => 68,
                    Some(false) => {
                        world.groups.groups.remove(&name);
                        0
                    }
                },
            };
        }
        world.touch();
        Started::Done(response)
    }

    fn throttle(response: &mut DeleteGroupsResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}

impl Group {
    /// Whether a member reads this topic.
    fn subscribes_to(&self, topic: &str) -> bool {
        match &self.kind {
            Kind::Simple => self.live,
            Kind::Classic(group) => group.subscribes_to(topic),
            Kind::Consumer(group) => group.members.values().any(|member| member.wants(topic)),
        }
    }
}

impl Api for OffsetDeleteRequest {
    fn topics(&self, _world: &World) -> Vec<String> {
        self.topics.iter().map(|topic| topic.name.to_string()).collect()
    }

    fn refuse(&self, _call: &Call, code: i16) -> OffsetDeleteResponse {
        OffsetDeleteResponse::default().with_error_code(code)
    }

    fn start(self, world: &mut World, call: &Call) -> Started<OffsetDeleteResponse> {
        let name = self.group_id.to_string();
        if let Err(code) = groups::admit(world, call, &name) {
            return Started::Done(self.refuse(call, code));
        }
        let mut response = self.refuse(call, 0);
        let Some(group) = world.groups.groups.get_mut(&name) else {
            return Started::Done(self.refuse(call, 69));
        };
        group.is_live(call.now);
        if let Kind::Classic(members) = &group.kind
            && !members.members.is_empty()
            && members.protocol_type != "consumer"
        {
            return Started::Done(self.refuse(call, 68));
        }
        for topic in &self.topics {
            let mut answer = OffsetDeleteResponseTopic::default().with_name(topic.name.clone());
            for asked in &topic.partitions {
                let place = (topic.name.to_string(), asked.partition_index);
                let known =
                    world.topics.get(&place.0).is_some_and(|topic| topic.partition(place.1).is_some());
                let code = if !known {
                    3
                } else if group.subscribes_to(&place.0) {
                    86
                } else {
                    group.offsets.remove(&place);
                    0
                };
                let entry = OffsetDeleteResponsePartition::default().with_partition_index(place.1);
                answer.partitions.push(entry.with_error_code(code));
            }
            response.topics.push(answer);
        }
        world.touch();
        Started::Done(response)
    }

    fn throttle(response: &mut OffsetDeleteResponse) -> Option<&mut i32> {
        Some(&mut response.throttle_time_ms)
    }
}
