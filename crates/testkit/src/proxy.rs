//! A fault-injecting TCP proxy in front of brokers, and a witness of what goes over the wire.
//!
//! ```no_run
//! # async fn f(kafka: testkit::Kafka) -> testkit::Result<()> {
//! use kafka_protocol::messages::{ApiKey, FetchRequest};
//! use testkit::Proxy;
//!
//! let proxy = Proxy::start(&kafka.bootstrap()).await?;
//! // The next two fetch answers with orders-0 in them say NOT_LEADER_OR_FOLLOWER.
//! let errors = proxy.on(ApiKey::Fetch).times(2).error_at("orders", 0, 6);
//! // One fetch in ten of node 1 loses its answer.
//! proxy.on(ApiKey::Fetch).node(1).chance(0.1, 42).cut_after();
//! // No answer tells a session id.
//! proxy.on(ApiKey::Fetch).edit::<FetchRequest>(|_version, answer| {
//!     answer.session_id = 0;
//!     true
//! });
//! // … run the client under test against proxy.bootstrap() …
//! errors.hit(2).await?;
//! let fetches = proxy.log().into_iter().filter(|seen| seen.api == ApiKey::Fetch as i16);
//! # let _ = fetches; Ok(()) }
//! ```
//!
//! One listener per broker. Host and port are rewritten in Metadata, FindCoordinator, DescribeCluster and the
//! node endpoints of Fetch and Produce answers, so that all traffic stays inside; every other answer that no
//! rule changes passes byte for byte. Rules may come and go while it runs.
//!
//! States of a connection: passing, stalled (bytes are taken, nothing is answered, no FIN), closed.
//! Invariant: answers leave in the order of their requests, as from a broker, so a delayed or held answer
//! holds up those behind it on its connection and nothing else.
//!
//! What it is not: for TLS or SASL (it reads frames), or fast.

mod connection;
mod edit;
mod errors;
mod log;
mod nodes;
mod rewrite;
mod rule;
mod state;

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::ApiKey;

pub use log::{Seen, TopicRef};
pub use rule::{Rule, RuleHandle, Then};
use state::Shared;

use crate::failure::Result;

/// A running proxy. Dropping it closes its listeners and connections.
pub struct Proxy {
    shared: Arc<Shared>,
}

impl Proxy {
    /// Opens one listener for each broker that the metadata of `bootstrap` names, on the current runtime.
    pub async fn start(bootstrap: &str) -> Result<Self> {
        let shared = Shared::new();
        let proxy = Self { shared };
        proxy.shared.learn(bootstrap).await?;
        Ok(proxy)
    }

    /// The proxy's addresses of all brokers, "host:port,host:port".
    pub fn bootstrap(&self) -> String {
        self.shared.nodes.bootstrap()
    }

    /// The proxy's address of one broker.
    pub fn node(&self, node: i32) -> Result<String> {
        self.shared.nodes.address(node)
    }

    /// The beginning of a rule for one API.
    pub fn on(&self, api: ApiKey) -> Rule {
        self.on_api(api as i16)
    }

    /// The beginning of a rule for an API by its number.
    pub fn on_api(&self, api: i16) -> Rule {
        Rule::new(Arc::clone(&self.shared), Some(api))
    }

    /// The beginning of a rule for every API.
    pub fn on_any(&self) -> Rule {
        Rule::new(Arc::clone(&self.shared), None)
    }

    /// Takes all rules away; what they hold is released.
    pub fn clear_rules(&self) {
        self.shared.rules.clear();
    }

    /// Closes every connection to a broker now. New ones are accepted.
    pub fn cut(&self, node: i32) {
        self.shared.cut(Some(node));
    }

    /// Closes every connection now.
    pub fn cut_all(&self) {
        self.shared.cut(None);
    }

    /// From now on a broker takes bytes and answers nothing, on old and new connections, without a FIN.
    ///
    /// Connections stalled so stay stalled after [`Proxy::heal`]; only new ones pass.
    pub fn blackhole(&self, node: i32) {
        self.shared.set_blackhole(node, true);
    }

    /// New connections to a broker pass again.
    pub fn heal(&self, node: i32) {
        self.shared.set_blackhole(node, false);
    }

    /// Refuses connections to a broker and closes those it has. Dropping the future leaves some of it undone.
    pub async fn down(&self, node: i32) -> Result<()> {
        self.shared.nodes.close(node).await?;
        self.shared.cut(Some(node));
        Ok(())
    }

    /// Accepts connections to a broker again, on its old port.
    pub fn up(&self, node: i32) -> Result<()> {
        self.shared.listen_again(node)
    }

    /// Gives a broker another port, which answers advertise from now on. The old port stays open and passes.
    /// The new address is the result.
    pub fn readdress(&self, node: i32) -> Result<String> {
        self.shared.readdress(node)
    }

    /// Every request seen so far, in the order of their arrival.
    pub fn log(&self) -> Vec<Seen> {
        self.shared.log.all()
    }

    /// Forgets the requests seen so far.
    pub fn clear_log(&self) {
        self.shared.log.clear();
    }

    /// How many requests of an API have been seen.
    pub fn count(&self, api: ApiKey) -> usize {
        self.shared.log.count(api as i16)
    }

    /// Open client connections to a broker, or to all.
    pub fn connections(&self, node: Option<i32>) -> usize {
        self.shared.connections(node)
    }

    /// Waits until `enough` of the log, for at most `patience`.
    pub async fn wait_for(&self, patience: Duration, enough: impl Fn(&[Seen]) -> bool) -> Result<Vec<Seen>> {
        state::wait(patience, "the proxy's log", || {
            let log = self.log();
            enough(&log).then_some(log)
        })
        .await
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.rules.clear();
        self.shared.close();
    }
}
