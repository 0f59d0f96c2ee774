//! Reads a topic from a secured cluster, configured from outside: a properties file by Java's or librdkafka's names, or
//! environment variables (`KAFKA_BOOTSTRAP_SERVERS` is `bootstrap.servers`).
//!
//! ```sh
//! cargo run --example secure -- orders client.properties
//! KAFKA_BOOTSTRAP_SERVERS=one:9093 KAFKA_SECURITY_PROTOCOL=SSL KAFKA_SSL_CA_LOCATION=ca.pem cargo run --example secure -- orders
//! ```

use std::env;

use kafka_consume::{
    Cluster, ClusterConfig, Consumer, ConsumerConfig, Error, ErrorKind, Position, parse_properties,
};

fn settings(file: Option<&str>) -> Result<Vec<(String, String)>, Error> {
    if let Some(file) = file {
        return Ok(parse_properties(&std::fs::read_to_string(file).map_err(Error::other)?));
    }
    let ours = env::vars().filter_map(|(name, value)| {
        let name = name.strip_prefix("KAFKA_")?.to_ascii_lowercase().replace('_', ".");
        Some((name, value))
    });
    Ok(ours.collect())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (topic, file) = match arguments.as_slice() {
        [topic] => (topic, None),
        [topic, file] => (topic, Some(file.as_str())),
        _ => return Err(Error::other("usage: secure TOPIC [PROPERTIES FILE]")),
    };
    let settings = settings(file)?;
    let cluster = ClusterConfig::from_properties(settings.clone())?;
    let config = ConsumerConfig::from_properties(settings)?;

    let cluster = match Cluster::connect_with(cluster).await {
        Ok(cluster) => cluster,
        // What no later attempt will cure. Its text says what to change; no password is in it.
        Err(error) if matches!(error.kind(), ErrorKind::Authentication | ErrorKind::Tls) => {
            eprintln!("check the security settings: {error}");
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    let partitions = cluster.partitions(topic).await?;
    let mut consumer = Consumer::new(cluster, config);
    let all = partitions.into_iter().map(|partition| (topic.clone(), partition));
    consumer.assign(all, Position::Earliest).await?;
    while !consumer.caught_up() {
        for record in &consumer.poll().await? {
            let value = record.value.map(String::from_utf8_lossy).unwrap_or_default();
            println!("{}-{} {}: {value}", record.topic, record.partition, record.offset);
        }
    }
    consumer.close().await
}
