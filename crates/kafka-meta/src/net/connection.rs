//! The task that owns one socket, and the handle requests are put in by.
//!
//! The task decides nothing ([`Pipeline`] does): it moves bytes. It ends when the stream ends or breaks, when
//! the pipeline gives the connection up, when it is told to close, or when every handle has been dropped.
//!
//! Callers hand over whole frames and wait on a channel of their own, so a caller that goes away in mid-write
//! leaves a whole frame on the wire. The queue is closed before anybody is told of the end: a caller that tries
//! again at once finds no dead connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::dial::Dialed;
use super::pipeline::{Fault, Pipeline, Reply, Submission};
use super::renewal::{Renewal, Step};
use super::{Address, dial};
use crate::wire::versions::ApiVersions;
use crate::{ClusterConfig, Error, ErrorKind, Result};

/// Where a caller waits for its answer.
pub(crate) type Answer = oneshot::Sender<Result<Bytes>>;

impl Reply for Answer {
    fn is_abandoned(&self) -> bool {
        self.is_closed()
    }

    fn sent(self) {
        let _ = self.send(Ok(Bytes::new()));
    }
}

/// A connection that can be used.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) versions: Arc<ApiVersions>,
    queue: mpsc::Sender<Submission<Answer>>,
    closing: Arc<Notify>,
    held: Arc<AtomicBool>,
}

impl Connection {
    /// A place in the queue; `None` when the connection is over. Dropping the future gives the place up.
    pub(crate) async fn place(&self) -> Option<mpsc::OwnedPermit<Submission<Answer>>> {
        self.queue.clone().reserve_owned().await.ok()
    }

    /// Whether requests wait because the broker throttles this client; for the error of one that waited too
    /// long.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether the connection is over.
    pub(crate) fn is_over(&self) -> bool {
        self.queue.is_closed()
    }

    /// Ends the connection, whatever is in flight.
    pub(crate) fn close(&self) {
        self.closing.notify_one();
    }
}

/// The task's side of a connection.
pub(crate) struct Socket {
    dialed: Dialed,
    config: Arc<ClusterConfig>,
    address: Address,
    queue: mpsc::Receiver<Submission<Answer>>,
    closing: Arc<Notify>,
    held: Arc<AtomicBool>,
}

/// Makes the two sides.
pub(crate) fn connection(
    dialed: Dialed,
    config: Arc<ClusterConfig>,
    address: Address,
) -> (Connection, Socket) {
    let (sender, queue) = mpsc::channel(1);
    let closing = Arc::new(Notify::new());
    let versions = dialed.versions.clone();
    let held = Arc::new(AtomicBool::new(false));
    let handle = Connection { versions, queue: sender, closing: closing.clone(), held: held.clone() };
    (handle, Socket { dialed, config, address, queue, closing, held })
}

/// Why the task ended.
enum End {
    Unused,
    Told,
    Fault(Fault),
    Io(io::Error),
    HungUp,
    Login(Error),
}

impl Socket {
    /// Runs the connection to its end; `on_first` is called when the first answer has come: from then on the
    /// address counts as good. Answers why it ended, if no answer ever came or a login was refused.
    pub(crate) async fn run(self, on_first: impl FnOnce() + Send) -> Option<Error> {
        let mut on_first = Some(on_first);
        let Socket { dialed, config, address, mut queue, closing, held } = self;
        let Dialed { stream, mut reader, versions, lifetime } = dialed;
        let mut renewal = Renewal::new(config, versions, address.clone(), lifetime);
        let (mut input, mut output) = tokio::io::split(stream);
        let mut pipeline: Pipeline<Answer> = Pipeline::new(Instant::now().into_std());
        let mut outgoing = Outgoing::default();
        let end = loop {
            let now = Instant::now().into_std();
            if let Err(fault) = pipeline.handle_time(now) {
                break End::Fault(fault);
            }
            pipeline.hold(renewal.begin(pipeline.is_in_use()));
            if outgoing.is_done()
                && let Some(frame) = pipeline.poll_frame(now)
            {
                outgoing = Outgoing { rest: frame, flushed: false };
            }
            held.store(pipeline.is_held(now), Ordering::Relaxed);
            let deadline = Instant::from_std(pipeline.next_deadline(now));
            let deadline =
                renewal.next_deadline(pipeline.is_in_use()).map_or(deadline, |due| due.min(deadline));
            tokio::select! {
                biased;
                () = closing.notified() => break End::Told,
                // Before the stream: a broker that refuses a login says so and hangs up.
                step = renewal.step() => match step {
                    Step::Send(message) => pipeline.submit_first(Instant::now().into_std(), message),
                    Step::Renewed => {}
                    Step::Failed(error) => break End::Login(error),
                },
                frame = reader.next(&mut input) => match frame {
                    Ok(Some(frame)) => {
                        match pipeline.handle_frame(Instant::now().into_std(), frame) {
                            Ok((reply, body)) => {
                                if let Some(on_first) = on_first.take() {
                                    on_first();
                                }
                                // A late answer, its caller gone: dropped here.
                                let _ = reply.send(Ok(body));
                            }
                            Err(fault) => break End::Fault(fault),
                        }
                    }
                    Ok(None) => break End::HungUp,
                    Err(error) => break End::Io(error),
                },
                written = outgoing.push(&mut output), if !outgoing.is_done() => {
                    if let Err(error) = written {
                        break End::Io(error);
                    }
                }
                submission = queue.recv(), if pipeline.has_room() => match submission {
                    Some(submission) => pipeline.submit(Instant::now().into_std(), submission),
                    None => break End::Unused,
                },
                () = tokio::time::sleep_until(deadline) => {}
            }
        };
        queue.close();
        tracing::debug!(%address, end = %end, "connection closed");
        let login = matches!(end, End::Login(_));
        let blameless = matches!(end, End::Unused | End::Told | End::Fault(Fault::Idle));
        let error = end.into_error(&address, on_first.is_none());
        // From here on no handle can submit; what is in the queue already was never written.
        while let Ok(submission) = queue.try_recv() {
            let _ = submission.reply.send(Err(error.clone()));
        }
        for reply in pipeline.into_replies() {
            let _ = reply.send(Err(error.clone()));
        }
        (login || on_first.is_some() && !blameless).then_some(error)
    }
}

/// A frame on its way out. Progress lives here: the future of [`Outgoing::push`] may be dropped at any point.
struct Outgoing {
    rest: Bytes,
    flushed: bool,
}

impl Default for Outgoing {
    fn default() -> Self {
        Outgoing { rest: Bytes::new(), flushed: true }
    }
}

impl Outgoing {
    fn is_done(&self) -> bool {
        self.flushed
    }

    async fn push<W: AsyncWrite + Unpin>(&mut self, output: &mut W) -> io::Result<()> {
        while self.rest.has_remaining() {
            if output.write_buf(&mut self.rest).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        output.flush().await?;
        self.flushed = true;
        Ok(())
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Unused => f.write_str("no longer used"),
            End::Told => f.write_str("replaced"),
            End::Fault(fault) => write!(f, "{fault:?}"),
            End::Io(error) => write!(f, "{error}"),
            End::HungUp => f.write_str("the broker hung up"),
            End::Login(error) => write!(f, "{error}"),
        }
    }
}

impl End {
    fn into_error(self, address: &Address, served: bool) -> Error {
        const OPERATION: &str = "request";
        let detail = match self {
            End::Login(error) => return error,
            End::Io(error) => return dial::broken(OPERATION, &address.to_string(), error),
            End::Unused | End::Told => format!("{address}: the connection was given up"),
            // What a broker does with anything but a handshake before authentication.
            End::HungUp if !served => format!(
                "{address}: the broker closed the connection before it answered anything; it may expect SASL"
            ),
            // Also what a broker does that does not know a request's version.
            End::HungUp => format!("{address}: the broker closed the connection"),
            End::Fault(Fault::Stalled) => format!("{address}: no answer within the request timeout"),
            End::Fault(Fault::Idle) => format!("{address}: idle"),
            End::Fault(Fault::Malformed) => format!("{address}: an answer's header cannot be read"),
            End::Fault(Fault::Unasked) => format!("{address}: an answer nobody asked for"),
            End::Fault(Fault::OutOfStep { expected, found }) => {
                format!("{address}: correlation id {found} instead of {expected}")
            }
        };
        Error::new(ErrorKind::Disconnected, OPERATION).with_detail(detail)
    }
}
