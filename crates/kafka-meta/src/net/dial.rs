//! From an address to a connection that can be used: transport, then the ApiVersions handshake.
//!
//! Steps, in order, each within the connect timeout: connect (name resolution included), TLS, the API versions,
//! SASL. Brokers answer ApiVersions before a login and nothing else. Nothing is retried here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, RequestHeader};
use kafka_protocol::protocol::{Encodable, Message, Request, StrBytes};
use tokio::io::AsyncWriteExt;

use super::Address;
use super::login::{self, Wire};
use super::pipeline::AnswerShape;
use crate::transport::BoxStream;
use crate::wire::frame::{self, FrameReader, Oversize};
use crate::wire::guard;
use crate::wire::versions::ApiVersions;
use crate::{ClusterConfig, Error, ErrorCode, ErrorKind, Result};

/// A stream past its handshake.
pub(crate) struct Dialed {
    pub(crate) stream: BoxStream,
    pub(crate) reader: FrameReader,
    pub(crate) versions: Arc<ApiVersions>,
    /// How long the login lasts, where the broker limits it.
    pub(crate) lifetime: Option<Duration>,
}

const CONNECT: &str = "connect";
const HANDSHAKE: &str = "connect (API versions)";
const LOGIN: &str = "connect (SASL)";

/// Connects, shakes hands and logs in.
pub(crate) async fn dial(config: &ClusterConfig, address: &Address) -> Result<Dialed> {
    let at = address.to_string();
    let stream = within(config, CONNECT, &at, async {
        let connecting = config.connector.connect(&address.host, address.port);
        connecting.await.map_err(|error| broken(CONNECT, &at, error))
    });
    let stream = stream.await?;
    #[cfg(feature = "tls")]
    let stream = match &config.tls {
        Some(tls) => within(config, "connect (TLS)", &at, tls.wrap(stream, &address.host, &at)).await?,
        None => stream,
    };
    let mut open = Open { stream, reader: FrameReader::new(config.max_frame_bytes), at: &at };
    let shaking = async {
        handshake(config, &mut open).await.map_err(|error| match error {
            Handshake::Io(error) => broken(HANDSHAKE, &at, error),
            Handshake::Refused(error) => error,
        })
    };
    let versions = within(config, HANDSHAKE, &at, shaking).await?;
    let lifetime = match &config.sasl {
        Some(sasl) => {
            let login = login::login(&mut open, sasl, &config.client_id, &versions, &at, None);
            within(config, LOGIN, &at, login).await?
        }
        None => None,
    };
    let Open { stream, reader, .. } = open;
    Ok(Dialed { stream, reader, versions: Arc::new(versions), lifetime })
}

async fn within<T>(
    config: &ClusterConfig,
    operation: &'static str,
    at: &str,
    step: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::time::timeout(config.connect_timeout, step).await.unwrap_or_else(|_| {
        // The caller puts its own operation in place of ours, so the step is said here as well.
        let detail = format!("{at}: {operation}: nothing came back in {:?}", config.connect_timeout);
        let late = io::Error::from(io::ErrorKind::TimedOut);
        Err(Error::new(ErrorKind::Disconnected, operation).with_detail(detail).with_source(late))
    })
}

/// A stream nobody else uses yet: one request at a time, each with 0 for its correlation id.
struct Open<'a> {
    stream: BoxStream,
    reader: FrameReader,
    at: &'a str,
}

impl Open<'_> {
    /// The answer without its correlation id; `None` when the other side hung up.
    async fn exchange(&mut self, frame: &[u8]) -> io::Result<Option<Bytes>> {
        self.stream.write_all(frame).await?;
        self.stream.flush().await?;
        let Some(mut body) = self.reader.next(&mut self.stream).await? else { return Ok(None) };
        if body.try_get_i32().ok() != Some(0) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "wrong correlation id"));
        }
        Ok(Some(body))
    }
}

impl Wire for Open<'_> {
    async fn ask(&mut self, frame: BytesMut, shape: AnswerShape) -> Result<Bytes> {
        let hung_up =
            || io::Error::new(io::ErrorKind::UnexpectedEof, "the other side hung up during the login");
        let body = match self.exchange(&frame).await {
            Ok(body) => body.ok_or_else(hung_up),
            Err(error) => Err(error),
        };
        let mut body = body.map_err(|error| broken(LOGIN, self.at, error))?;
        if shape.tagged_header {
            let header = guard::tagged_fields_len(&body)
                .ok_or_else(|| broken(LOGIN, self.at, io::ErrorKind::InvalidData.into()))?;
            body.advance(header);
        }
        Ok(body)
    }
}

enum Handshake {
    Io(io::Error),
    Refused(Error),
}

impl From<io::Error> for Handshake {
    fn from(error: io::Error) -> Self {
        Handshake::Io(error)
    }
}

impl From<Error> for Handshake {
    fn from(error: Error) -> Self {
        Handshake::Refused(error)
    }
}

/// A broker that does not know the version answers in version 0 with what it does know, and keeps the socket
/// open: one more request on it, in that version, settles the matter.
async fn handshake(
    config: &ClusterConfig,
    open: &mut Open<'_>,
) -> std::result::Result<ApiVersions, Handshake> {
    let newest = <ApiVersionsRequest as Message>::VERSIONS.max;
    let answer = api_versions(config, open, newest).await?;
    if ErrorCode::from(answer.error_code) != ErrorCode::UNSUPPORTED_VERSION {
        return read_versions(&answer);
    }
    let known = answer.api_keys.iter().find(|api| api.api_key == ApiVersionsRequest::KEY);
    let version = known.map_or(0, |api| api.max_version).clamp(0, newest);
    let answer = api_versions(config, open, version).await?;
    read_versions(&answer)
}

fn read_versions(answer: &ApiVersionsResponse) -> std::result::Result<ApiVersions, Handshake> {
    let code = ErrorCode::from(answer.error_code);
    if !code.is_none() {
        return Err(Error::broker(code, HANDSHAKE).into());
    }
    Ok(ApiVersions::from_response(answer))
}

async fn api_versions(
    config: &ClusterConfig,
    open: &mut Open<'_>,
    version: i16,
) -> std::result::Result<ApiVersionsResponse, Handshake> {
    // Both must match [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?, or the broker refuses with 42.
    let request = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("kafka-consume-rust"))
        .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
    let frame = encode(&request, version, &config.client_id)?;
    let Some(body) = open.exchange(&frame).await? else {
        return Err(Handshake::Io(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the other side hung up; the port may expect TLS",
        )));
    };
    let refused =
        body.as_ref().try_get_i16().is_ok_and(|code| code == ErrorCode::UNSUPPORTED_VERSION.value());
    let version = if refused { 0 } else { version };
    Ok(guard::decode(ApiVersionsRequest::KEY, version, body)?)
}

/// A whole frame, with 0 for its correlation id.
pub(crate) fn encode<R: Request>(request: &R, version: i16, client_id: &str) -> Result<bytes::BytesMut> {
    let failed = |error| {
        Error::new(ErrorKind::InvalidRequest, crate::wire::api_name(R::KEY))
            .with_detail(format!("version {version} cannot be encoded"))
            .with_source(error)
    };
    let mut buffer = frame::start();
    RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())))
        .encode(&mut buffer, R::header_version(version))
        .map_err(failed)?;
    // A Produce request is as large as its batches: grown by doubling, they would be copied twice.
    buffer.reserve(request.compute_size(version).unwrap_or(0));
    request.encode(&mut buffer, version).map_err(failed)?;
    frame::finish(buffer).ok_or_else(|| {
        Error::new(ErrorKind::InvalidRequest, crate::wire::api_name(R::KEY)).with_detail("over 2 GiB")
    })
}

/// What a failed stream means to a caller. `at` names the other side.
pub(crate) fn broken(operation: &'static str, at: &str, error: io::Error) -> Error {
    let oversize = error.get_ref().and_then(|inner| inner.downcast_ref::<Oversize>());
    match oversize {
        Some(oversize) if oversize.looks_like() == Some("TLS") => Error::new(ErrorKind::Tls, operation)
            .with_detail(format!("{at}: {oversize}; no TLS is configured")),
        Some(oversize) if oversize.looks_like().is_none() => {
            Error::new(ErrorKind::BatchTooLarge, operation).with_detail(format!("{at}: {oversize}"))
        }
        #[cfg(feature = "tls")]
        _ => crate::tls::failed(operation, at, error),
        #[cfg(not(feature = "tls"))]
        _ => Error::new(ErrorKind::Disconnected, operation).with_detail(at.to_owned()).with_source(error),
    }
}

/// Whether an attempt ended because the other side said nothing.
pub(crate) fn is_late(error: &Error) -> bool {
    use std::error::Error as _;
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    error.kind() == ErrorKind::Timeout
        || source.is_some_and(|source| source.kind() == io::ErrorKind::TimedOut)
}
