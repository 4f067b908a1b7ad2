//! The devices under Millpond: one trait, and what stands behind it.
//!
//! A driver acts and does not decide: it has no policy and trusts its caller, who is the `millpond` crate. Nearly all
//! the `unsafe` of the project lives here.
//!
//! | module | one line |
//! |---|---|
//! | `contract` | [`Driver`]: what a device must be able to do, and what its caller promises |
//! | `calls` | the kinds of calls and their counts |
//! | `failures` | calls made to fail on demand |
//! | `tap` | [`Counting`] and [`Failing`]: drivers around drivers |
//! | `ledger` | ranges, chunks and mappings, as bookkeeping |
//! | `sim` | [`SimDriver`]: no memory, no threads; every call is data |
//! | `host` | [`HostDriver`]: real memory and real threads on a machine without a GPU |

mod calls;
mod contract;
mod failures;
mod host;
mod ledger;
mod panics;
mod sim;
mod tap;

pub use calls::{CallCounts, CallKind, Counters};
pub use contract::{
    Access, CopyKind, Driver, DriverError, Properties, RawChunk, RawMark, RawStream, Result, StreamFlags, Task, Work,
};
pub use failures::Failures;
pub use host::{HostConfig, HostDriver, STREAMS_MAX, Schedule, WORKERS_MAX};
pub use sim::{Call, Completion, SimConfig, SimDriver, Violation, Watch, WorkCall};
pub use tap::{Counting, Failing, Tap, Tapped};
