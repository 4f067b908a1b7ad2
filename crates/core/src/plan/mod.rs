//! Offsets for lifetimes known in advance: static placement by first fit.
//!
//! A [`Problem`] is a set of buffers and the pairs of them that may not share a byte. A [`Plan`] gives each buffer an
//! offset so that no such pair overlaps. The highest byte that it uses is the capacity that it needs. Finding the
//! smallest capacity is NP-hard; the crate `millpond-plan` searches for it. This module has what graphs need and what
//! that search begins with:
//!
//! 1. a proven lower bound ([`cliques`]): buffers that are live at the same time need room at the same time;
//! 2. first fit in several orders, of which the best is kept ([`first_fit`]): within a few percent on most programs,
//!    in well under a millisecond for a hundred buffers.
//!
//! | file | contents |
//! |---|---|
//! | `problem` | the input: buffers, and the pairs that conflict |
//! | `conflicts` | a symmetric relation as rows of bits |
//! | `parts` | the connected parts of the conflicts, which are placed independently |
//! | `cliques` | sets of buffers that all conflict, which give the bound |
//! | `greedy` | first fit, one buffer after the other |
//! | `holes` | free ranges |
//! | `verify` | the definition of a right plan, independent of the files above |
//!
//! Invariants: **sound**: every plan made here passes [`verify`]. **repeatable**: the same problem gives the same
//! plan. Must not depend on time, threads, devices, or the source of lifetimes.

pub mod bits;
pub mod cliques;
mod conflicts;
mod greedy;
mod holes;
mod parts;
mod problem;
mod verify;

pub use conflicts::{Conflicts, Lifetime, Sharing};
pub use greedy::{first_fit, first_fit_of};
pub use holes::Holes;
pub use problem::{Buffer, Invalid, Problem};
pub use verify::{Fault, verify};

/// An offset for each buffer of a [`Problem`], in the order of the buffers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The offset of each buffer, in bytes from the start of the planned memory.
    pub offsets: Vec<u64>,
    /// The bytes that the plan needs: no buffer ends above this.
    pub capacity: u64,
}

impl Plan {
    /// Copies the plan of a part into this one: the offsets of its members, and its height.
    pub fn put(&mut self, members: &[u32], offsets: &[u64], height: u64) {
        self.capacity = self.capacity.max(height);
        members.iter().zip(offsets).for_each(|(&i, &offset)| self.offsets[i as usize] = offset);
    }
}
