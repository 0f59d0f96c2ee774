//! A group looked after from outside, on an embedded broker in this process: how far behind it is, where it starts,
//! how long its members may be silent, and its end.
//!
//! ```text
//! cargo run -p kafka-admin --example group_admin
//! ```

use std::time::Duration;

use kafka_admin::{
    Admin, AlterConfigOp, Cluster, CommittedOffset, ConfigResource, NewTopic, OffsetSpec, Result,
};
use kafka_consume::{ConsumerConfig, GroupConsumer};
use testkit::embedded::Embedded;

const GROUP: &str = "billing";
const TOPIC: &str = "orders";
const PARTITIONS: i32 = 3;

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let broker = Embedded::tcp(3).await?;
    let cluster = Cluster::connect_with(broker.config()).await?;
    let admin = Admin::new(cluster.clone());

    for (topic, result) in admin.create_topics([NewTopic::new(TOPIC).partitions(PARTITIONS)]).await? {
        println!("made {topic} with the id {}", result?.id.unwrap_or_default());
    }
    for partition in 0..PARTITIONS {
        broker.append_records(TOPIC, partition, (0..100).map(|n| (format!("order-{n}"), format!("{n}"))));
    }

    println!("\na member reads a part of it");
    let config = ConsumerConfig::new().max_poll_records(80);
    let mut member = GroupConsumer::subscribe(cluster, config, GROUP, [TOPIC]).await?;
    let mut read = 0;
    while read < 200 {
        read += member.poll().await?.len();
    }
    describe(&admin).await?;

    println!("\nwhile it is there, nobody else sets offsets:");
    for (_, result) in admin.alter_group_offsets(GROUP, [((TOPIC, 0), CommittedOffset::new(0))]).await? {
        match result {
            Ok(()) => println!("  they were set"),
            Err(error) => println!("  {error}"),
        }
    }
    member.leave().await?;
    println!("\nit leaves; the group is this far:");
    lag(&admin).await?;

    println!("\nevery partition back to its beginning:");
    let starts = (0..PARTITIONS).map(|index| ((TOPIC, index), OffsetSpec::Earliest));
    let mut offsets = Vec::new();
    for (partition, found) in admin.list_offsets(starts).await? {
        offsets.push((partition, CommittedOffset::new(found?.map_or(0, |found| found.offset))));
    }
    for (_, result) in admin.alter_group_offsets(GROUP, offsets).await? {
        result?;
    }
    lag(&admin).await?;

    println!("\na session of 10 s for this group alone:");
    session(&admin).await?;
    println!("and once an operator has lowered the broker's floor:");
    broker.set_group_session_limits(Duration::from_secs(6), Duration::from_secs(60));
    session(&admin).await?;

    println!("\nand away with it:");
    for (group, result) in admin.delete_groups([GROUP, "nobody"]).await? {
        match result {
            Ok(()) => println!("  {group} is deleted"),
            Err(error) => println!("  {error}"),
        }
    }
    Ok(())
}

/// Who is in the group.
async fn describe(admin: &Admin) -> Result<()> {
    for (group, described) in admin.describe_groups([GROUP]).await? {
        let described = described?;
        println!("{group}: {}, {}, at node {}", described.group_type, described.state, described.coordinator);
        for member in described.members {
            println!("  {} from {} has {:?}", member.member_id, member.host, member.assignment);
        }
    }
    Ok(())
}

/// A table of where the group is and where the logs end.
async fn lag(admin: &Admin) -> Result<()> {
    let partitions = || (0..PARTITIONS).map(|index| (TOPIC, index));
    let stored = admin.list_group_offsets_of(GROUP, partitions()).await?;
    let ends = partitions().map(|partition| (partition, OffsetSpec::Latest));
    let ends = admin.list_committed_offsets(ends).await?;
    println!("  {:<12} {:>8} {:>8} {:>8}", "partition", "offset", "end", "lag");
    for (((topic, index), offset), (_, end)) in stored.into_iter().zip(ends) {
        let end = end?.map_or(0, |end| end.offset);
        match offset? {
            Some(stored) => {
                let behind = end - stored.offset;
                println!("  {:<12} {:>8} {end:>8} {behind:>8}", format!("{topic}-{index}"), stored.offset);
            }
            None => println!("  {:<12} {:>8} {end:>8} {end:>8}", format!("{topic}-{index}"), "none"),
        }
    }
    Ok(())
}

/// Shortens the session timeout of the group, or shows why not.
async fn session(admin: &Admin) -> Result<()> {
    let group = ConfigResource::group(GROUP);
    let shorter = [AlterConfigOp::set("consumer.session.timeout.ms", "10000")];
    for (_, result) in admin.incremental_alter_configs([(group.clone(), shorter)]).await? {
        if let Err(error) = result {
            println!("  {error}");
        }
    }
    for (group, config) in admin.describe_configs([group]).await? {
        let config = config?;
        println!(
            "  {group}: consumer.session.timeout.ms is {:?}",
            config.value("consumer.session.timeout.ms")
        );
    }
    Ok(())
}
