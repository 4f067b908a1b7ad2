//! A use of memory by a stream, a launch or the host: its point in the order and its place in the program.

use super::uses::Done;
use crate::ids::{Point, StreamId};
use crate::op::{Act, Place};

/// The place of an operation in its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Site {
    /// The access.
    pub act: Act,
    /// The stream.
    pub stream: StreamId,
    /// The number of the operation in its stream, counted from 1.
    pub op: u64,
    /// The place in the source.
    pub place: Place,
}

/// A use of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// Its point in the order.
    pub point: Point,
    /// Its access and its place in the program.
    pub site: Site,
}

impl Done for Use {
    #[inline]
    fn act(&self) -> Act {
        self.site.act
    }
}
