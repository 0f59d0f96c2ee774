//! The session against recorded exchanges and a model of the broker.
