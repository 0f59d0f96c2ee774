//! What a producer counts, as plain numbers to be exported by whatever the application uses.

use crate::engine::Engine;

/// Counters since the producer was made, and what it holds now.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ProducerMetrics {
    /// Records acknowledged, or handed to the connection under `acks = None` (`record-send-total`).
    pub records: u64,
    /// Bytes of batches sent, packed, those sent again included (`outgoing-byte-total`).
    pub bytes: u64,
    /// Batches sent, those sent again included.
    pub batches: u64,
    /// Produce requests sent (`request-total`).
    pub requests: u64,
    /// Batches to be sent again (`record-retry-total` counts their records).
    pub retries: u64,
    /// Records that failed after they had been placed in a batch (`record-error-total`).
    pub errors: u64,
    /// Batches split because a broker found them too large (`batch-split-total`).
    pub splits: u64,
    /// Times a partition's sequences began anew because a batch with sequences was given up, or because a broker
    /// had lost state.
    pub epoch_bumps: u64,
    /// Bytes of records in batches without an outcome.
    pub buffered_bytes: usize,
    /// Records that wait for room in `buffer_memory` (`waiting-threads`).
    pub waiting_records: usize,
}

impl ProducerMetrics {
    pub(crate) fn of(engine: &Engine) -> ProducerMetrics {
        let counts = engine.counts();
        ProducerMetrics {
            records: counts.records,
            bytes: counts.bytes,
            batches: counts.batches,
            requests: counts.requests,
            retries: counts.retries,
            errors: counts.errors,
            splits: counts.splits,
            epoch_bumps: counts.epoch_bumps,
            buffered_bytes: engine.buffered(),
            waiting_records: engine.waiting(),
        }
    }
}
