//! From an address to a connection that can be used: transport, then the ApiVersions handshake.
//!
//! Steps, in order, each within the connect timeout: connect, ask for the API versions. (Security adds steps
//! between and after these; each is a function over the stream and its reader.) Nothing is retried here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Buf;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, RequestHeader};
use kafka_protocol::protocol::{Encodable, Message, Request, StrBytes};
use tokio::io::AsyncWriteExt;

use super::Address;
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
}

/// Connects and shakes hands.
pub(crate) async fn dial(config: &ClusterConfig, address: &Address) -> Result<Dialed> {
    let connecting = config.connector.connect(&address.host, address.port);
    let mut stream = within(config.connect_timeout, connecting)
        .await
        .map_err(|error| broken("connect", &address.to_string(), error))?;
    let mut reader = FrameReader::new(config.max_frame_bytes);
    let shaking = handshake(config, &mut stream, &mut reader);
    let versions = match tokio::time::timeout(config.connect_timeout, shaking).await {
        Ok(result) => result.map_err(|error| match error {
            Handshake::Io(error) => broken(HANDSHAKE, &address.to_string(), error),
            Handshake::Refused(error) => error,
        })?,
        Err(_) => return Err(broken(HANDSHAKE, &address.to_string(), io::ErrorKind::TimedOut.into())),
    };
    Ok(Dialed { stream, reader, versions: Arc::new(versions) })
}

const HANDSHAKE: &str = "connect (API versions)";

async fn within<T>(time: Duration, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(time, future).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
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
    stream: &mut BoxStream,
    reader: &mut FrameReader,
) -> std::result::Result<ApiVersions, Handshake> {
    let newest = <ApiVersionsRequest as Message>::VERSIONS.max;
    let answer = api_versions(config, stream, reader, newest).await?;
    if ErrorCode::from(answer.error_code) != ErrorCode::UNSUPPORTED_VERSION {
        return read_versions(&answer);
    }
    let known = answer.api_keys.iter().find(|api| api.api_key == ApiVersionsRequest::KEY);
    let version = known.map_or(0, |api| api.max_version).clamp(0, newest);
    let answer = api_versions(config, stream, reader, version).await?;
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
    stream: &mut BoxStream,
    reader: &mut FrameReader,
    version: i16,
) -> std::result::Result<ApiVersionsResponse, Handshake> {
    // Both must match [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?, or the broker refuses with 42.
    let request = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("kafka-consume-rust"))
        .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
    let frame = encode(&request, version, &config.client_id)?;
    stream.write_all(&frame).await?;
    stream.flush().await?;
    let Some(mut body) = reader.next(stream).await? else {
        return Err(Handshake::Io(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the other side hung up; the port may expect TLS or SASL",
        )));
    };
    if body.try_get_i32().ok() != Some(0) {
        return Err(Handshake::Io(io::Error::new(io::ErrorKind::InvalidData, "wrong correlation id")));
    }
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
        _ => Error::new(ErrorKind::Disconnected, operation).with_detail(at.to_owned()).with_source(error),
    }
}
