//! The engine's core without tasks, sockets and clocks: rules one by one, and a random model of the whole.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod absent;
mod answers;
mod broker;
mod handing_out;
mod interleavings;
mod leases;
mod model;
mod oracle;
mod rig;
mod room;
