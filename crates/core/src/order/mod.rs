//! What comes before what.
//!
//! Two relations, never mixed. **ordered** is implied by the program (stream order, record and wait,
//! synchronise); it alone decides verdicts. **completed** is observed from the device; it may steer where memory
//! is placed and lets state be forgotten, and never changes a verdict.

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

/// A party that stands at a point of the order and knows what lies before it: a stream about to submit.
pub trait Knows {
    /// The chain on which the next point will be.
    fn chain(&self) -> ChainIndex;

    /// Whether `point` comes before the next point of this chain (the relation *ordered*).
    fn covers(&self, point: Point) -> bool;
}

/// A party that takes one point after another and learns of other chains in between.
pub trait Learns: Knows {
    /// The last position at which it learned something: at every later point it knew what it knows now.
    fn learned(&self) -> Seq;
}

/// What the device is known to be past (the relation *completed*).
pub trait Completed {
    /// Whether the work at `point` and before it on its chain has completed.
    fn is_over(&self, point: Point) -> bool;
}
