//! What the handles of one cluster, its connections and its background work share.
//!
//! Handles ([`Cluster`](crate::Cluster)) keep the background work alive; the work does not keep itself alive:
//! when the last handle is dropped it is told to stop, and connections end with their rooms. Nothing here waits
//! while it holds a lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::coordinators::Coordinators;
use super::merge::Picture;
use super::refresh::Refresh;
use super::snapshot::{Broker, Snapshot};
use crate::net::{Address, Dialer, Room};
use crate::{ClusterConfig, Error, TopicName};

/// How far the refresh has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// The newest round with an answer.
    pub(crate) answered: u64,
    /// The newest round without one, and why.
    pub(crate) failed: Option<(u64, Error)>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) picture: Picture,
    pub(crate) refresh: Refresh,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Arc<ClusterConfig>,
    pub(crate) bootstrap: Vec<Address>,
    pub(crate) dialer: Arc<Dialer>,
    /// The connections everybody shares.
    pub(crate) room: Arc<Room>,
    pub(crate) coordinators: Coordinators,
    pub(crate) generation: watch::Sender<u64>,
    pub(crate) progress: watch::Sender<Progress>,
    /// Something in the refresh has changed.
    pub(crate) nudge: Notify,
    /// The last handle is gone.
    pub(crate) stop: Notify,
    state: Mutex<State>,
    turn: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(config: ClusterConfig, bootstrap: Vec<Address>) -> Self {
        let config = Arc::new(config);
        let dialer = Arc::new(Dialer::new(config.clone()));
        let refresh = Refresh::new(config.metadata_max_age);
        Shared {
            room: dialer.room(),
            dialer,
            bootstrap,
            coordinators: Coordinators::default(),
            generation: watch::Sender::new(0),
            progress: watch::Sender::default(),
            nudge: Notify::new(),
            stop: Notify::new(),
            state: Mutex::new(State { picture: Picture::default(), refresh }),
            turn: AtomicUsize::new(fastrand::usize(..1024)),
            config,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.state().picture.snapshot().clone()
    }

    /// Where a node listens, as far as is known.
    pub(crate) fn address(&self, node: i32) -> Option<Address> {
        self.state().picture.snapshot().brokers.get(&node).map(address)
    }

    /// The snapshot may have been replaced: tells whoever watches, and ends connections to old addresses.
    pub(crate) fn published(&self) {
        let snapshot = self.snapshot();
        let newer = self.generation.send_if_modified(|generation| {
            let newer = snapshot.generation > *generation;
            *generation = snapshot.generation.max(*generation);
            newer
        });
        if newer {
            self.dialer.moved(|node| snapshot.brokers.get(&node).map(address));
        }
    }

    /// Asks for an early refresh.
    pub(crate) fn suspect(&self) {
        self.state().refresh.suspect();
        self.nudge.notify_one();
    }

    /// Notes that somebody wants these topics from now on; the round to wait for.
    pub(crate) fn want(&self, topics: &[TopicName]) -> u64 {
        let round = self.state().refresh.want(Instant::now().into_std(), topics);
        self.nudge.notify_one();
        round
    }

    /// A number that grows with each call, to take turns by.
    pub(crate) fn turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }
}

pub(crate) fn address(broker: &Broker) -> Address {
    Address { host: broker.host.clone(), port: broker.port }
}
