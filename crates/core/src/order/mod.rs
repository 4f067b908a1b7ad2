//! What comes before what.
//!
//! Two relations, never mixed. **ordered** is implied by the program (stream order, record and wait,
//! synchronise); it alone decides verdicts. **completed** is observed from the device; it may steer where memory
//! is placed and lets state be forgotten, and never changes a verdict.

mod chain;
mod clock;
pub mod default_streams;
mod host;
mod knowledge;
mod slots;
mod streams;

pub use chain::{Chain, next_op, op_at};
pub use clock::{Clock, SPARSE_ENTRIES_MAX};
pub use host::Host;
pub use knowledge::{Base, Snapshot};
pub use slots::{Numbers, Slots};
pub use streams::{HomeNumber, Seat, Stream, Streams};

use crate::ids::{Point, Seq, Slot};

/// A party that stands at a point of the order and knows what lies before it: a stream about to submit.
pub trait Knows {
    /// The chain on which the next point will be.
    fn slot(&self) -> Slot;

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
