//! A launch of a graph: what it must find right, in which order that is looked at, and what it leaves.
//!
//! Of several things that are wrong the first in this order is reported, by the library and by the checker of whole
//! programs alike. Knows no streams and no tables: whoever keeps the lives says what is wrong with each.

use crate::graph::{Demand, LastAct, NodeId};
use crate::ids::Point;
use crate::life::{Fault, History, Kind, Site, Use};
use crate::op::{Act, Part};
use crate::order::Knows;

/// A launch, as whoever keeps the lives that it has to do with sees it.
pub trait Launch {
    /// Why it is refused.
    type Refused;

    /// What launches before left is freed, or is freed by this launch.
    fn check_unfreed(&self) -> Result<(), Self::Refused>;

    /// What the launch frees by itself is freed in order (CUDA: `cudaGraphInstantiateFlagAutoFreeOnLaunch`).
    fn check_auto_frees(&self) -> Result<(), Self::Refused>;

    /// The memory of the summary's demand of this number is there, in the life that is meant, and what is done to it is
    /// in order.
    fn check_demand(&self, number: usize) -> Result<(), Self::Refused>;

    /// What the graph was instantiated with is still there.
    fn check_pins(&self) -> Result<(), Self::Refused>;

    /// A demand is refused for another reason as well, or for the same.
    fn join(&self, refused: &mut Self::Refused, also: Self::Refused);
}

/// Whether a launch with so many demands may be made.
///
/// # Errors
/// The first thing that is wrong.
pub fn judge<L: Launch>(launch: &L, demands: usize) -> Result<(), L::Refused> {
    launch.check_unfreed()?;
    let first =
        launch.check_auto_frees().and_then(|()| (0..demands).try_for_each(|number| launch.check_demand(number)));
    match first {
        Ok(()) => launch.check_pins(),
        Err(refused) => Err(with_the_rest(launch, demands, refused)),
    }
}

/// What a launch is refused for, with what else its demands miss.
#[cold]
fn with_the_rest<L: Launch>(launch: &L, demands: usize, mut refused: L::Refused) -> L::Refused {
    let all = (0..demands).filter_map(|number| launch.check_demand(number).err());
    all.for_each(|also| launch.join(&mut refused, also));
    refused
}

/// A launch that was submitted: where what its nodes did stands in the order.
#[derive(Debug)]
pub struct Launched<P> {
    /// The launch as a whole.
    pub whole: Use,
    /// The point of a node, where the launch is more than one point ([`Lanes::point`](crate::graph::Lanes::point)).
    pub point: P,
}

impl<P: Fn(NodeId) -> Option<Point>> Launched<P> {
    /// What the launch did by itself.
    pub fn by_itself(&self, act: Act) -> Use {
        Use { site: Site { act, ..self.whole.site }, ..self.whole }
    }

    /// What one of its nodes did.
    pub fn by(&self, node: NodeId, act: Act) -> Use {
        Use { point: (self.point)(node).unwrap_or(self.whole.point), ..self.by_itself(act) }
    }

    /// What a node did to the memory, left in its history by `add`; or its free, where it frees that.
    pub fn leave(&self, last: &LastAct, add: impl FnOnce(Use)) -> Option<Use> {
        let done = self.by(last.node, last.act);
        if last.act == Act::Free {
            return Some(done);
        }
        add(done);
        None
    }
}

impl History {
    /// Whether a launch that stands there may free by itself what a launch before it left (CUDA:
    /// `cudaGraphInstantiateFlagAutoFreeOnLaunch`).
    ///
    /// # Errors
    /// What it must come after and does not.
    pub fn check_auto_free(&self, who: &impl Knows) -> Result<(), Fault> {
        self.check_free(who).map_err(|fault| Fault { kind: Kind::AutoFreeBeforeUse, ..fault })
    }

    /// Whether a launch that stands there may do to the memory what one of its demands says.
    ///
    /// # Errors
    /// What it must come after and does not.
    #[inline]
    pub fn check_demand(&self, demand: &Demand, who: &impl Knows, races: bool) -> Result<(), Fault> {
        self.check_use(demand.act, demand.part, who, races && !demand.may_share)
    }

    /// Which of a demand's nodes, by its place among them, is the first that must come after the other side of a fault.
    pub fn first_to_blame(&self, demand: &Demand, fault: &Fault) -> usize {
        let has_to = |(_, part): &(NodeId, Part)| self.uses_of(*part).any(|earlier| *earlier == fault.earlier);
        demand.nodes.iter().position(has_to).unwrap_or(0)
    }
}
