//! Who holds which connection, and how one comes to be.
//!
//! A [`Room`] is one owner's connections, one per (node, lane). A slot is *dialing*, then *ready* or *failed*;
//! it is dialled anew when its connection is over, when it failed, or when the node has moved to another
//! address. Dialling is a task of its own: callers that wait for it may go away, the next one finds it further
//! on. When the room is dropped its slots go with it, and every task of theirs ends by itself.
//!
//! The [`Dialer`] is shared by all rooms of a cluster: it knows which addresses have failed and holds attempts
//! back, so that many callers that try again at once do not make many attempts.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;
use tokio::time::Instant;

use super::connection::{Connection, connection};
use super::gate::Gate;
use super::{Address, Lane, dial, is_refused};
use crate::{ClusterConfig, Error, ErrorKind, Result};

/// Which node a slot belongs to.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Peer {
    /// A broker by its id.
    Node(i32),
    /// A bootstrap address: who answers there is not known.
    Bootstrap(Address),
}

#[derive(Clone, Debug)]
enum Dial {
    Dialing,
    Ready(Arc<Connection>),
    Failed(Error),
}

#[derive(Debug)]
struct Slot {
    address: Address,
    state: watch::Receiver<Dial>,
}

impl Slot {
    fn connection(&self) -> Option<Arc<Connection>> {
        match &*self.state.borrow() {
            Dial::Ready(connection) if !connection.is_over() => Some(connection.clone()),
            _ => None,
        }
    }

    fn is_of_use(&self) -> bool {
        match &*self.state.borrow() {
            // A task that ended without a word (its runtime is gone) must not be waited for.
            Dial::Dialing => self.state.has_changed().is_ok(),
            Dial::Ready(connection) => !connection.is_over(),
            Dial::Failed(_) => false,
        }
    }
}

/// One owner's connections.
#[derive(Debug, Default)]
pub(crate) struct Room {
    slots: Mutex<HashMap<(Peer, Lane), Slot>>,
}

impl Room {
    /// The connection to a peer, dialled if need be. Dropping the future abandons the wait, not the dialling.
    pub(crate) async fn connection(
        &self,
        dialer: &Arc<Dialer>,
        peer: &Peer,
        address: &Address,
        lane: Lane,
        deadline: Instant,
    ) -> Result<Arc<Connection>> {
        let mut state = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (peer.clone(), lane);
            match slots.get(&key) {
                Some(slot) if slot.address == *address && slot.is_of_use() => slot.state.clone(),
                _ => {
                    let state = dialer.start(address.clone());
                    let slot = Slot { address: address.clone(), state: state.clone() };
                    if let Some(old) = slots.insert(key, slot)
                        && let Some(connection) = old.connection()
                    {
                        connection.close();
                    }
                    state
                }
            }
        };
        let waiting = state.wait_for(|state| !matches!(state, Dial::Dialing));
        match tokio::time::timeout_at(deadline, waiting).await {
            Ok(Ok(state)) => match &*state {
                Dial::Ready(connection) => Ok(connection.clone()),
                Dial::Failed(error) => Err(error.clone()),
                Dial::Dialing => Err(stopped(address)),
            },
            Ok(Err(_)) => Err(stopped(address)),
            Err(_) => {
                // Attempts that are refused are held back: what keeps them from succeeding is the better answer.
                if let Some(refused) = dialer.last_failure(address).filter(is_refused) {
                    return Err(refused);
                }
                let detail = match dialer.last_failure(address) {
                    Some(failure) => format!("still connecting to {address}; the last attempt: {failure}"),
                    None => format!("still connecting to {address}"),
                };
                Err(Error::new(ErrorKind::Timeout, "connect").with_detail(detail))
            }
        }
    }

    /// Whether a connection to this peer is open now.
    pub(crate) fn is_connected(&self, peer: &Peer, lane: Lane) -> bool {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get(&(peer.clone(), lane)).is_some_and(|slot| slot.connection().is_some())
    }

    /// Where an open connection to this peer leads.
    pub(crate) fn address(&self, peer: &Peer, lane: Lane) -> Option<Address> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.get(&(peer.clone(), lane))?;
        slot.connection().map(|_| slot.address.clone())
    }

    /// Ends a connection that does not answer.
    pub(crate) fn give_up(&self, peer: &Peer, lane: Lane) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = slots.remove(&(peer.clone(), lane)).as_ref().and_then(Slot::connection) {
            connection.close();
        }
    }

    /// The brokers are known: bootstrap addresses have done their service. A connection to one that a broker
    /// gives as its own address becomes that broker's; the others end when nobody uses them.
    pub(crate) fn adopt_bootstrap(&self, brokers: impl Iterator<Item = (i32, Address)>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (bootstrap, nodes): (HashMap<_, _>, HashMap<_, _>) =
            slots.drain().partition(|((peer, _), _)| matches!(peer, Peer::Bootstrap(_)));
        *slots = nodes;
        if bootstrap.is_empty() {
            return;
        }
        let by_address: HashMap<_, _> = brokers.map(|(id, address)| (address, id)).collect();
        for ((_, lane), slot) in bootstrap {
            if let Some(id) = by_address.get(&slot.address) {
                slots.entry((Peer::Node(*id), lane)).or_insert(slot);
            }
        }
    }

    /// Nodes have moved: connections to their old addresses end, requests in flight included, since who listens
    /// there now is somebody else. Nodes that are no longer listed keep what is in flight: a broker that leaves
    /// the metadata is often still answering.
    pub(crate) fn moved(&self, address_of: impl Fn(i32) -> Option<Address>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|(peer, _), slot| {
            let Peer::Node(id) = peer else { return true };
            match address_of(*id) {
                Some(address) if address != slot.address => {
                    if let Some(connection) = slot.connection() {
                        connection.close();
                    }
                    false
                }
                Some(_) => true,
                None => slot.is_of_use(),
            }
        });
    }
}

fn stopped(address: &Address) -> Error {
    Error::new(ErrorKind::Closed, "connect").with_detail(format!("{address}: the runtime has been shut down"))
}

struct Failing {
    gate: Gate,
    last: Error,
}

/// Makes connections; shared by all rooms of a cluster.
pub(crate) struct Dialer {
    config: Arc<ClusterConfig>,
    failing: Mutex<HashMap<Address, Failing>>,
    rooms: Mutex<Vec<Weak<Room>>>,
    /// Somebody has been connected to: the settings are not what is wrong.
    proven: AtomicBool,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

impl Dialer {
    pub(crate) fn new(config: Arc<ClusterConfig>) -> Self {
        Dialer { config, failing: Mutex::default(), rooms: Mutex::default(), proven: AtomicBool::new(false) }
    }

    /// A new, empty room.
    pub(crate) fn room(&self) -> Arc<Room> {
        let room = Arc::new(Room::default());
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        // Here, rather than in a drop, so that dropping an owner takes no lock of ours.
        rooms.retain(|room| room.strong_count() > 0);
        rooms.push(Arc::downgrade(&room));
        room
    }

    /// See [`Room::moved`].
    pub(crate) fn moved(&self, address_of: impl Fn(i32) -> Option<Address>) {
        let rooms: Vec<_> = {
            let rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
            rooms.iter().filter_map(Weak::upgrade).collect()
        };
        for room in rooms {
            room.moved(&address_of);
        }
    }

    /// Whether the newest attempt at this address failed and the next has to wait.
    pub(crate) fn is_held_back(&self, address: &Address) -> bool {
        self.opens(address).is_some()
    }

    fn opens(&self, address: &Address) -> Option<Instant> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.get(address)?.gate.opens(Instant::now().into_std()).map(Instant::from_std)
    }

    fn last_failure(&self, address: &Address) -> Option<Error> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.get(address).map(|failing| failing.last.clone())
    }

    fn failed(&self, address: &Address, error: Error) {
        let now = Instant::now().into_std();
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        // Addresses that are gone for good, as those of restarted pods, must not pile up.
        failing.retain(|_, failing| !failing.gate.is_forgotten(now));
        let entry = failing
            .entry(address.clone())
            .or_insert_with(|| Failing { gate: Gate::new(), last: error.clone() });
        entry.gate.failed(now, fastrand::f64(), is_refused(&error));
        entry.last = error;
    }

    fn succeeded(&self, address: &Address) {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).remove(address);
    }

    fn start(self: &Arc<Self>, address: Address) -> watch::Receiver<Dial> {
        let (sender, receiver) = watch::channel(Dial::Dialing);
        let dialer = self.clone();
        let task = async move { dialer.dial_and_run(address, sender).await };
        match &self.config.runtime {
            Some(runtime) => drop(runtime.spawn(task)),
            None => drop(tokio::spawn(task)),
        }
        receiver
    }

    async fn dial_and_run(self: Arc<Self>, address: Address, state: watch::Sender<Dial>) {
        let dialing = async {
            if let Some(opens) = self.opens(&address) {
                tokio::time::sleep_until(opens).await;
            }
            dial::dial(&self.config, &address).await
        };
        let dialed = tokio::select! {
            dialed = dialing => dialed,
            // The room is gone and nobody waits.
            () = state.closed() => return,
        };
        let socket = match dialed {
            Ok(dialed) => {
                tracing::debug!(%address, "connected");
                self.proven.store(true, Ordering::Relaxed);
                let (handle, socket) = connection(dialed, self.config.clone(), address.clone());
                state.send_replace(Dial::Ready(Arc::new(handle)));
                // The state holds the handle; kept here it would keep the connection alive for ever.
                drop(state);
                socket
            }
            Err(mut error) => {
                if super::is_hang_up(&error) && self.proven.load(Ordering::Relaxed) {
                    // Brokers that spoke TLS a moment ago are going down rather than misconfigured.
                    error = error.with_kind(ErrorKind::Disconnected);
                }
                tracing::debug!(%address, %error, "cannot connect");
                self.failed(&address, error.clone());
                state.send_replace(Dial::Failed(error));
                return;
            }
        };
        if let Some(error) = socket.run(|| self.succeeded(&address)).await {
            self.failed(&address, error);
        }
    }
}
