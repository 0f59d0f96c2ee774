//! Writes record batches.
