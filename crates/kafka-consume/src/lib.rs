//! kafka-consume
