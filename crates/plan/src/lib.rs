//! Offsets for lifetimes that are known in advance, within the smallest capacity.
//!
//! A [`Problem`] is a set of buffers and the pairs of them that may not share a byte. A [`Plan`] gives each buffer an
//! offset so that no such pair overlaps. The end of its highest buffer is the capacity that it needs. Finding the
//! smallest capacity is NP-hard. [`solve`] takes three steps, and may be done after each:
//!
//! 1. a proven lower bound ([`lower_bound`]): bytes that are live at the same time need separate room;
//! 2. first fit in several orders, of which the best is kept (`millpond_core::plan`);
//! 3. a search for a plan of a smaller capacity, limited by a [`Budget`] (this crate has no clock). It finds such a
//!    plan or, if it runs to its end, proves that there is none. Only a problem of lifetimes is searched.
//!
//! | file | contents |
//! |---|---|
//! | `cover` | cliques that cover all buffers, for the search |
//! | `improve` | repeated searches for a better plan, the highest part first |
//! | `search` | branch and bound: a buffer sits on its floor or waits |
//! | `solve` | the three steps |
//!
//! Invariants: **sound**: every plan that leaves this crate passes [`verify`]. **proven**: `bound` is a theorem, never
//! an estimate. **repeatable**: the same problem and the same number of steps give the same plan; all randomness is
//! seeded. This crate must not know time, threads, devices or the source of the lifetimes.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod budget;
mod cover;
mod improve;
mod search;
mod solve;

pub use budget::{Budget, Progress};
pub use millpond_core::plan::{Buffer, Fault, Invalid, Lifetime, Plan, Problem, verify};
pub use solve::{Effort, Outcome, lower_bound, solve};
