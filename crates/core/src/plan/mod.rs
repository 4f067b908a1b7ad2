//! Offsets for lifetimes known in advance: static placement by first fit.
//!
//! A [`Problem`] is a set of buffers and the pairs of them that may not share a byte. A [`Plan`] gives each buffer an
//! offset so that no such pair overlaps; the highest byte it uses is the capacity it needs. Finding the smallest
//! is NP-hard: the crate `millpond-plan` searches for it. Here are what graphs need, and it begins with:
//!
//! 1. a proven lower bound ([`cliques`]): bytes that are live together need room together;
//! 2. first fit in several orders, the best kept ([`first_fit`]): good to a few percent on most programs, in well under
//!    a millisecond for a hundred buffers.
//!
//! | file | one law |
//! |---|---|
//! | `problem` | what is asked: buffers, and which pairs conflict |
//! | `conflicts` | a symmetric relation as rows of bits |
//! | `parts` | buffers that are tied together by conflicts, and only those, are placed together |
//! | `cliques` | sets of buffers that all conflict: what the bound follows from |
//! | `greedy` | first fit, one buffer after the other |
//! | `verify` | the definition of a right plan, knowing nothing of the above |
//!
//! Invariants: **sound**: every plan that leaves here passes [`verify`]. **repeatable**: the same problem gives the
//! same plan. Must not know: time, threads, devices, where lifetimes come from.

pub mod bits;
pub mod cliques;
mod conflicts;
mod greedy;
mod parts;
mod problem;
mod verify;

pub use conflicts::{Conflicts, Lifetime, Sharing};
pub use greedy::{first_fit, first_fit_of};
pub use problem::{Buffer, Invalid, Problem};
pub use verify::{Fault, verify};

/// An offset for each buffer of a [`Problem`], in its order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Where each buffer begins, in bytes from the start of the memory planned.
    pub offsets: Vec<u64>,
    /// How many bytes the plan needs: no buffer ends above this.
    pub capacity: u64,
}

impl Plan {
    /// Puts the plan of a part into this one: the offsets of its members, and its height.
    pub fn put(&mut self, members: &[u32], offsets: &[u64], height: u64) {
        self.capacity = self.capacity.max(height);
        members.iter().zip(offsets).for_each(|(&i, &offset)| self.offsets[i as usize] = offset);
    }
}
