//! The names that other processes have for points of this order.
//!
//! Devices of this process that have met know points of each other. A chain is named by the device that has it,
//! whichever device reports it, so that it has one name for all. Depends on points and indices. It holds devices, so
//! it must not be dropped under a lock.

use millpond_core::check::{Site, Use};
use millpond_core::ids::Point;
use millpond_core::share::{ForeignEnd, ForeignPoint, ForeignUse};
use millpond_driver::locks::lock;

use crate::state::context::Context;
use crate::state::context::FoundContext;
use crate::state::peers;

/// The devices that know the name of a point.
pub(in crate::share) struct Names<'c> {
    own: &'c Context,
    number: u128,
    /// Other devices of this process.
    others: Vec<FoundContext>,
}

impl<'c> Names<'c> {
    /// Makes the names for a device with this number.
    pub(in crate::share) fn new(own: &'c Context, number: u128) -> Self {
        Self { own, number, others: peers::met(own) }
    }

    /// As [`new`](Self::new), but for points of that device's own chains only.
    pub(in crate::share) fn of_own(own: &'c Context, number: u128) -> Self {
        Self { own, number, others: Vec::new() }
    }

    /// Returns the name of a point of this order, or `None` for a chain that is forgotten.
    pub(in crate::share) fn end(&self, point: Point) -> Option<ForeignEnd> {
        let has = |context: &Context| context.chains.begin(point.chain).is_some();
        let other = self.others.iter().filter(|_| !has(self.own)).find(|other| has(other));
        let Some(other) = other else { return self.own.foreign_end(self.number, point) };
        let number = other.share.number().ok()?;
        let mut end = other.foreign_end(number, point)?;
        if end.point.device == number {
            end.process = std::process::id();
        }
        Some(end)
    }

    /// Returns a use as other processes see it, or `None` if its process is forgotten.
    pub(in crate::share) fn foreign_use(&self, known: &Use) -> Option<ForeignUse> {
        let ForeignEnd { point, process } = self.end(known.point)?;
        let Site { act, stream, op, .. } = known.site;
        Some(ForeignUse { point, act, stream: stream.0, op: op.min(point.seq), process })
    }
}

impl Context {
    /// Returns the name of a point of a chain that this device has.
    fn foreign_end(&self, number: u128, point: Point) -> Option<ForeignEnd> {
        let chains = lock(&self.share.foreign.chains);
        let Some(name) = chains.names.get(&point.chain) else {
            let begin = self.chains.begin(point.chain).filter(|_| !chains.foreign.contains_key(&point.chain))?;
            let seq = point.seq.saturating_sub(begin);
            return Some(ForeignEnd { point: ForeignPoint { device: number, chain: point.chain.0, seq }, process: 0 });
        };
        let chain = chains.here.get(name)?;
        (point.seq > chain.origin).then(|| chains.foreign_end(name, point.seq - chain.origin)).flatten()
    }
}
