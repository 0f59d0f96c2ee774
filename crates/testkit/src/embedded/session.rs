//! Fetch sessions (KIP-227) as a broker keeps them: one cache per node.
//!
//! A session is not bound to a connection. It survives a request with a wrong epoch, moves partitions that gave
//! records to the end of its order, and vanishes when its last partition is forgotten.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use uuid::Uuid;

/// One partition as a request names it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Asked {
    /// Resolved name; `None` when the id is not known (yet).
    pub topic: Option<String>,
    /// Nil in requests by name.
    pub id: Uuid,
    pub partition: i32,
    pub leader_epoch: i32,
    pub offset: i64,
    pub last_fetched_epoch: i32,
    pub max_bytes: i32,
}

impl Asked {
    pub fn same_partition(&self, other: &Asked) -> bool {
        self.partition == other.partition
            && if self.id.is_nil() && other.id.is_nil() {
                self.topic == other.topic
            } else {
                self.id == other.id
            }
    }
}

/// A partition of a session with what its last answer said.
#[derive(Clone, Debug)]
pub(super) struct Cached {
    pub asked: Asked,
    pub high_watermark: i64,
    pub last_stable_offset: i64,
    pub log_start_offset: i64,
}

impl Cached {
    pub fn new(asked: Asked) -> Self {
        Cached { asked, high_watermark: -1, last_stable_offset: -1, log_start_offset: -1 }
    }
}

#[derive(Debug)]
pub(super) struct Session {
    /// The epoch the next request must carry.
    pub epoch: i32,
    pub by_id: bool,
    /// In the order of serving.
    pub partitions: Vec<Cached>,
}

impl Session {
    /// Applies the added, altered and forgotten partitions of an incremental request.
    pub fn update(&mut self, asked: Vec<Asked>, forget: &[Asked]) {
        for new in asked {
            match self.partitions.iter_mut().find(|cached| cached.asked.same_partition(&new)) {
                Some(cached) => cached.asked = new,
                None => self.partitions.push(Cached::new(new)),
            }
        }
        self.partitions.retain(|cached| !forget.iter().any(|gone| cached.asked.same_partition(gone)));
    }
}

/// The epoch after `epoch`: 0 and −1 have meanings of their own and are left out.
pub(super) fn next_epoch(epoch: i32) -> i32 {
    if epoch < 0 { 0 } else { epoch.checked_add(1).unwrap_or(1) }
}

pub(super) type Shared = Arc<Mutex<Session>>;

/// The sessions of one node.
#[derive(Debug)]
pub(super) struct Cache {
    pub slots: usize,
    sessions: HashMap<i32, Shared>,
    made: u32,
}

impl Cache {
    /// The node's number keeps the ids of different nodes apart.
    pub fn new(slots: usize, node: i32) -> Self {
        Cache { slots, sessions: HashMap::new(), made: node.unsigned_abs().wrapping_shl(20) }
    }

    pub fn find(&self, id: i32) -> Option<Shared> {
        self.sessions.get(&id).cloned()
    }

    pub fn remove(&mut self, id: i32) -> bool {
        self.sessions.remove(&id).is_some()
    }

    pub fn clear(&mut self) {
        self.sessions.clear();
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// A new session, or `None` when every slot is taken.
    pub fn open(&mut self, by_id: bool, partitions: Vec<Cached>) -> Option<i32> {
        if self.sessions.len() >= self.slots {
            return None;
        }
        // Ids look random, as a broker's do, so that no client can rely on their order.
        self.made = self.made.wrapping_add(1);
        let mixed = self.made.wrapping_mul(0x9E37_79B1) >> 1;
        let id = i32::try_from(mixed.max(1)).unwrap_or(1);
        let session = Session { epoch: 1, by_id, partitions };
        self.sessions.insert(id, Arc::new(Mutex::new(session)));
        Some(id)
    }
}
