//! What can be said of the look-ups without a broker.

use kafka_meta::Cluster;
use kafka_meta::client::Via;
use tokio::time::Instant;

use super::{ask_node, find};
use crate::Visibility;
use crate::epochs::ask_epochs;

#[test]
fn the_futures_are_send() {
    fn send<T: Send>(_: &T) {}
    fn probe(cluster: &Cluster, via: &Via, deadline: Instant) {
        send(&find(cluster, Visibility::All, Vec::new(), deadline));
        send(&ask_node(cluster, via, 1, Visibility::All, Vec::new(), deadline));
        send(&ask_epochs(cluster, via, 1, Vec::new(), deadline));
    }
    let _ = probe;
}
