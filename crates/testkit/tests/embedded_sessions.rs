//! The embedded cluster's fetch sessions, row by row.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::Arc;

use kafka_meta::transport::Connector;
use testkit::embedded::Embedded;

mod behaviours;
use behaviours::raw::RawBroker;
use behaviours::sessions;

struct InMemory(Embedded);

impl RawBroker for InMemory {
    fn bootstrap(&self) -> String {
        self.0.bootstrap()
    }

    fn connector(&self) -> Arc<dyn Connector> {
        self.0.connector()
    }
}

macro_rules! rows {
    ($($module:ident :: $row:ident),* $(,)?) => {
        $(#[tokio::test(start_paused = true)]
        async fn $row() {
            $module::$row(&mut InMemory(Embedded::start(1))).await;
        })*
    };
}

rows! {
    sessions::row_a_full_request_opens_a_session_and_lists_every_partition,
}
