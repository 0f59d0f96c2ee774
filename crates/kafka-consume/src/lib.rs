//! kafka-consume

// Until the engine that drives them is in, nothing uses these.
#[allow(dead_code, unused_imports)]
mod coordinator;
#[allow(dead_code, unused_imports)]
mod offsets;
#[allow(dead_code, unused_imports)]
mod session;
