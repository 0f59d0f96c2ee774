//! The edits that keep all traffic inside: a broker's own address in an answer becomes the proxy's address of
//! it.

use bytes::Bytes;
use kafka_protocol::messages::{
    ApiKey, BrokerId, DescribeClusterResponse, FetchResponse, FindCoordinatorResponse, MetadataResponse,
    ProduceResponse,
};
use kafka_protocol::protocol::{Decodable, StrBytes};

use super::edit::encode;
use super::state::Shared;

/// The body with the proxy's addresses, or `None` when it names no address. `shared` learns brokers and topic
/// ids.
pub(super) fn addresses(
    shared: &std::sync::Arc<Shared>,
    api: i16,
    version: i16,
    body: &Bytes,
) -> Option<Bytes> {
    let mut rest = body.clone();
    let inside = |node: BrokerId, host: &mut StrBytes, port: &mut i32| {
        let (own_host, own_port) = shared.inside(node.0, host, *port)?;
        *host = StrBytes::from_string(own_host);
        *port = own_port;
        Some(())
    };
    match ApiKey::try_from(api).ok()? {
        ApiKey::Metadata => {
            let mut answer = MetadataResponse::decode(&mut rest, version).ok()?;
            for topic in &answer.topics {
                if let Some(name) = &topic.name {
                    shared.topics.learn(name, topic.topic_id);
                }
            }
            for broker in &mut answer.brokers {
                inside(broker.node_id, &mut broker.host, &mut broker.port);
            }
            encode(&answer, version)
        }
        ApiKey::FindCoordinator => {
            let mut answer = FindCoordinatorResponse::decode(&mut rest, version).ok()?;
            inside(answer.node_id, &mut answer.host, &mut answer.port);
            for found in &mut answer.coordinators {
                inside(found.node_id, &mut found.host, &mut found.port);
            }
            encode(&answer, version)
        }
        ApiKey::DescribeCluster => {
            let mut answer = DescribeClusterResponse::decode(&mut rest, version).ok()?;
            for broker in &mut answer.brokers {
                inside(broker.broker_id, &mut broker.host, &mut broker.port);
            }
            encode(&answer, version)
        }
        ApiKey::Fetch if version >= 16 => {
            let mut answer = FetchResponse::decode(&mut rest, version).ok()?;
            for endpoint in &mut answer.node_endpoints {
                inside(endpoint.node_id, &mut endpoint.host, &mut endpoint.port);
            }
            if answer.node_endpoints.is_empty() { None } else { encode(&answer, version) }
        }
        ApiKey::Produce if version >= 10 => {
            let mut answer = ProduceResponse::decode(&mut rest, version).ok()?;
            for endpoint in &mut answer.node_endpoints {
                inside(endpoint.node_id, &mut endpoint.host, &mut endpoint.port);
            }
            if answer.node_endpoints.is_empty() { None } else { encode(&answer, version) }
        }
        _ => None,
    }
}
