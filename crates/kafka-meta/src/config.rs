//! How a cluster is reached. Infallible to build: what is wrong is reported by the first async call.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::net::Address;
use crate::transport::{Connector, Tcp};
use crate::{Error, ErrorKind, Result, Sasl};

/// Where the cluster is and how to talk to it.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    pub(crate) bootstrap: String,
    pub(crate) client_id: String,
    pub(crate) request_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) metadata_max_age: Duration,
    pub(crate) rack: Option<String>,
    pub(crate) runtime: Option<Handle>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::TlsConfig>,
    pub(crate) sasl: Option<Sasl>,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) max_frame_bytes: usize,
}

/// Above any answer a sane configuration can ask for, and below the 352 million a TLS alert reads as.
const MAX_FRAME_BYTES: usize = 256 * 1024 * 1024;

/// The longest time kept: callers write `Duration::MAX` for never, and adding that to a clock overflows.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

impl ClusterConfig {
    /// `bootstrap` is `"host:9092,host2:9092"`; an IPv6 address stands in brackets: `"[::1]:9092"`.
    pub fn new(bootstrap: &str) -> Self {
        ClusterConfig {
            bootstrap: bootstrap.to_owned(),
            client_id: "kafka-rs".to_owned(),
            request_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            metadata_max_age: Duration::from_secs(300),
            rack: None,
            runtime: None,
            #[cfg(feature = "tls")]
            tls: None,
            sasl: None,
            connector: Arc::new(Tcp),
            max_frame_bytes: MAX_FRAME_BYTES,
        }
    }

    /// The name the brokers log and set quotas by.
    pub fn with_client_id(mut self, id: impl Into<String>) -> Self {
        self.client_id = id.into();
        self
    }

    /// How long one request may take before its connection counts as dead (30 s).
    pub fn with_request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout.min(FOREVER);
        self
    }

    /// How long opening a connection may take, name resolution included (10 s).
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout.min(FOREVER);
        self
    }

    /// The oldest the picture of the cluster may get without being asked for anew (5 min).
    pub fn with_metadata_max_age(mut self, age: Duration) -> Self {
        self.metadata_max_age = age.min(FOREVER);
        self
    }

    /// The rack (availability zone) this client runs in; lets brokers name a nearer replica to read from.
    pub fn with_rack(mut self, rack: impl Into<String>) -> Self {
        self.rack = Some(rack.into()).filter(|rack| !rack.is_empty());
        self
    }

    /// Speaks TLS with every broker.
    #[cfg(feature = "tls")]
    pub fn with_tls(mut self, tls: crate::TlsConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Logs in to every broker.
    pub fn with_sasl(mut self, sasl: Sasl) -> Self {
        self.sasl = Some(sasl);
        self
    }

    /// Runs connections and background work on another runtime than the caller's, so that code that blocks
    /// the caller's runtime stops no heartbeat.
    pub fn with_runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Replaces TCP.
    #[doc(hidden)]
    pub fn with_connector(mut self, connector: Arc<dyn Connector>) -> Self {
        self.connector = connector;
        self
    }

    /// The largest answer accepted; a larger one ends the connection before anything is allocated for it.
    #[doc(hidden)]
    pub fn with_max_frame_bytes(mut self, bytes: usize) -> Self {
        self.max_frame_bytes = bytes;
        self
    }

    /// The bootstrap list, taken apart, if nothing in the configuration is wrong.
    pub(crate) fn addresses(&self) -> Result<Vec<Address>> {
        for (name, time) in
            [("request timeout", self.request_timeout), ("connect timeout", self.connect_timeout)]
        {
            if time.is_zero() {
                return Err(Error::new(ErrorKind::InvalidRequest, "connect")
                    .with_detail(format!("the {name} is zero: nothing could ever succeed")));
            }
        }
        let bad = |entry: &str| {
            Error::new(ErrorKind::InvalidRequest, "connect")
                .with_detail(format!("bootstrap servers: {entry:?} is not host:port"))
        };
        let entries = self.bootstrap.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let addresses = entries.map(|entry| address(entry).ok_or_else(|| bad(entry)));
        let addresses = addresses.collect::<Result<Vec<_>>>()?;
        if addresses.is_empty() { Err(bad(&self.bootstrap)) } else { Ok(addresses) }
    }

    /// The bootstrap list as given.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// The client id.
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// How long one request may take.
    pub fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// How long opening a connection may take.
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// The oldest the picture of the cluster may get.
    pub fn metadata_max_age(&self) -> Duration {
        self.metadata_max_age
    }

    /// The rack, where one was set.
    pub fn rack(&self) -> Option<&str> {
        self.rack.as_deref()
    }
}

/// `host:port` or `[v6]:port`; a listener's name in front (`PLAINTEXT://`) is accepted and ignored, as in Java.
fn address(entry: &str) -> Option<Address> {
    let entry = entry.split_once("://").map_or(entry, |(_, address)| address);
    let (host, port) = entry.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then(|| Address { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ClusterConfig;
    use crate::ErrorKind;

    #[test]
    fn a_bootstrap_list_is_taken_apart() {
        let parsed = |list: &str| -> Vec<String> {
            ClusterConfig::new(list).addresses().unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(parsed("a:9092, b:9093,"), ["a:9092", "b:9093"]);
        assert_eq!(parsed("PLAINTEXT://a:1"), ["a:1"]);
        assert_eq!(parsed("[::1]:9092"), ["[::1]:9092"]);
    }

    #[test]
    fn times_that_cannot_work_are_refused_and_endless_ones_are_long() {
        let config = ClusterConfig::new("a:1");
        let zero = config.clone().with_request_timeout(Duration::ZERO);
        assert!(zero.addresses().unwrap_err().to_string().contains("request timeout"));
        let endless = config.with_request_timeout(Duration::MAX).with_metadata_max_age(Duration::MAX);
        let _ = std::time::Instant::now() + endless.request_timeout() + endless.metadata_max_age();
    }

    #[test]
    fn a_bad_bootstrap_list_is_refused_by_name() {
        for bad in ["", " , ", "a", "a:", "a:0", "a:70000", ":9092", "::1:9092", "[::1:9092"] {
            let error = ClusterConfig::new(bad).addresses().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{bad}");
        }
    }
}
