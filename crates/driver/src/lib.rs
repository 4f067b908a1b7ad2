//! The devices under Millpond: one trait, and what stands behind it.
//!
//! A driver acts and does not decide: it has no policy, keeps no statistics and trusts its caller, who is the
//! `millpond` crate. Nearly all the `unsafe` of the project lives here.

mod contract;

pub use contract::{
    Access, CopyKind, Driver, DriverError, Properties, RawChunk, RawMark, RawStream, Result, StreamFlags, Task, Work,
};
