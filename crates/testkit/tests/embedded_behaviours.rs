//! Every behaviour row on the embedded cluster, under the paused clock.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::Arc;

use futures::future::BoxFuture;
use kafka_meta::transport::Connector;
use testkit::embedded::Embedded;

mod behaviours;
use behaviours::raw::RawBroker;
use behaviours::{
    classic_groups, config_admin, consumer_groups, coordinated, epochs, group_admin, listing, offsets,
    producers, ranges, sessions, topic_admin, topic_ids, transactions, versions,
};

struct InMemory(Embedded);

impl RawBroker for InMemory {
    fn bootstrap(&self) -> String {
        self.0.bootstrap()
    }

    fn connector(&self) -> Arc<dyn Connector> {
        self.0.connector()
    }

    fn racks(&self) -> Vec<String> {
        (1..=3).map(|node| format!("r{node}")).collect()
    }

    fn move_leader<'a>(&'a mut self, topic: &'a str, to: i32) -> BoxFuture<'a, ()> {
        Box::pin(async move { assert!(self.0.move_leader(topic, 0, to)) })
    }
}

fn cluster() -> InMemory {
    let cluster = Embedded::start(3);
    cluster.set_rack_aware(true);
    for node in 1..=3 {
        cluster.set_rack(node, &format!("r{node}"));
    }
    InMemory(cluster)
}

macro_rules! rows {
    ($($module:ident :: $row:ident),* $(,)?) => {
        $(#[tokio::test(start_paused = true)]
        async fn $row() {
            $module::$row(&mut cluster()).await;
        })*
    };
}

every_row!(rows);

macro_rules! names {
    ($($module:ident :: $row:ident),* $(,)?) => {
        const NAMES: &[&str] = &[$(stringify!($row)),*];
    };
}

every_row!(names);

#[test]
fn the_documentation_lists_every_row() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/embedded.md");
    let text = std::fs::read_to_string(path).unwrap();
    let listed: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("- `")?.strip_suffix('`')).collect();
    assert_eq!(listed, NAMES);
}
