//! Every version the embedded cluster lists is answered, as a success and as a refusal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, ApiKey, ApiVersionsRequest,
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, CreatePartitionsRequest,
    CreateTopicsRequest, DeleteGroupsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeClusterRequest, DescribeConfigsRequest, DescribeGroupsRequest, EndTxnRequest,
    FindCoordinatorRequest, HeartbeatRequest, IncrementalAlterConfigsRequest, InitProducerIdRequest,
    JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest, ListOffsetsRequest, MetadataRequest,
    OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest,
    ProduceRequest, SyncGroupRequest, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::Request;
use testkit::embedded::Embedded;

mod behaviours;
use behaviours::raw::{Ask, Raw, batch, list, name, produce_request, text};

struct Each {
    kafka: Embedded,
    node: Raw,
    tried: Vec<i16>,
}

impl Each {
    /// Calls every listed version, once as it is and once refused by a fault.
    async fn version<R: Request>(&mut self, request: impl Fn(i16) -> R) {
        let versions = self.node.call(3, &software()).await;
        let range = versions.api_keys.iter().find(|range| range.api_key == R::KEY).unwrap();
        for version in range.min_version..=range.max_version {
            self.node.call(version, &request(version)).await;
            self.kafka.fault(ApiKey::try_from(R::KEY).unwrap()).error(35);
            self.node.call(version, &request(version)).await;
        }
        self.tried.push(R::KEY);
    }
}

fn software() -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name(text("raw"))
        .with_client_software_version(text("1"))
}

#[tokio::test(start_paused = true)]
async fn every_listed_version_is_answered() {
    let kafka = Embedded::start(1);
    kafka.create_topic("t", 2);
    kafka.append_at("t", 0, &[1, 2, 3]);
    kafka.commit("g", "t", 0, 1);
    kafka.begin("tx").commit();
    let id = kafka.topic_id("t");
    let node = Raw::connect(&kafka.connector(), "node-1.embedded", 9092).await.unwrap();
    let mut each = Each { kafka: kafka.clone(), node, tried: Vec::new() };

    each.version(|_| software()).await;
    each.version(|version| {
        let by_id = version >= 13;
        let mut request: ProduceRequest = produce_request("t", 0, batch(&[b"x"]));
        if by_id {
            request.topic_data[0].topic_id = id;
            request.topic_data[0].name = name("");
        }
        request
    })
    .await;
    each.version(|version| {
        let wanted = Ask::new(version).add("t", id, 0, 0).add("t", id, 1, 9);
        if version >= 7 { wanted.session(0, 0).request } else { wanted.request }
    })
    .await;
    assert_eq!(list(&mut each.node, 10, "t", 0, -1, true).await.error_code, 0);
    each.version(|version| {
        use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
        let asked = ListOffsetsPartition::default().with_partition_index(0).with_timestamp(-1);
        let topic = ListOffsetsTopic::default().with_name(name("t")).with_partitions(vec![asked]);
        let isolation = i8::from(version >= 2);
        ListOffsetsRequest::default().with_isolation_level(isolation).with_topics(vec![topic])
    })
    .await;
    each.version(|version| {
        let known = MetadataRequestTopic::default().with_name(Some(name("t")));
        let unknown = MetadataRequestTopic::default().with_name(Some(name("nope")));
        let mut topics = vec![known, unknown];
        if version >= 12 {
            topics.push(MetadataRequestTopic::default().with_topic_id(id));
            topics.push(MetadataRequestTopic::default().with_topic_id(uuid::Uuid::from_u128(9)));
        }
        MetadataRequest::default().with_topics(Some(topics)).with_allow_auto_topic_creation(true)
    })
    .await;
    each.version(|_| {
        let entry = OffsetCommitRequestPartition::default().with_partition_index(0).with_committed_offset(2);
        let topic = OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![entry]);
        OffsetCommitRequest::default()
            .with_group_id(text("g").into())
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic])
    })
    .await;
    each.version(|version| {
        if version < 8 {
            let topic =
                OffsetFetchRequestTopic::default().with_name(name("t")).with_partition_indexes(vec![0, 1]);
            return OffsetFetchRequest::default()
                .with_group_id(text("g").into())
                .with_topics(Some(vec![topic]));
        }
        let topic =
            OffsetFetchRequestTopics::default().with_name(name("t")).with_partition_indexes(vec![0, 1]);
        let group = OffsetFetchRequestGroup::default().with_group_id(text("g").into());
        OffsetFetchRequest::default().with_groups(vec![group.with_topics(Some(vec![topic]))])
    })
    .await;
    each.version(|version| {
        if version < 4 {
            return FindCoordinatorRequest::default().with_key(text("g"));
        }
        FindCoordinatorRequest::default().with_coordinator_keys(vec![text("g"), text("h")])
    })
    .await;
    each.version(|version| {
        let topic = CreatableTopic::default().with_name(name(&format!("made-{version}")));
        CreateTopicsRequest::default()
            .with_topics(vec![topic.with_num_partitions(1).with_replication_factor(1)])
    })
    .await;
    each.version(|version| {
        if version < 6 {
            return DeleteTopicsRequest::default().with_topic_names(vec![name("made-2"), name("nope")]);
        }
        let state = DeleteTopicState::default().with_name(Some(name("made-3")));
        let unknown = DeleteTopicState::default().with_topic_id(uuid::Uuid::from_u128(9));
        DeleteTopicsRequest::default().with_topics(vec![state, unknown])
    })
    .await;
    each.version(|_| {
        let asked = DeleteRecordsPartition::default().with_partition_index(0).with_offset(1);
        let topic = DeleteRecordsTopic::default().with_name(name("t")).with_partitions(vec![asked]);
        DeleteRecordsRequest::default().with_topics(vec![topic])
    })
    .await;
    each.version(|_| {
        let request = InitProducerIdRequest::default().with_transactional_id(Some(text("tx").into()));
        request.with_transaction_timeout_ms(1000)
    })
    .await;
    each.version(|_| {
        let asked = OffsetForLeaderPartition::default().with_partition(0).with_leader_epoch(0);
        let topic = OffsetForLeaderTopic::default().with_topic(name("t")).with_partitions(vec![asked]);
        OffsetForLeaderEpochRequest::default().with_topics(vec![topic])
    })
    .await;
    each.version(|_| {
        AddPartitionsToTxnRequest::default().with_v3_and_below_transactional_id(text("tx").into())
    })
    .await;
    each.version(|_| {
        let request = AddOffsetsToTxnRequest::default().with_transactional_id(text("tx").into());
        request.with_group_id(text("g").into())
    })
    .await;
    each.version(|_| {
        use kafka_protocol::messages::txn_offset_commit_request::{
            TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
        };
        let entry = TxnOffsetCommitRequestPartition::default().with_partition_index(0);
        let topic = TxnOffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![entry]);
        let request = TxnOffsetCommitRequest::default().with_transactional_id(text("tx").into());
        request.with_group_id(text("g").into()).with_topics(vec![topic])
    })
    .await;
    each.version(|_| EndTxnRequest::default().with_transactional_id(text("tx").into())).await;

    each.version(|version| {
        use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
        let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
        let request = JoinGroupRequest::default()
            .with_group_id(text(&format!("classic-{version}")).into())
            .with_session_timeout_ms(6000)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol]);
        if version >= 1 { request.with_rebalance_timeout_ms(6000) } else { request }
    })
    .await;
    each.version(|_| SyncGroupRequest::default().with_group_id(text("classic-0").into())).await;
    each.version(|_| HeartbeatRequest::default().with_group_id(text("classic-0").into())).await;
    each.version(|version| {
        let request = LeaveGroupRequest::default().with_group_id(text("classic-0").into());
        if version < 3 { request } else { request.with_members(vec![Default::default()]) }
    })
    .await;
    each.version(|version| {
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(text(&format!("new-{version}")).into())
            .with_member_id(text("m"))
            .with_rebalance_timeout_ms(1000)
            .with_subscribed_topic_names(Some(vec![name("t")]))
            .with_topic_partitions(Some(Vec::new()))
    })
    .await;

    administration(&mut each).await;

    let listed = each.node.call(4, &software()).await;
    for range in listed.api_keys {
        assert!(each.tried.contains(&range.api_key), "api {} was not tried", range.api_key);
    }
}

/// What administrators ask; of a classic, a new and a stored group, and of one that is not there.
async fn administration(each: &mut Each) {
    use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
    use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
    use kafka_protocol::messages::incremental_alter_configs_request::{
        AlterConfigsResource, AlterableConfig,
    };
    use kafka_protocol::messages::offset_delete_request::{
        OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
    };
    let groups = || ["classic-0", "new-1", "g", "nobody"].map(|name| text(name).into()).to_vec();
    each.version(|_| DescribeGroupsRequest::default().with_groups(groups())).await;
    each.version(|_| ConsumerGroupDescribeRequest::default().with_group_ids(groups())).await;
    each.version(|_| ListGroupsRequest::default()).await;
    each.version(|_| DescribeClusterRequest::default()).await;
    each.version(|version| {
        let topic = CreatePartitionsTopic::default().with_name(name("t")).with_count(5 + i32::from(version));
        CreatePartitionsRequest::default().with_topics(vec![topic.with_assignments(None)])
    })
    .await;
    each.version(|_| {
        let resources = [(2, "t"), (2, "nope"), (4, "1"), (32, "g")].map(|(kind, name)| {
            let resource = DescribeConfigsResource::default().with_resource_type(kind);
            resource.with_resource_name(text(name)).with_configuration_keys(None)
        });
        DescribeConfigsRequest::default().with_resources(resources.to_vec()).with_include_synonyms(true)
    })
    .await;
    each.version(|_| {
        let value = Some(text("5000"));
        let config = AlterableConfig::default().with_name(text("retention.ms")).with_value(value);
        let resource = AlterConfigsResource::default().with_resource_type(2).with_resource_name(text("t"));
        IncrementalAlterConfigsRequest::default().with_resources(vec![resource.with_configs(vec![config])])
    })
    .await;
    each.version(|_| {
        let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
        let topic = OffsetDeleteRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
        OffsetDeleteRequest::default().with_group_id(text("g").into()).with_topics(vec![topic])
    })
    .await;
    each.version(|_| DeleteGroupsRequest::default().with_groups_names(groups())).await;
}
