//! The protocol of a graph launch: what is checked, in which order, and what the launch leaves.
//!
//! If several things are wrong, the first in this order is reported, by the library and by the checker of whole
//! programs alike. Knows no streams and no tables: the owner of the lifetimes decides what is wrong with each.

use crate::graph::{Demand, LastAct, NodeId};
use crate::ids::Point;
use crate::life::{Fault, History, Kind, Site, Use};
use crate::op::{Act, Part};
use crate::order::Knows;

/// A launch, as seen by the owner of the lifetimes that it concerns.
pub trait Launch {
    /// The type of a refusal.
    type Refused;

    /// Checks that memory that earlier launches left is freed, or is freed by this launch.
    fn check_unfreed(&self) -> Result<(), Self::Refused>;

    /// Checks the order of the frees by the launch itself (CUDA: `cudaGraphInstantiateFlagAutoFreeOnLaunch`).
    fn check_auto_frees(&self) -> Result<(), Self::Refused>;

    /// Checks the summary's demand with this number: the memory is live, in the lifetime that is meant, and the act on
    /// it is in order.
    fn check_demand(&self, number: usize) -> Result<(), Self::Refused>;

    /// Checks that the lifetimes that the graph was instantiated with are still live.
    fn check_pins(&self) -> Result<(), Self::Refused>;

    /// Adds another reason to the refusal of a demand. It may be the same reason.
    fn join(&self, refused: &mut Self::Refused, also: Self::Refused);
}

/// Checks that a launch with this number of demands may be made.
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

/// Adds what the other demands lack to a refusal.
#[cold]
fn with_the_rest<L: Launch>(launch: &L, demands: usize, mut refused: L::Refused) -> L::Refused {
    let all = (0..demands).filter_map(|number| launch.check_demand(number).err());
    all.for_each(|also| launch.join(&mut refused, also));
    refused
}

/// A submitted launch, and the points of the acts of its nodes.
#[derive(Debug)]
pub struct Launched<P> {
    /// The launch as a whole.
    pub whole: Use,
    /// The point of a node, if the launch is more than one point ([`Lanes::point`](crate::graph::Lanes::point)).
    pub point: P,
}

impl<P: Fn(NodeId) -> Option<Point>> Launched<P> {
    /// Returns an act of the launch itself.
    pub fn by_itself(&self, act: Act) -> Use {
        Use { site: Site { act, ..self.whole.site }, ..self.whole }
    }

    /// Returns an act of one of its nodes.
    pub fn by(&self, node: NodeId, act: Act) -> Use {
        Use { point: (self.point)(node).unwrap_or(self.whole.point), ..self.by_itself(act) }
    }

    /// Passes the last act of a node on some memory to `add`, for the history of that memory. If the act is a free,
    /// returns it instead.
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
    /// Checks that a launch by `who` may free by itself what an earlier launch left (CUDA:
    /// `cudaGraphInstantiateFlagAutoFreeOnLaunch`).
    ///
    /// # Errors
    /// The order that the free lacks.
    pub fn check_auto_free(&self, who: &impl Knows) -> Result<(), Fault> {
        self.check_free(who).map_err(|fault| Fault { kind: Kind::AutoFreeBeforeUse, ..fault })
    }

    /// Checks that a launch by `who` may do to the memory what one of its demands says.
    ///
    /// # Errors
    /// The order that the demand lacks.
    #[inline]
    pub fn check_demand(&self, demand: &Demand, who: &impl Knows, races: bool) -> Result<(), Fault> {
        self.check_use(demand.act, demand.part, who, races && !demand.may_share)
    }

    /// Returns the index of the first node of a demand that must come after the other side of a fault.
    pub fn first_to_blame(&self, demand: &Demand, fault: &Fault) -> usize {
        let has_to = |(_, part): &(NodeId, Part)| self.uses_of(*part).any(|earlier| *earlier == fault.earlier);
        demand.nodes.iter().position(has_to).unwrap_or(0)
    }
}
