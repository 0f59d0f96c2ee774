//! How clients reach the nodes: through memory, or TCP on 127.0.0.1.

use std::fmt;
use std::io;
use std::sync::Weak;

use futures::future::BoxFuture;
use kafka_meta::transport::{BoxStream, Connector};
use tokio::net::TcpListener;

use super::Shared;
use super::connection::Connection;

/// Bytes a pipe holds in each direction.
const PIPE: usize = 256 * 1024;

/// Connects to an embedded cluster through memory.
pub(super) struct InMemory(pub Weak<Shared>);

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InMemory")
    }
}

impl Connector for InMemory {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<BoxStream>> {
        Box::pin(async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let shared = self.0.upgrade().ok_or_else(refused)?;
            let node = {
                let world = shared.world();
                let mut nodes = world.nodes.values();
                let address = (host.to_owned(), port);
                nodes
                    .find(|node| node.addresses.contains(&address))
                    .map(|node| node.id)
                    .ok_or_else(refused)?
            };
            let (near, far) = tokio::io::duplex(PIPE);
            let connection = Connection::new(&shared, node, far).ok_or_else(refused)?;
            tokio::spawn(connection.run());
            Ok(Box::new(near) as BoxStream)
        })
    }
}

/// Accepts connections for one node until the cluster is gone. A stopped node's connections are closed at once:
/// the port stays bound, so that the node keeps its address.
pub(super) async fn accept(shared: Weak<Shared>, node: i32, listener: TcpListener) {
    let Some(mut changes) = shared.upgrade().map(|shared| shared.changes()) else { return };
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of file descriptors, most likely: trying again at once would spin.
                Err(_) => {
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            },
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
                continue;
            }
        };
        let Some(shared) = shared.upgrade() else { return };
        let _ = stream.set_nodelay(true);
        if let Some(connection) = Connection::new(&shared, node, stream) {
            tokio::spawn(connection.run());
        }
    }
}
