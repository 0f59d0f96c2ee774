//! Members as a whole, on the embedded broker and a paused clock.

mod actor;
mod book;
mod cancel;
mod core;
mod schedule;
