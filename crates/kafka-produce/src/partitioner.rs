//! Which partition a record goes to that names none. Pure: randomness comes in as an argument.
//!
//! Keys go by Java's rule: murmur2 of the key, sign bit cleared, modulo **all** partitions of the topic, whether
//! they have a leader or not, so that equal keys meet whatever brokers are down.
//!
//! Records without a key stick (KIP-794): to one partition until about `batch_size` bytes went there, then to
//! another, drawn among those with a leader, in inverse proportion to how much is queued for each. The switch waits for a
//! batch to end (at most for another `batch_size`), so that it leaves no half-filled batches behind.

/// Java's hash of a key.
pub(crate) fn murmur2(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let length = u32::try_from(key.len() & 0xffff_ffff).unwrap_or(u32::MAX);
    let mut hash = 0x9747_b28c ^ length;
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

/// The partition of a key among `partitions`, which is not 0.
pub(crate) fn of_key(key: &[u8], partitions: usize) -> usize {
    let positive = usize::try_from(murmur2(key) & 0x7fff_ffff).unwrap_or(0);
    positive.checked_rem(partitions).unwrap_or(0)
}

/// A partition as the choice sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub has_leader: bool,
    /// Batches queued for it.
    pub queued: usize,
}

/// Where records without a key of one topic go.
#[derive(Debug, Default)]
pub(crate) struct Sticky {
    current: Option<usize>,
    bytes: usize,
    /// Of [`Sticky::in_turn`].
    turn: usize,
}

impl Sticky {
    /// The partition for the next record. `random` is any number; `None` when there is no partition at all.
    pub fn partition(&mut self, choices: &[Choice], random: u32) -> Option<usize> {
        match self.current {
            // One that lost its leader is left at once.
            Some(current)
                if choices.get(current).is_some_and(|choice| choice.has_leader)
                    || !choices.iter().any(|choice| choice.has_leader) =>
            {
                Some(current).filter(|current| *current < choices.len())
            }
            _ => {
                self.current = draw(choices, random);
                self.bytes = 0;
                self.current
            }
        }
    }

    /// Where records go until it moves on.
    pub fn current(&self) -> Option<usize> {
        self.current
    }

    /// A record of this many bytes went to the current partition; `batch_ended`: its last batch is full, or there
    /// is none.
    pub fn appended(&mut self, bytes: usize, batch_size: usize, batch_ended: bool) {
        self.bytes = self.bytes.saturating_add(bytes);
        let due = self.bytes >= batch_size && batch_ended;
        if due || self.bytes >= batch_size.saturating_mul(2) {
            self.current = None;
        }
    }

    /// The partition for the next record, one after the other among those with a leader.
    pub fn in_turn(&mut self, choices: &[Choice]) -> Option<usize> {
        let any = choices.iter().any(|choice| choice.has_leader);
        for _ in 0..choices.len() {
            let at = self.turn.checked_rem(choices.len())?;
            self.turn = self.turn.wrapping_add(1);
            if !any || choices.get(at).is_some_and(|choice| choice.has_leader) {
                return Some(at);
            }
        }
        None
    }
}

/// Draws among the partitions with a leader (all, when none has one); a longer queue makes a partition less likely.
fn draw(choices: &[Choice], random: u32) -> Option<usize> {
    let any = choices.iter().any(|choice| choice.has_leader);
    let candidates = || choices.iter().enumerate().filter(move |(_, choice)| choice.has_leader || !any);
    let longest = candidates().map(|(_, choice)| choice.queued).max()?;
    let weight = |choice: &Choice| u64::try_from(longest - choice.queued.min(longest)).unwrap_or(0) + 1;
    let total: u64 = candidates().map(|(_, choice)| weight(choice)).sum();
    let mut left = u64::from(random).checked_rem(total)?;
    for (at, choice) in candidates() {
        match left.checked_sub(weight(choice)) {
            Some(rest) => left = rest,
            None => return Some(at),
        }
    }
    None
}

#[cfg(test)]
mod tests;
