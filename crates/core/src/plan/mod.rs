//! Offsets for lifetimes known in advance: static placement.
//!
//! A [`Problem`] is a set of buffers and the pairs of them that may not share a byte. A [`Plan`] gives each buffer an
//! offset so that no such pair overlaps; the highest byte it uses is the capacity it needs. Finding the smallest
//! is NP-hard. [`solve`] does it in three steps, each of which may already be the last:
//!
//! 1. a proven lower bound ([`lower_bound`]): bytes that are live together need room together;
//! 2. first fit in several orders, the best kept: good to a few percent on most programs, in well under a
//!    millisecond for a hundred buffers;
//! 3. a search for a plan of a smaller capacity, ended by a [`Budget`] (there is no clock in here), which either
//!    finds one or, where it runs dry, proves that there is none.
//!
//! | file | one law |
//! |---|---|
//! | `problem` | what is asked: buffers, and which pairs conflict |
//! | `conflicts` | a symmetric relation as rows of bits |
//! | `parts` | buffers that are tied together by conflicts, and only those, are placed together |
//! | `cliques` | sets of buffers that all conflict: what the bound and the search reason with |
//! | `antichain` | the heaviest clique, exactly, where conflicts come from an order |
//! | `greedy` | first fit, one buffer after the other |
//! | `improve` | search again and again for something better, the highest part first |
//! | `search` | branch and bound: a buffer sits on its floor or waits |
//! | `verify` | the definition of a right plan, knowing nothing of the above |
//!
//! Invariants: **sound**: every plan that leaves here passes [`verify`]. **proven**: `bound` is a theorem, never
//! an estimate. **repeatable**: the same problem and the same number of steps give the same plan; there is no
//! randomness but a seeded one. Must not know: time, threads, devices, where lifetimes come from.

mod antichain;
mod bits;
mod budget;
mod cliques;
mod conflicts;
mod greedy;
mod improve;
mod parts;
mod problem;
mod search;
mod solve;
mod verify;

pub use budget::{Budget, Progress};
pub use conflicts::{Conflicts, Lifetime};
pub use problem::{Buffer, Invalid, Problem};
pub use solve::{Effort, Outcome, lower_bound, solve};
pub use verify::{Fault, verify};

/// An offset for each buffer of a [`Problem`], in its order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Where each buffer begins, in bytes from the start of the memory planned.
    pub offsets: Vec<u64>,
    /// How many bytes the plan needs: no buffer ends above this.
    pub capacity: u64,
}
