//! The command `millpond` as a library, so that its parts can be tested and fuzzed one by one.
#![forbid(unsafe_code)]

pub mod recorded;
