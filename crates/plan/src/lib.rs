//! Offsets for lifetimes known in advance: the smallest capacity.
//!
//! A [`Problem`] is a set of buffers and the pairs of them that may not share a byte. A [`Plan`] gives each buffer an
//! offset so that no such pair overlaps; the highest byte it uses is the capacity it needs. Finding the smallest
//! is NP-hard. [`solve`] does it in three steps, each of which may already be the last:
//!
//! 1. a proven lower bound ([`lower_bound`]): bytes that are live together need room together;
//! 2. first fit in several orders, the best kept (`millpond_core::plan`);
//! 3. a search for a plan of a smaller capacity, ended by a [`Budget`] (there is no clock in here), which either
//!    finds one or, where it runs dry, proves that there is none.
//!
//! | file | one law |
//! |---|---|
//! | `antichain` | the heaviest clique, exactly, where conflicts come from an order |
//! | `cover` | cliques that cover all buffers: what the search reasons with |
//! | `improve` | search again and again for something better, the highest part first |
//! | `search` | branch and bound: a buffer sits on its floor or waits |
//! | `solve` | the three steps |
//!
//! Invariants: **sound**: every plan that leaves here passes [`verify`]. **proven**: `bound` is a theorem, never
//! an estimate. **repeatable**: the same problem and the same number of steps give the same plan; there is no
//! randomness but a seeded one. Must not know: time, threads, devices, where lifetimes come from.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod antichain;
mod budget;
mod cover;
mod improve;
mod search;
mod solve;

pub use budget::{Budget, Progress};
pub use millpond_core::plan::{Buffer, Conflicts, Fault, Invalid, Lifetime, Plan, Problem, verify};
pub use solve::{Effort, Outcome, lower_bound, solve};
