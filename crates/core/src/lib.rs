//! The pure part of Millpond: it decides the order of operations, the placement of memory and the findings.
//!
//! Pure data structures: no threads, no clock, no I/O, no device. Everything here can be replayed, fuzzed and
//! compared with a naive twin.
//!
//! The modules from the bottom up. A module uses only the modules above it in this list; a test checks this.
//!
//! | module | contents |
//! |---|---|
//! | [`ids`] | number types that cannot be mixed up |
//! | [`units`] | checked address arithmetic |
//! | [`op`] | every operation of a program, as data |
//! | [`order`] | clocks, snapshots, streams, events, host threads: which point comes before which |
//! | [`life`] | the lifetime of an allocation: its uses, and what the next operation must come after |
//! | [`space`] | which physical chunk backs which virtual range |
//! | [`plan`] | offsets for lifetimes known in advance |
//! | [`pool`] | free bytes: which streams may use them, and after what |
//! | [`graph`] | graphs that own memory: built, captured, checked, placed, backed |
//! | [`check`] | the checker: is the program's own order right? |
//! | [`share`] | the messages between processes that share memory |
//! | [`trace`] | operations as bytes |
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod check;
pub mod graph;
pub mod ids;
pub mod life;
pub mod op;
pub mod order;
pub mod plan;
pub mod pool;
pub mod share;
pub mod space;
pub mod trace;
pub mod units;
