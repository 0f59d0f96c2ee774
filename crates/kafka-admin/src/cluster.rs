//! The cluster as a whole (DescribeCluster).

use kafka_meta::wire::protocol::messages::DescribeClusterRequest;
use kafka_meta::{Error, ErrorKind, Result};

use crate::admin::Admin;
use crate::plan::{Plan, Route, Subject};
use crate::wire::{check, optional};

const OPERATION: &str = "describe the cluster";

/// A broker and its address (Java: `Node`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Node {
    /// Its node id.
    pub id: i32,
    /// Host name or address, as the listener asked advertises it.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The rack it is in (`broker.rack`).
    pub rack: Option<String>,
}

/// The brokers of a cluster (Java: `DescribeClusterResult`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClusterDescription {
    /// The cluster's id.
    pub cluster_id: String,
    /// The node that takes requests for the controller. Under KRaft this is some broker, not the controller.
    pub controller: Option<i32>,
    /// The brokers that are up, by node id.
    pub nodes: Vec<Node>,
}

impl Admin {
    /// The cluster's id and its brokers (Java: `describeCluster`; KIP-700). Asked of one broker, now; what
    /// a [`Cluster`](kafka_meta::Cluster) knows may be some minutes old.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// `Timeout`, and whatever keeps a broker from being asked.
    pub async fn describe_cluster(&self) -> Result<ClusterDescription> {
        let call = self.call();
        let plan = Plan::reading(OPERATION, vec![(Subject::Cluster, Route::Any)]);
        let results = call.carry_out(plan, |batch| {
            let call = &call;
            async move {
                let request = DescribeClusterRequest::default();
                let (_, answer) = call.send(batch.to, batch.deadline, 0, request).await?;
                let result = check(answer.error_code, answer.error_message).map(|()| {
                    let mut nodes: Vec<Node> = answer
                        .brokers
                        .into_iter()
                        .filter_map(|broker| {
                            Some(Node {
                                id: broker.broker_id.0,
                                host: broker.host.to_string(),
                                port: u16::try_from(broker.port).ok()?,
                                rack: optional(broker.rack),
                            })
                        })
                        .collect();
                    nodes.sort_by_key(|node| node.id);
                    ClusterDescription {
                        cluster_id: answer.cluster_id.to_string(),
                        controller: Some(answer.controller_id.0).filter(|id| *id >= 0),
                        nodes,
                    }
                });
                Ok(vec![(0, result)])
            }
        });
        let mut results = results.await?;
        results.pop().unwrap_or_else(|| Err(Error::new(ErrorKind::Other, OPERATION)))
    }
}
