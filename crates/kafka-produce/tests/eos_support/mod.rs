//! What the exactly-once tests share: a source of any consumer kind, a worker that copies in transactions as the guide
//! says, ways to get it wrong on purpose, and an oracle.
#![allow(dead_code, missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

pub mod cases;
pub mod life;
pub mod oracle;
pub mod source;
pub mod worker;

/// What is read, what is written, and by which group.
#[derive(Clone, Debug)]
pub struct Names {
    pub input: String,
    pub output: String,
    pub group: String,
}

impl Names {
    /// Of their own for each use of one cluster.
    pub fn of(what: &str) -> Names {
        Names { input: format!("{what}-in"), output: format!("{what}-out"), group: format!("{what}-copy") }
    }
}

/// What a record of the input says about itself: its partition and its number there.
pub fn value(partition: i32, number: i64) -> String {
    format!("{partition}:{number}")
}
