//! Administration of Kafka: topics, records, configuration, groups and their offsets.
//!
//! [`Admin`] asks whoever can answer: the controller, a partition's leader, a group's coordinator, every broker.
//! Each operation takes any number of items and answers **one result per item, in the order asked**: one topic
//! that is refused does not hide what became of the others. The call as a whole is an error only where nobody
//! could be asked about anything.
//!
//! What it is not: a consumer or a producer. It keeps no state between calls, holds no membership, and caches
//! nothing but what its [`Cluster`] knows.
//!
//! ```no_run
//! # async fn example() -> kafka_admin::Result<()> {
//! use kafka_admin::{Admin, Cluster, NewTopic};
//!
//! let admin = Admin::new(Cluster::connect("127.0.0.1:9092").await?);
//! for (topic, result) in admin.create_topics([NewTopic::new("orders").partitions(6)]).await? {
//!     match result {
//!         Ok(created) => println!("{topic} has the id {:?}", created.id),
//!         Err(error) => eprintln!("{error}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What a caller can rely on:
//! - Every call ends: by its timeout (60 s, [`Admin::with_timeout`]) at the latest.
//! - What passes by itself (a controller or leader that moves, a coordinator that loads, a lost connection) is
//!   asked again with back-off; a refusal is returned at once, with the broker's own words.
//! - When the answer to a change was lost on the way and the next attempt is refused, the error says that the
//!   first one may have been carried out.
//! - Dropping the future of any call abandons it: what has been sent may still be carried out, nothing else is
//!   sent, and no later call is disturbed.

mod admin;
mod cluster;
mod configs;
mod groups;
mod listing;
mod members;
mod offsets;
mod plan;
mod records;
mod run;
mod topics;
mod wire;

pub use admin::Admin;
pub use cluster::{ClusterDescription, Node};
pub use configs::{
    AlterConfigOp, Config, ConfigEntry, ConfigResource, ConfigSource, ConfigSynonym, ResourceType,
};
pub use groups::{GroupDescription, GroupState, GroupType, MemberDescription};
pub use kafka_meta::{Cluster, ClusterConfig, CommittedOffset, Error, ErrorCode, ErrorKind, Result};
pub use listing::{GroupFilter, GroupListing, GroupListings};
pub use records::{ListedOffset, OffsetSpec, RecordsToDelete};
pub use topics::{
    CreatedTopic, NewPartitions, NewTopic, PartitionDescription, TopicDescription, TopicListing,
};
pub use uuid::Uuid;

// The samples in the guide are compiled with the tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/admin.md")]
    mod admin {}
}
