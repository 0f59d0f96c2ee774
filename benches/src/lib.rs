//! Measuring the read and the write path. Programs for people to run and to read, not a library; nothing here is timed by a
//! test.
//!
//! | part | what it is |
//! |---|---|
//! | `log` | a log of distinct batches larger than any cache |
//! | `endless` | a broker that serves it for ever, at the least cost, in a process of its own |
//! | `floor` | the least a reader of such a log can do: TCP, CRC, one walk |
//! | `drive` | the consumer of this workspace, driven in the ways a program may |
//! | `sink` | a broker that takes whatever is written, and the least a writer can do |
//! | `slow` | a reader slower than its broker, for what it holds |
//! | `usage`, `gate` | what a process used, and whether the machine was quiet |
//! | `children` | the programs started as processes of their own, pinned |
//!
//! All of it stops at the first surprise: a bench that goes on after an error measures something else.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss
)]

pub mod children;
pub mod drive;
pub mod endless;
pub mod floor;
pub mod gate;
pub mod log;
pub mod sink;
pub mod slow;
pub mod usage;
