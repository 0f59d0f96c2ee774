//! The workspace commands.
fn main() {}
