//! Pure core: the server properties of each node, from what a test asked for.
//!
//! Defaults are those of a quick and small broker; whatever a test sets wins. Invariant: a test may override
//! any property, those that this file computes included.

use std::collections::BTreeMap;

use super::builder::Builder;

/// The ports of one node.
#[derive(Debug, Clone)]
pub(crate) struct Ports {
    pub(crate) broker: u16,
    pub(crate) controller: u16,
    /// Of the extra listeners, in the builder's order.
    pub(crate) extra: Vec<u16>,
}

/// Which nodes vote: one or three, so that the other nodes of a cluster may stop without stopping the quorum.
pub(crate) fn voters(nodes: i32) -> i32 {
    if nodes >= 3 { 3 } else { 1 }
}

/// The text of `server.properties`.
pub(crate) fn server_properties(builder: &Builder, node: i32, ports: &[Ports], log_dir: &str) -> String {
    let mut all = defaults(builder, node, log_dir);
    let index = usize::try_from(node - 1).unwrap_or_default();
    if let Some(own) = ports.get(index) {
        listeners(&mut all, builder, node, own);
    }
    let quorum: Vec<String> = (1..=voters(builder.nodes))
        .zip(ports)
        .map(|(voter, ports)| format!("{voter}@127.0.0.1:{}", ports.controller))
        .collect();
    all.insert("controller.quorum.voters".to_owned(), quorum.join(","));
    if let Some(rack) = builder.racks.get(&node) {
        all.insert("broker.rack".to_owned(), rack.clone());
    }
    if !builder.racks.is_empty() {
        let selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
        all.insert("replica.selector.class".to_owned(), selector.to_owned());
    }
    let own = builder.node_properties.get(&node);
    for (key, value) in builder.properties.iter().chain(own.into_iter().flatten()) {
        all.insert(key.clone(), value.clone());
    }
    all.iter().map(|(key, value)| format!("{key}={}\n", value.replace('\\', "\\\\"))).collect()
}

fn defaults(builder: &Builder, node: i32, log_dir: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut set = |key: &str, value: &str| {
        all.insert(key.to_owned(), value.to_owned());
    };
    let replicas = builder.nodes.clamp(1, 3).to_string();
    set("process.roles", if node <= voters(builder.nodes) { "broker,controller" } else { "broker" });
    set("node.id", &node.to_string());
    set("log.dirs", log_dir);
    set("auto.create.topics.enable", "false");
    set("offsets.topic.replication.factor", &replicas);
    set("transaction.state.log.replication.factor", &replicas);
    // Tests kill nodes: with one survivor the internal topics must still take writes.
    set("transaction.state.log.min.isr", "1");
    // Few, so that a start is quick; three, so that groups spread over three nodes.
    set("offsets.topic.num.partitions", "3");
    set("transaction.state.log.num.partitions", "3");
    set("group.initial.rebalance.delay.ms", "0");
    set("num.network.threads", "2");
    set("num.io.threads", "4");
    set("background.threads", "2");
    // 128 MB by default, allocated at start.
    set("log.cleaner.dedupe.buffer.size", "2097152");
    set("controlled.shutdown.retry.backoff.ms", "500");
    all
}

fn listeners(all: &mut BTreeMap<String, String>, builder: &Builder, node: i32, ports: &Ports) {
    let mut bound = vec![format!("PLAINTEXT://127.0.0.1:{}", ports.broker)];
    let mut map = vec!["CONTROLLER:PLAINTEXT".to_owned(), "PLAINTEXT:PLAINTEXT".to_owned()];
    for ((name, protocol), port) in builder.listeners.iter().zip(&ports.extra) {
        bound.push(format!("{name}://127.0.0.1:{port}"));
        map.push(format!("{name}:{protocol}"));
    }
    all.insert("advertised.listeners".to_owned(), bound.join(","));
    if node <= voters(builder.nodes) {
        bound.push(format!("CONTROLLER://127.0.0.1:{}", ports.controller));
    }
    all.insert("listeners".to_owned(), bound.join(","));
    all.insert("listener.security.protocol.map".to_owned(), map.join(","));
    all.insert("controller.listener.names".to_owned(), "CONTROLLER".to_owned());
    all.insert("inter.broker.listener.name".to_owned(), "PLAINTEXT".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(nodes: u16) -> Vec<Ports> {
        (0..nodes).map(|n| Ports { broker: 100 + n, controller: 200 + n, extra: vec![300 + n] }).collect()
    }

    #[test]
    fn what_a_test_sets_wins_and_a_nodes_own_wins_over_all_nodes() {
        let builder = Builder::new()
            .nodes(2)
            .property("auto.create.topics.enable", "true")
            .property("a", "1")
            .node_property(2, "a", "2");
        let first = server_properties(&builder, 1, &ports(2), "/d");
        let second = server_properties(&builder, 2, &ports(2), "/d");
        assert!(first.contains("auto.create.topics.enable=true\n"));
        assert!(first.contains("\na=1\n") || first.starts_with("a=1\n"));
        assert!(second.contains("a=2\n") && !second.contains("a=1\n"));
    }

    #[test]
    fn two_nodes_have_one_voter_and_four_have_three() {
        let two = server_properties(&Builder::new().nodes(2), 2, &ports(2), "/d");
        assert!(two.contains("process.roles=broker\n"));
        assert!(two.contains("controller.quorum.voters=1@127.0.0.1:200\n"));
        assert!(!two.contains("CONTROLLER://"));
        let four = server_properties(&Builder::new().nodes(4), 1, &ports(4), "/d");
        assert!(four.contains("controller.quorum.voters=1@127.0.0.1:200,2@127.0.0.1:201,3@127.0.0.1:202\n"));
    }

    #[test]
    fn racks_bring_the_rack_aware_selector() {
        let text = server_properties(&Builder::new().rack(1, "a"), 1, &ports(1), "/d");
        assert!(text.contains("broker.rack=a\n") && text.contains("RackAwareReplicaSelector"));
    }

    #[test]
    fn extra_listeners_are_advertised() {
        let text = server_properties(&Builder::new().listener("SASLP", "SASL_PLAINTEXT"), 1, &ports(1), "/d");
        assert!(text.contains("SASLP://127.0.0.1:300"));
        assert!(text.contains("SASLP:SASL_PLAINTEXT"));
    }
}
