//! Fetch answers against recorded ones, the codec, and hostile bytes.
