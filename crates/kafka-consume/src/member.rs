//! A member of a group: what is true of both group protocols, once.
//!
//! | file | part |
//! |---|---|
//! | `protocol.rs` | what a protocol core is told and what it asks for |

pub(crate) mod protocol;
