//! The same clusters in containers, through `testcontainers`: for machines with a container engine and no
//! JDK.
//!
//! What it is not: tested. The machines that the kit is developed on have no container engine; that this
//! compiles is all that is checked. It cannot add listeners, format storage in another way, or freeze nodes.
//!
//! One container per node on one network. Clients reach a node on a port of 127.0.0.1, nodes reach each other
//! by name.

use testcontainers::core::{ContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};

use super::builder::Builder;
use super::config::voters;
use super::machine::{Machine, free_ports};
use super::storage::CLUSTER_ID;
use crate::failure::{Doing, Failure, Result};

const CONTROLLER: u16 = 9093;
const INTERNAL: u16 = 9094;

/// A cluster of containers; dropping it removes them.
pub(crate) struct Docker {
    ports: Vec<u16>,
    containers: Vec<ContainerAsync<GenericImage>>,
    version: String,
    _machine: std::sync::Arc<Machine>,
}

impl Docker {
    pub(crate) async fn start(builder: &Builder) -> Result<Self> {
        if !builder.listeners.is_empty() || !builder.format.is_empty() || !builder.jvm.is_empty() {
            return Err(Failure::new("containers take no extra listeners, format arguments or JVM flags"));
        }
        let machine = Machine::acquire().await?;
        let nodes = usize::try_from(builder.nodes).doing(|| "count the nodes".to_owned())?;
        let ports = free_ports(nodes)?;
        let network = format!("testkit-{:08x}", fastrand::u32(..));
        let mut starting = Vec::new();
        for (node, &port) in (1..).zip(&ports) {
            starting.push(image(builder, node, port, &network).start());
        }
        // All at once: a node of three is ready only when the quorum is.
        let containers = futures::future::try_join_all(starting).await;
        let containers = containers.doing(|| "start containers".to_owned())?;
        Ok(Self { ports, containers, version: builder.version.clone(), _machine: machine })
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = i32> + use<> {
        1..=i32::try_from(self.ports.len()).unwrap_or(i32::MAX)
    }

    pub(crate) fn address(&self, node: i32) -> Option<String> {
        let index = usize::try_from(node.checked_sub(1)?).ok()?;
        self.ports.get(index).map(|port| format!("127.0.0.1:{port}"))
    }

    pub(crate) async fn stop(&self, node: i32) -> Result<()> {
        self.container(node)?.stop().await.doing(|| format!("stop node {node}"))
    }

    pub(crate) async fn restart(&self, node: i32) -> Result<()> {
        let container = self.container(node)?;
        // Stopping a stopped container is no error worth a test's time.
        let _ = container.stop().await;
        container.start().await.doing(|| format!("start node {node}"))
    }

    fn container(&self, node: i32) -> Result<&ContainerAsync<GenericImage>> {
        let index = node.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let found = index.and_then(|index| self.containers.get(index));
        found.ok_or_else(|| Failure::new(format!("no node {node}")))
    }
}

fn image(
    builder: &Builder,
    node: i32,
    port: u16,
    network: &str,
) -> testcontainers::ContainerRequest<GenericImage> {
    let host = |node: i32| format!("{network}-{node}");
    let is_voter = node <= voters(builder.nodes);
    let quorum: Vec<String> =
        (1..=voters(builder.nodes)).map(|voter| format!("{voter}@{}:{CONTROLLER}", host(voter))).collect();
    let replicas = builder.nodes.clamp(1, 3).to_string();
    let mut listeners = format!("PLAINTEXT://0.0.0.0:{port},INTERNAL://0.0.0.0:{INTERNAL}");
    if is_voter {
        listeners.push_str(&format!(",CONTROLLER://0.0.0.0:{CONTROLLER}"));
    }
    let mut properties: Vec<(String, String)> = [
        ("process.roles", if is_voter { "broker,controller" } else { "broker" }),
        ("node.id", &node.to_string()),
        ("listeners", &listeners),
        (
            "advertised.listeners",
            &format!("PLAINTEXT://127.0.0.1:{port},INTERNAL://{}:{INTERNAL}", host(node)),
        ),
        ("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT"),
        ("controller.listener.names", "CONTROLLER"),
        ("inter.broker.listener.name", "INTERNAL"),
        ("controller.quorum.voters", &quorum.join(",")),
        ("auto.create.topics.enable", "false"),
        ("offsets.topic.replication.factor", &replicas),
        ("offsets.topic.num.partitions", "3"),
        ("transaction.state.log.replication.factor", &replicas),
        ("transaction.state.log.num.partitions", "3"),
        ("transaction.state.log.min.isr", "1"),
        ("group.initial.rebalance.delay.ms", "0"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .to_vec();
    if let Some(rack) = builder.racks.get(&node) {
        properties.push(("broker.rack".to_owned(), rack.clone()));
    }
    properties.extend(builder.properties.iter().cloned());
    properties.extend(builder.node_properties.get(&node).into_iter().flatten().cloned());

    let mut request = GenericImage::new("apache/kafka", &builder.version)
        .with_wait_for(WaitFor::message_on_stdout("Kafka Server started"))
        .with_network(network)
        .with_container_name(host(node))
        .with_mapped_port(port, ContainerPort::Tcp(port))
        .with_startup_timeout(builder.patience)
        .with_env_var("CLUSTER_ID", CLUSTER_ID);
    for (key, value) in properties {
        request = request.with_env_var(variable(&key), value);
    }
    request
}

/// The image's name of a server property: KAFKA_, upper case, dots as underscores (underscores and dashes
/// doubled and tripled).
fn variable(key: &str) -> String {
    let name: String = key
        .chars()
        .map(|c| match c {
            '.' => "_".to_owned(),
            '_' => "__".to_owned(),
            '-' => "___".to_owned(),
            other => other.to_ascii_uppercase().to_string(),
        })
        .collect();
    format!("KAFKA_{name}")
}

#[cfg(test)]
mod tests {
    use super::variable;

    #[test]
    fn properties_become_the_images_variables() {
        assert_eq!(variable("log.retention.ms"), "KAFKA_LOG_RETENTION_MS");
        assert_eq!(variable("a-b_c"), "KAFKA_A___B__C");
    }
}
