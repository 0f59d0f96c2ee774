//! The public surface: what must be `Send` is, and each way of calling it compiles.
#![allow(dead_code, clippy::unwrap_used)]

use kafka_admin::{
    Admin, AlterConfigOp, Cluster, CommittedOffset, ConfigResource, GroupFilter, NewPartitions, NewTopic,
    OffsetSpec, RecordsToDelete, Result,
};

fn send<T: Send>(future: T) -> T {
    future
}

fn shared<T: Clone + Send + Sync + 'static>() {}

#[test]
fn a_handle_may_be_shared_between_threads() {
    shared::<Admin>();
    assert!(size_of::<Result<Vec<(String, Result<()>)>>>() <= 64);
}

/// Exists to be compiled.
async fn every_call(cluster: Cluster) -> Result<()> {
    let admin = Admin::new(cluster).with_timeout(std::time::Duration::from_secs(5));
    let owned = ("orders".to_owned(), 0);
    send(admin.create_topics([NewTopic::new("orders").partitions(3)])).await?;
    send(admin.create_topics(vec![NewTopic::new("placed").assignment(vec![vec![1, 2]])])).await?;
    send(admin.validate_topics([NewTopic::new(String::from("orders")).replication_factor(1)])).await?;
    send(admin.create_partitions([("orders", 6)])).await?;
    send(admin.create_partitions([("orders", NewPartitions::increase_to(6).assignment([[1], [2]]))])).await?;
    send(admin.validate_partitions(vec![("orders".to_owned(), 6)])).await?;
    send(admin.delete_topics(["orders"])).await?;
    send(admin.delete_topics(vec!["orders".to_owned()])).await?;
    send(admin.describe_topics(["orders"])).await?;
    send(admin.list_topics()).await?;
    send(admin.describe_cluster()).await?;
    send(admin.delete_records([(("orders", 0), 5)])).await?;
    send(admin.delete_records([(owned.clone(), RecordsToDelete::all())])).await?;
    send(admin.list_offsets([(("orders", 0), OffsetSpec::Latest)])).await?;
    send(admin.list_committed_offsets([(owned.clone(), OffsetSpec::Timestamp(5))])).await?;
    send(admin.describe_configs([ConfigResource::topic("orders"), ConfigResource::broker(1)])).await?;
    let ops = [AlterConfigOp::set("a", "b"), AlterConfigOp::delete("c")];
    send(admin.incremental_alter_configs([(ConfigResource::group("g"), ops.clone())])).await?;
    send(admin.incremental_alter_configs(vec![(ConfigResource::all_brokers(), ops.to_vec())])).await?;
    send(admin.validate_configs([(ConfigResource::client_metrics("m"), ops)])).await?;
    send(admin.list_groups()).await?.all()?;
    send(admin.list_groups_matching(GroupFilter::new())).await?;
    send(admin.describe_groups(["g"])).await?;
    send(admin.list_group_offsets("g")).await?;
    send(admin.list_group_offsets_of("g", [("orders", 0)])).await?;
    send(admin.alter_group_offsets("g", [(owned.clone(), CommittedOffset::new(5))])).await?;
    send(admin.delete_group_offsets("g", [owned])).await?;
    send(admin.delete_groups(["g".to_owned()])).await?;
    send(admin.remove_members("g", ["instance"])).await?;
    send(admin.remove_all_members("g")).await?;
    Ok(())
}
