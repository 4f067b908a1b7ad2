//! What a stream, a launch or the host does to memory: where it stands in the order, and where in the program.

use super::uses::Done;
use crate::ids::{Point, StreamId};
use crate::op::{Act, Place};

/// Where an operation stands in its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Site {
    /// What it does.
    pub act: Act,
    /// On which stream.
    pub stream: StreamId,
    /// The how many-th operation of that stream it is, counted from 1.
    pub op: u64,
    /// Where in the source.
    pub place: Place,
}

/// One thing done to an allocation: where in the order, and by whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// Its point.
    pub point: Point,
    /// What it was and where it stands in the program.
    pub site: Site,
}

impl Done for Use {
    #[inline]
    fn act(&self) -> Act {
        self.site.act
    }
}
