//! What a launch of a graph must find right, and in which order that is looked at.
//!
//! Of several things that are wrong the first in this order is reported, by the library and by the checker of whole
//! programs alike. Knows no streams and no tables: whoever keeps the lives says what is wrong with each.

use super::history::{Fault, History};
use super::kind::Kind;
use crate::graph::Demand;
use crate::op::{Act, Part};
use crate::order::Knows;

/// A launch, as whoever keeps the lives that it has to do with sees it.
pub trait Launch {
    /// Why it is refused.
    type Refused;

    /// What launches before left is freed, or is freed by this launch.
    fn check_unfreed(&self) -> Result<(), Self::Refused>;

    /// Nothing else lives where this launch allocates.
    fn check_addresses(&self) -> Result<(), Self::Refused>;

    /// What the launch frees by itself is freed in order (CUDA: `cudaGraphInstantiateFlagAutoFreeOnLaunch`).
    fn check_auto_frees(&self) -> Result<(), Self::Refused>;

    /// The memory of the summary's demand of this number is there, in the life that is meant, and what is done to it is
    /// in order.
    fn check_demand(&self, number: usize) -> Result<(), Self::Refused>;

    /// What the graph was instantiated with is still there.
    fn check_pins(&self) -> Result<(), Self::Refused>;
}

/// Whether a launch with so many demands may be made.
///
/// # Errors
/// The first thing that is wrong.
pub fn judge<L: Launch>(launch: &L, demands: usize) -> Result<(), L::Refused> {
    launch.check_unfreed()?;
    launch.check_addresses()?;
    launch.check_auto_frees()?;
    (0..demands).try_for_each(|number| launch.check_demand(number))?;
    launch.check_pins()
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
        match demand.act {
            Act::Free => self.check_free(who),
            act => self.check_use(act, Part::WHOLE, who, races && !demand.may_share),
        }
    }
}
