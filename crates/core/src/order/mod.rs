//! The order of a program: which point comes before which.
//!
//! There are two relations, which are never mixed. **ordered** is implied by the program (stream order, record and
//! wait, synchronise); it alone decides verdicts. **completed** is observed from the device. It may influence where
//! memory is placed and allows state to be dropped, but never changes a verdict.

mod chain;
mod chain_indices;
mod clock;
pub mod default_streams;
mod host;
mod knowledge;
mod streams;

pub use chain::{Chain, next_op, op_at};
pub use chain_indices::{ChainIndices, Numbers};
pub use clock::{Clock, SPARSE_ENTRIES_MAX};
pub use host::Host;
pub use knowledge::{Base, Snapshot};
pub use streams::{HomeNumber, Stream, StreamIndex, Streams};

use crate::ids::{ChainIndex, Point, Seq};

/// A party of the order that knows what comes before its next point: a stream about to submit.
pub trait Knows {
    /// Returns the chain of the next point.
    fn chain(&self) -> ChainIndex;

    /// Returns `true` if `point` comes before the next point of this chain (the relation **ordered**).
    fn covers(&self, point: Point) -> bool;
}

/// A party that takes one point after another and learns of other chains in between.
pub trait Learns: Knows {
    /// Returns the last position at which it learned something. At every later point it knew what it knows now.
    fn learned(&self) -> Seq;
}

/// The known progress of a device (the relation **completed**).
pub trait Completed {
    /// Returns `true` if the work at `point` and before it on its chain has completed.
    fn is_over(&self, point: Point) -> bool;
}
