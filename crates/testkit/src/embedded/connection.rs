//! One client's connection to one node: frames in order, one request at a time.
//!
//! As a real broker does, it answers strictly in turn: while a request waits, nothing behind it is looked at.
//! The task ends when the client closes, when the node stops, or when a fault says so. It sleeps on the world's
//! change counter and one deadline, never in a loop of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader};
use kafka_protocol::protocol::Decodable;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Shared;
use super::api::{self, Call, Progress, Reply};
use super::faults::Subject;
use super::metadata;
use super::requests::RequestSeen;

/// Largest request a node takes (`socket.request.max.bytes`).
const MAX_REQUEST: usize = 100 * 1024 * 1024;
/// Bytes taken in while a request waits: enough to see the client go away, not enough to hoard.
const READ_AHEAD: usize = 256 * 1024;

/// Why a connection ends.
struct Over;

pub(super) struct Connection<S> {
    shared: Arc<Shared>,
    changes: watch::Receiver<u64>,
    stream: S,
    buffer: BytesMut,
    node: i32,
    number: u64,
    incarnation: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// `None` when the node takes no connections.
    pub fn new(shared: &Arc<Shared>, node: i32, stream: S) -> Option<Self> {
        let mut world = shared.world();
        let found = world.node(node).filter(|node| node.running)?;
        let incarnation = found.incarnation;
        world.connections = world.connections.saturating_add(1);
        let number = world.connections;
        drop(world);
        let changes = shared.changes();
        let shared = Arc::clone(shared);
        Some(Connection { shared, changes, stream, buffer: BytesMut::new(), node, number, incarnation })
    }

    pub async fn run(mut self) {
        while let Ok(frame) = self.frame().await {
            if self.serve(frame).await.is_err() {
                break;
            }
        }
    }

    /// Whether the node is still the one connected to, and awake.
    fn standing(&self) -> Result<bool, Over> {
        let world = self.shared.world();
        let node = world.node(self.node).ok_or(Over)?;
        if !node.running || node.incarnation != self.incarnation {
            return Err(Over);
        }
        Ok(!node.frozen)
    }

    /// Waits until the node is awake; ends with the node.
    async fn awake(&mut self) -> Result<(), Over> {
        loop {
            self.changes.borrow_and_update();
            if self.standing()? {
                return Ok(());
            }
            self.changes.changed().await.map_err(|_| Over)?;
        }
    }

    /// The next whole request.
    async fn frame(&mut self) -> Result<Bytes, Over> {
        loop {
            self.awake().await?;
            if let Some(prefix) = self.buffer.first_chunk::<4>() {
                let length = usize::try_from(i32::from_be_bytes(*prefix)).map_err(|_| Over)?;
                if length > MAX_REQUEST {
                    return Err(Over);
                }
                if self.buffer.len() >= length.saturating_add(4) {
                    self.buffer.advance(4);
                    return Ok(self.buffer.split_to(length).freeze());
                }
                self.buffer.reserve(length);
            }
            tokio::select! {
                read = self.stream.read_buf(&mut self.buffer) => match read {
                    Ok(0) | Err(_) => return Err(Over),
                    Ok(_) => {}
                },
                changed = self.changes.changed() => changed.map_err(|_| Over)?,
            }
        }
    }

    /// Sleeps until a change of the world, the deadline, or the end of the connection.
    async fn idle(&mut self, deadline: Option<Instant>) -> Result<(), Over> {
        let timer = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let listens = self.buffer.len() < READ_AHEAD;
        tokio::select! {
            () = timer => {}
            changed = self.changes.changed() => changed.map_err(|_| Over)?,
            read = self.stream.read_buf(&mut self.buffer), if listens => match read {
                Ok(0) | Err(_) => return Err(Over),
                Ok(_) => {}
            },
        }
        self.awake().await
    }

    async fn pause(&mut self, length: Duration) -> Result<(), Over> {
        if length.is_zero() {
            return Ok(());
        }
        let until = Instant::now() + length;
        while Instant::now() < until {
            self.idle(Some(until)).await?;
        }
        Ok(())
    }

    async fn gate(&mut self, mut gate: watch::Receiver<bool>) -> Result<(), Over> {
        while !*gate.borrow_and_update() {
            tokio::select! {
                // A fault whose handle is gone can no longer be released: it holds for good.
                Ok(()) = gate.changed() => {}
                idle = self.idle(None) => idle?,
            }
        }
        Ok(())
    }

    async fn serve(&mut self, frame: Bytes) -> Result<(), Over> {
        let mut body = frame;
        let key = body.first_chunk::<2>().map(|key| i16::from_be_bytes(*key)).ok_or(Over)?;
        let version = body.get(2..4).and_then(|field| field.first_chunk::<2>()).ok_or(Over)?;
        let version = i16::from_be_bytes(*version);
        let api = ApiKey::try_from(key).map_err(|()| Over)?;
        let (allowed, max) = {
            let world = self.shared.world();
            let versions = &world.node(self.node).ok_or(Over)?.versions;
            (versions.allows(key, version), versions.ranges.get(&key).map_or(0, |range| range.1))
        };
        if !allowed {
            if api != ApiKey::ApiVersions {
                return Err(Over);
            }
            let correlation = body.get(4..8).and_then(|field| field.first_chunk::<4>()).ok_or(Over)?;
            let answer =
                api::encode(i32::from_be_bytes(*correlation), &metadata::too_new(max), 0).ok_or(Over)?;
            return self.send(&answer).await;
        }
        let header =
            RequestHeader::decode(&mut body, api.request_header_version(version)).map_err(|_| Over)?;
        let job = api::decode(api, version, body).ok_or(Over)?;
        let now = Instant::now();
        let call = {
            let mut world = self.shared.world();
            let topics = job.topics(&world);
            let client_id = header.client_id.as_ref().map(ToString::to_string).unwrap_or_default();
            let subject = Subject { api, node: self.node, topics: &topics, client_id: &client_id };
            let effects = world.faults.apply(&subject);
            let fetch = job.fetch_seen(&world);
            let seen = RequestSeen {
                at: now,
                node: self.node,
                connection: self.number,
                api,
                version,
                correlation: header.correlation_id,
                client_id: client_id.clone(),
                topics,
                fetch,
            };
            world.note(seen);
            self.shared.received.send_modify(|count| *count = count.wrapping_add(1));
            Call { now, node: self.node, version, correlation: header.correlation_id, client_id, effects }
        };
        self.carry_out(job, call).await
    }

    async fn carry_out(&mut self, job: Box<dyn api::Job>, mut call: Call) -> Result<(), Over> {
        if call.effects.drop_before {
            return Err(Over);
        }
        if let Some(delay) = call.effects.late {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                call.now = Instant::now();
                let mut world = shared.world();
                if world.node(call.node).is_some_and(|node| node.running) {
                    drop(job.start(&mut world, &call));
                }
            });
            return Err(Over);
        }
        self.pause(call.effects.delay).await?;
        for gate in std::mem::take(&mut call.effects.holds) {
            self.gate(gate).await?;
        }
        self.awake().await?;
        call.now = Instant::now();
        // Marks the changes seen before the request looks at the world, so that none in between is missed.
        self.changes.borrow_and_update();
        let progress = job.start(&mut self.shared.world(), &call);
        let reply = match progress {
            Progress::Reply(reply) => reply,
            Progress::Parked(mut parked) => loop {
                self.idle(parked.deadline()).await?;
                let polled = parked.poll(&mut self.shared.world(), &call, Instant::now());
                if let Some(reply) = polled {
                    break reply;
                }
            },
        };
        if call.effects.drop_after {
            return Err(Over);
        }
        self.pause(call.effects.delay_answer).await?;
        for gate in std::mem::take(&mut call.effects.answer_holds) {
            self.gate(gate).await?;
        }
        match reply {
            Reply::Silent => Ok(()),
            Reply::Close => Err(Over),
            Reply::Frame { bytes, mute } => {
                if let Some(cut) = call.effects.cut_answer {
                    self.send(bytes.get(..cut).unwrap_or(&bytes)).await?;
                    return Err(Over);
                }
                self.send(&bytes).await?;
                self.pause(mute).await
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), Over> {
        let mut rest = bytes;
        while !rest.is_empty() {
            self.awake().await?;
            tokio::select! {
                written = self.stream.write(rest) => match written {
                    Ok(0) | Err(_) => return Err(Over),
                    Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                },
                changed = self.changes.changed() => changed.map_err(|_| Over)?,
            }
        }
        self.stream.flush().await.map_err(|_| Over)
    }
}
