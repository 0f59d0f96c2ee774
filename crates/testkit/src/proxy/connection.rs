//! One client connection and the broker connection behind it: two pumps, requests and answers, joined by the
//! queue of requests that wait for their answers.
//!
//! States: passing; stalled (whatever comes is taken and dropped, nothing is sent, no FIN); closed, when
//! either side closes or a rule says so. Invariant: answers are paired with requests by order alone, as
//! brokers guarantee.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::edit::{Context, follow_session, is_answered, split_answer, split_request};
use super::log::{Arrived, TopicRef};
use super::rewrite;
use super::rule::{Action, Then};
use super::state::Shared;

/// A frame larger than this is not Kafka.
const LARGEST_FRAME: usize = 512 * 1024 * 1024;
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

struct Pending {
    number: u64,
    request: Arrived,
}

struct Connection<'a> {
    shared: &'a Arc<Shared>,
    id: u64,
    node: i32,
    pending: Mutex<VecDeque<Pending>>,
    session: Mutex<BTreeSet<(TopicRef, i32)>>,
    stall: watch::Sender<bool>,
}

/// Carries a connection until it ends.
pub(super) async fn run(
    shared: &Arc<Shared>,
    id: u64,
    node: i32,
    client: TcpStream,
    upstream: &str,
    stall: watch::Sender<bool>,
    stalled: watch::Receiver<bool>,
) {
    let _ = client.set_nodelay(true);
    let (client_read, client_write) = client.into_split();
    let connection =
        Connection { shared, id, node, pending: Mutex::default(), session: Mutex::default(), stall };
    if *stalled.borrow() {
        connection.swallow(client_read).await;
        return;
    }
    let connecting = tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect(upstream)).await;
    // A broker that is down: closing is as near to refusing as an accepted connection can come.
    let Ok(Ok(broker)) = connecting else { return };
    let _ = broker.set_nodelay(true);
    let (broker_read, broker_write) = broker.into_split();
    tokio::select! {
        _ = connection.requests(client_read, broker_write) => {}
        _ = connection.answers(broker_read, client_write, stalled) => {}
    }
}

impl Connection<'_> {
    async fn swallow(&self, mut from: OwnedReadHalf) {
        let mut sink = vec![0; 16 * 1024];
        while from.read(&mut sink).await.is_ok_and(|count| count > 0) {}
    }

    fn is_stalled(&self) -> bool {
        *self.stall.borrow()
    }

    async fn requests(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        loop {
            let frame = read_frame(&mut from).await?;
            if self.is_stalled() {
                continue;
            }
            let Some((header, mut request)) = split_request(&frame, self.id, self.node) else {
                return Err(io::Error::other("not a request"));
            };
            let number = self.shared.log.arrived(&request);
            let mut dropped = false;
            for rule in self.shared.rules.on_request(&request) {
                match &rule.action {
                    Action::CutBefore if rule.count() => return Ok(()),
                    Action::Stall if rule.count() => {
                        self.stall.send_replace(true);
                        dropped = true;
                    }
                    Action::DelayRequest(time) if rule.count() => tokio::time::sleep(*time).await,
                    Action::HoldRequest if rule.count() => rule.released().await,
                    Action::EditRequest(edit) => {
                        let changed = {
                            let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
                            let context =
                                Context { request: &request, topics: &self.shared.topics, session: &session };
                            edit(&context, request.version, &request.body)
                        };
                        if let Some(body) = changed
                            && rule.count()
                        {
                            request.body = body;
                        }
                    }
                    _ => {}
                }
            }
            if dropped {
                continue;
            }
            follow_session(&mut self.session.lock().unwrap_or_else(PoisonError::into_inner), &request);
            let body = request.body.clone();
            if is_answered(&request) {
                // Before it is sent: its answer may be quicker than the next line.
                let waiting = Pending { number, request };
                self.pending.lock().unwrap_or_else(PoisonError::into_inner).push_back(waiting);
            }
            write_frame(&mut to, &header, &body).await?;
        }
    }

    async fn answers(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        mut stalled: watch::Receiver<bool>,
    ) -> io::Result<()> {
        loop {
            let frame = tokio::select! {
                frame = read_frame(&mut from) => frame,
                // The broker may close now; the client must not hear of it.
                () = until_stalled(&mut stalled) => return std::future::pending().await,
            }?;
            let waiting = self.pending.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(Pending { number, request }) = waiting else {
                return Err(io::Error::other("an answer without a request"));
            };
            let (header, body) =
                split_answer(request.api, request.version, &frame).unwrap_or_else(|| (Bytes::new(), frame));
            let mut body =
                rewrite::addresses(self.shared, request.api, request.version, &body).unwrap_or(body);
            let mut half = None;
            for rule in self.shared.rules.on_answer(&request, &body) {
                match &rule.action {
                    Action::CutAfter if rule.count() => return Ok(()),
                    Action::Half(bytes, then) if rule.count() => half = Some((*bytes, *then)),
                    Action::DelayAnswer(time) if rule.count() => tokio::time::sleep(*time).await,
                    Action::HoldAnswer if rule.count() => rule.released().await,
                    Action::EditAnswer(edit) => {
                        let changed = {
                            let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
                            let context =
                                Context { request: &request, topics: &self.shared.topics, session: &session };
                            edit(&context, request.version, &body)
                        };
                        if let Some(changed) = changed
                            && rule.count()
                        {
                            body = changed;
                        }
                    }
                    _ => {}
                }
            }
            if self.is_stalled() {
                return std::future::pending().await;
            }
            match half {
                None => {
                    // Logged first: who has the answer may look at the log at once.
                    self.shared.log.answered(number, &body);
                    write_frame(&mut to, &header, &body).await?;
                }
                Some((bytes, then)) => {
                    let mut whole = length_of(&header, &body)?.to_vec();
                    whole.extend_from_slice(&header);
                    whole.extend_from_slice(&body);
                    whole.truncate(bytes);
                    to.write_all(&whole).await?;
                    match then {
                        Then::Close => return Ok(()),
                        Then::Stall => {
                            self.stall.send_replace(true);
                            return std::future::pending().await;
                        }
                    }
                }
            }
        }
    }
}

async fn until_stalled(stalled: &mut watch::Receiver<bool>) {
    // The sender lives in the connection: it cannot be gone.
    let _ = stalled.wait_for(|stalled| *stalled).await;
}

async fn read_frame(from: &mut OwnedReadHalf) -> io::Result<Bytes> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await?;
    let length = usize::try_from(i32::from_be_bytes(length)).map_err(io::Error::other)?;
    if length > LARGEST_FRAME {
        return Err(io::Error::other("not a frame of Kafka's"));
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame).await?;
    Ok(Bytes::from(frame))
}

fn length_of(header: &Bytes, body: &Bytes) -> io::Result<[u8; 4]> {
    let length = i32::try_from(header.len() + body.len()).map_err(io::Error::other)?;
    Ok(length.to_be_bytes())
}

async fn write_frame(to: &mut OwnedWriteHalf, header: &Bytes, body: &Bytes) -> io::Result<()> {
    let mut head = length_of(header, body)?.to_vec();
    head.extend_from_slice(header);
    to.write_all(&head).await?;
    to.write_all(body).await
}
