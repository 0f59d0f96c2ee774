//! The kit's own small client: one connection, one request at a time, versions negotiated.
//!
//! What it is: enough protocol to create topics, write raw batches and ask a broker what it thinks, without
//! any of the code under test. What it is not: a pool, a router, a retrier.
//!
//! States: connected (ranges of the broker known), broken (after any error; make a new one).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_meta::transport::{BoxStream, Connector, Tcp};
use kafka_protocol::messages::{ApiVersionsRequest, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Message, Request, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::failure::{Doing, Failure, Result};

/// Long enough for a loaded machine; an operation that takes its own wait time on the broker stays below it.
const PATIENCE: Duration = Duration::from_secs(40);
/// Brokers under test answer far less than this.
const LARGEST_ANSWER: usize = 256 * 1024 * 1024;

/// One connection to one broker.
pub struct Client {
    stream: BoxStream,
    peer: String,
    correlation: i32,
    versions: HashMap<i16, (i16, i16)>,
}

impl Client {
    /// Connects to the first of `bootstrap` ("host:port,host:port") that answers.
    pub async fn connect(bootstrap: &str) -> Result<Self> {
        Self::connect_with(&(Arc::new(Tcp) as Arc<dyn Connector>), bootstrap).await
    }

    /// The same through a connector, such as the embedded broker's.
    pub async fn connect_with(connector: &Arc<dyn Connector>, bootstrap: &str) -> Result<Self> {
        let mut last = Failure::new(format!("no broker in {bootstrap:?}"));
        for address in bootstrap.split(',').map(str::trim).filter(|address| !address.is_empty()) {
            match Self::connect_one(connector, address).await {
                Ok(client) => return Ok(client),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    async fn connect_one(connector: &Arc<dyn Connector>, address: &str) -> Result<Self> {
        let doing = || format!("connect to {address}");
        let (host, port) = address.rsplit_once(':').ok_or_else(|| Failure::new("no port")).doing(doing)?;
        let port = port.parse().doing(doing)?;
        let connecting = tokio::time::timeout(PATIENCE, connector.connect(host, port)).await;
        let stream = connecting.doing(doing)?.doing(doing)?;
        let mut client = Self { stream, peer: address.to_owned(), correlation: 0, versions: HashMap::new() };
        let ranges = client.call_at(0, &ApiVersionsRequest::default()).await?;
        client.versions =
            ranges.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect();
        Ok(client)
    }

    /// The range of versions the broker lists for an API.
    pub fn versions(&self, api_key: i16) -> Option<(i16, i16)> {
        self.versions.get(&api_key).copied()
    }

    /// Sends a request in the newest version that we, the broker and `at_most` allow, and waits for its
    /// answer.
    ///
    /// Dropping the future leaves the connection unusable.
    pub async fn call<R: Request>(&mut self, at_most: i16, request: &R) -> Result<R::Response> {
        let (oldest, newest) = self
            .versions(R::KEY)
            .ok_or_else(|| Failure::new(format!("{} does not know API {}", self.peer, R::KEY)))?;
        let ours = R::VERSIONS.max.min(<R::Response as Message>::VERSIONS.max);
        let version = at_most.min(ours).min(newest);
        if version < oldest.max(R::VERSIONS.min) {
            return Err(Failure::new(format!("no common version of API {} with {}", R::KEY, self.peer)));
        }
        self.call_at(version, request).await
    }

    /// Sends a request in exactly this version, and waits for its answer.
    ///
    /// Dropping the future leaves the connection unusable.
    pub async fn call_at<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response> {
        let doing = || format!("API {} v{version} at {}", R::KEY, self.peer);
        self.correlation = self.correlation.wrapping_add(1);
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str("testkit")));
        let mut frame = BytesMut::new();
        header.encode(&mut frame, R::header_version(version)).map_err(text).doing(doing)?;
        request.encode(&mut frame, version).map_err(text).doing(doing)?;
        let length = i32::try_from(frame.len()).doing(doing)?;
        let exchange = async {
            self.stream.write_all(&length.to_be_bytes()).await?;
            self.stream.write_all(&frame).await?;
            self.stream.flush().await?;
            let mut length = [0; 4];
            self.stream.read_exact(&mut length).await?;
            let length = usize::try_from(i32::from_be_bytes(length)).map_err(std::io::Error::other)?;
            if length > LARGEST_ANSWER {
                return Err(std::io::Error::other(format!("an answer of {length} bytes")));
            }
            let mut answer = vec![0; length];
            self.stream.read_exact(&mut answer).await?;
            Ok(answer)
        };
        let answer = tokio::time::timeout(PATIENCE, exchange).await;
        let doing = || format!("API {} v{version} at {}", R::KEY, self.peer);
        let mut answer = Bytes::from(answer.doing(doing)?.doing(doing)?);
        let header_version = <R::Response as HeaderVersion>::header_version(version);
        let header = ResponseHeader::decode(&mut answer, header_version).map_err(text).doing(doing)?;
        if header.correlation_id != self.correlation {
            return Err(Failure::new(format!("{} answered another request", doing())));
        }
        R::Response::decode(&mut answer, version).map_err(text).doing(doing)
    }
}

/// The codec's error type is opaque: only its text is of use.
fn text(error: impl std::fmt::Display) -> String {
    format!("{error:#}")
}
