//! The part of Millpond that decides: what comes before what, which bytes are free, what is wrong.
//!
//! Pure data structures: no threads, no clock, no input or output, no device. Everything here can be
//! replayed, fuzzed and compared with a naive twin.
//!
//! Bottom up; a module uses only those above it in this list, and a test holds that:
//!
//! | module | one line |
//! |---|---|
//! | [`ids`] | numbers that cannot be mixed up |
//! | [`units`] | checked address arithmetic |
//! | [`op`] | everything a program can do, as data |
//! | [`order`] | clocks, snapshots, streams, events, host threads: what comes before what |
//! | [`life`] | one piece of memory: what was done to it, and what the next act has to come after |
//! | [`space`] | which physical chunk backs which virtual range |
//! | [`plan`] | offsets for lifetimes known in advance |
//! | [`pool`] | which bytes are free, for whom, after what |
//! | [`graph`] | graphs that own memory: built, captured, checked, placed, backed |
//! | [`check`] | is the program's own order right |
//! | [`share`] | what processes that share memory say to each other |
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
