//! How bytes reach a broker: a trait, so that tests connect through memory and TLS wraps TCP.
//!
//! What this is not: it frames nothing and knows no Kafka. A connector makes one byte stream per call and keeps
//! none.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};

/// What a connection runs on.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + ?Sized> Stream for T {}

/// A stream of any transport.
pub type BoxStream = Box<dyn Stream>;

/// Makes the byte streams connections run on.
pub trait Connector: Send + Sync + Debug + 'static {
    /// Opens one stream to `host:port`. The caller bounds the time; dropping the future abandons the attempt.
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<BoxStream>>;
}

/// How long an address may stay silent before the next one is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);

/// Plain TCP: names resolved anew on every attempt, every address tried, no Nagle delay.
#[derive(Clone, Debug, Default)]
pub struct Tcp;

impl Connector for Tcp {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<BoxStream>> {
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
                .await
                .map_err(|error| unresolved(host, &error))?
                .collect();
            let stream = first_to_answer(addresses).await?;
            Ok(Box::new(stream) as BoxStream)
        })
    }
}

fn unresolved(host: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the host name {host:?} cannot be resolved: {error}"))
}

async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As Java does: a peer that vanished while a join was parked is noticed in the end.
    socket.set_keepalive(true)?;
    let stream = socket.connect(address).await?;
    // A request is one write; waiting to fill a segment only delays it.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects to the first address that accepts. An address that refuses is followed by the next at once; one
/// that says nothing by the next after [`STAGGER`], both still in the race: a black hole in front of a live
/// address must not cost the whole connect timeout.
async fn first_to_answer(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut racing = FuturesUnordered::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        match waiting.next() {
            Some(address) => racing.push(open(address)),
            None if racing.is_empty() => return Err(last),
            None => {}
        }
        let more = waiting.len() > 0;
        tokio::select! {
            Some(result) = racing.next() => match result {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            },
            () = tokio::time::sleep(STAGGER), if more => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::first_to_answer;

    #[tokio::test]
    async fn an_address_that_refuses_is_followed_by_the_next() {
        let up = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let down = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
        let stream = first_to_answer(vec![down, up.local_addr().unwrap()]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), up.local_addr().unwrap());
        assert!(first_to_answer(vec![down, down]).await.is_err());
        assert!(first_to_answer(Vec::new()).await.is_err());
    }
}
