//! The engine's core: what is assigned, where each partition stands, what to ask which broker next, and what a
//! poll hands out. Pure: no task, no clock, no lock; drivers bring time and answers in and carry orders out.
//!
//! | file | part |
//! |---|---|
//! | `core.rs` | the state, the caller's commands |
//! | `meta.rs` | what new metadata changes |
//! | `lookup.rs` | where to start: ListOffsets and committed offsets |
//! | `marks.rs` | watermarks that outlive the answers they came in |
//! | `plan.rs` | the next fetch of one broker |
//! | `apply.rs` | an answer's headers, its errors |
//! | `check.rs` | checksums, transactions, damage: runs outside the lock |
//! | `fill.rs` | checked batches into their places; inflation |
//! | `view.rs` | what can be seen from outside |
//! | `take.rs` | what a poll hands out and takes back |
//!
//! Not here: what moves bytes (`fetcher.rs`, `driver.rs`), and who decides the assignment.
//!
//! Invariants
//! - At most one fetch per broker is in flight; its answer counts for a partition only if that partition still
//!   asks the same broker for the same offset under the same ticket.
//! - No broker waits for another, and no partition for another: back-off, faults and full queues are per
//!   partition, connection back-off per broker.
//! - Nothing is handed out twice and nothing is passed over: a slot's `end` is the position after it.

mod apply;
mod check;
mod core;
mod fill;
mod lookup;
mod marks;
mod meta;
mod plan;
mod take;
mod view;

pub(crate) use self::check::{Work, check};
pub(crate) use self::core::{Core, Effects, Settings};
pub(crate) use self::fill::InflateJob;
pub(crate) use self::lookup::{LookupOrder, Question};
pub(crate) use self::plan::{FetchOrder, FetchStep};
pub(crate) use self::take::Taken;

#[cfg(test)]
mod tests;
