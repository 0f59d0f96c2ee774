//! A member of a group: what is true of both group protocols, once.
//!
//! | file | part |
//! |---|---|
//! | `protocol.rs` | what a protocol core is told and what it asks for |
//! | `core.rs` | reconciliation, callbacks, auto-commit, liveness, leaving; pure |
//! | `commit.rs` | auto-commit; pure |
//! | `orders.rs` | what the core asks of engine, driver and caller; pure |
//! | `denied.rs` | topics of a subscription that may not be seen; pure |
//! | `liveness.rs` | the promise about the time between polls; pure |
//! | `cell.rs` | the core behind its lock, and the caller's steps through it |
//! | `driver.rs` | the background task that sends what the core wants |
//! | `api.rs` | what a public kind is made of: described, begun, polled, left |
//! | `methods.rs` | the methods that all three public kinds have |
//!
//! The protocols themselves are `group.rs` (KIP-848) and `classic.rs` (JoinGroup, SyncGroup).

mod api;
pub(crate) mod cell;
mod commit;
pub(crate) mod core;
pub(crate) mod denied;
pub(crate) mod driver;
mod liveness;
#[macro_use]
mod methods;
pub(crate) mod orders;
pub(crate) mod protocol;
#[cfg(test)]
pub(crate) mod sabotage;
#[cfg(test)]
mod tests;

pub(crate) use api::{Builder, Wanted};
