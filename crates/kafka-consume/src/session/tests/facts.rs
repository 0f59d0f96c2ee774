//! One test for each fact about sessions noted from real brokers.
