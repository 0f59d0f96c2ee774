//! kafka-consume

// Until the fetcher that drives it is in, nothing uses it.
#[allow(dead_code, unused_imports)]
mod session;
