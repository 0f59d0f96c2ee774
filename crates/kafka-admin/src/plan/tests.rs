//! Scripts of one plan.
