//! Grants: which other devices may use a pool's memory (CUDA: `cudaMemPoolSetAccess`).
//!
//! A grant is the pool's: it holds for all that was and will be allocated from it, and for memory wherever it moves.
//! Knows mappings and the last uses of each granted device; an access without a grant is refused before it runs.
//! Locks: a pool's grants come after its heap and after allocations' lives.
//!
//! Invariants: **granted-open**: while a pool grants a device access, that device can use every mapping of it;
//! **seen-off**: access is taken away only when the host knows that every use under it has completed.

use std::cmp::Ordering;
use std::sync::Arc;

use millpond_core::check::{Act, Use};
use millpond_driver::locks::{Guard, lock};
use millpond_driver::{Driver, Peer, PeerAccess};
use smallvec::SmallVec;

use crate::clock::hosts;
use crate::names::device_name::DeviceName;
use crate::names::error::{Error, Invalid, Result};
use crate::names::shadow;
use crate::names::stream_names::side;
use crate::state::allocation::Allocation;
use crate::state::context::Context;
use crate::state::grants::Grants;
use crate::state::origin::Origin;
use crate::state::peers;
use crate::state::pool::{Heap, PoolShared};
use crate::state::stream::StreamShared;

/// A pool's device and number, and its grants, locked.
type Held<'a> = ((u32, u32), Guard<'a, Grants>);

/// An access: its place among those that were declared, to what, and how.
type Declared<'a> = (usize, &'a Allocation, Act);

/// The grants that one operation relies on, held until it is recorded.
pub(crate) struct Visit<'a> {
    device: u32,
    held: SmallVec<[Held<'a>; 2]>,
}

impl<'a> Visit<'a> {
    /// Looks whether the stream's device may do this to memory of other devices, in the order of their numbers. Each
    /// access is with its place among those that were declared; so is what is refused.
    pub(crate) fn check(
        stream: &StreamShared,
        wanted: impl Iterator<Item = Declared<'a>>,
    ) -> (Visit<'a>, Vec<(usize, Error)>) {
        let mut visit = Visit { device: stream.context.number, held: SmallVec::new() };
        let mut refused = Vec::new();
        let mut pools: SmallVec<[(&'a Arc<PoolShared>, Declared<'a>); 2]> = SmallVec::new();
        for (at, allocation, act) in wanted.filter(|(_, allocation, _)| allocation.device != visit.device) {
            match &allocation.origin {
                Origin::Pool(pool) => pools.push((pool, (at, allocation, act))),
                _ => {
                    let (what, with) = (allocation.id.to_string(), stream.title());
                    refused.push((at, Invalid::OtherDevice { what, with }.into()));
                }
            }
        }
        pools.sort_by_key(|(pool, ..)| key(pool));
        for (pool, (at, allocation, act)) in pools {
            if visit.held.last().is_none_or(|(held, _)| *held != key(pool)) {
                visit.held.push((key(pool), lock(&pool.grants)));
            }
            let granted = visit.held.last().map_or(PeerAccess::None, |(_, grants)| grants.access(visit.device));
            let needed = if act == Act::Read { PeerAccess::Read } else { PeerAccess::ReadWrite };
            if granted < needed {
                refused.push((at, no_access(stream, pool, allocation, act, granted)));
                continue;
            }
            // Whoever wants to know what has completed there asks this device.
            pool.context.chains.insert_abroad(stream.slot, &stream.progress, &stream.context.driver);
        }
        (visit, refused)
    }

    /// The operation was submitted: a use of an allocation.
    pub(crate) fn used(&mut self, allocation: &Allocation, by: Use) {
        let Origin::Pool(pool) = &allocation.origin else { return };
        if let Some((_, grants)) = self.held.iter_mut().find(|(held, _)| *held == key(pool)) {
            grants.used(self.device, by);
        }
    }
}

impl PoolShared {
    /// A device's work uses the pool's memory, let in or not. INVARIANT: seen-off.
    #[cold]
    pub(crate) fn used_abroad(&self, device: u32, by: Use) {
        lock(&self.grants).used(device, by);
    }
}

fn key(pool: &PoolShared) -> (u32, u32) {
    (pool.context.number, pool.id.0)
}

/// Cold: says whose memory it is and what to call.
#[cold]
fn no_access(
    stream: &StreamShared,
    pool: &PoolShared,
    allocation: &Allocation,
    act: Act,
    granted: PeerAccess,
) -> Error {
    Invalid::NoAccess {
        // Its life is locked by the caller.
        allocation: allocation.id.to_string(),
        pool: pool.id,
        owner: pool.context.name(),
        device: stream.context.name(),
        stream: stream.title(),
        writes: act != Act::Read,
        granted,
    }
    .into()
}

impl PoolShared {
    pub(crate) fn set_access(&self, context: &Context, peer: Peer, access: PeerAccess) -> Result<()> {
        let (device, open) = (context.name(), peers::open());
        // Held against new mappings, then against uses that rely on the grant.
        let heap = self.lock();
        let mut grants = lock(&self.grants);
        let former = grants.access(device.key());
        if access == former {
            return Ok(());
        }
        let note = |access| {
            if let (Some(tracer), Some(their)) = (&self.context.tracer, &context.tracer) {
                tracer.pool_access(self.id, their, access);
            }
        };
        if access < former {
            let checked = self.check_uses(&mut grants, &device, access);
            checked.inspect_err(|error| shadow::judged(Some(error), || note(access)))?;
        }
        let (before, after) =
            (grants.peer_access(peer, device.key(), former), grants.peer_access(peer, device.key(), access));
        let outcome = match after.cmp(&before) {
            Ordering::Equal => Ok(()),
            _ => self.let_in(&heap, peer, before, after),
        };
        let left = match outcome {
            Ok(()) => access,
            Err((_, false)) => access.min(former),
            Err((_, true)) => former,
        };
        grants.set(device, peer, left, |device| open.contains(&device));
        // Under the lock: uses that rely on the grant are written down after it, and before its end.
        if left != former {
            note(left);
        }
        outcome.map_err(|(error, _)| error.into())
    }

    /// Changes what a device may do with every mapping; an error says whether all is as it was.
    fn let_in(
        &self,
        heap: &Heap,
        peer: Peer,
        before: PeerAccess,
        after: PeerAccess,
    ) -> std::result::Result<(), (millpond_driver::DriverError, bool)> {
        let driver = &*self.context.driver;
        for (done, (at, bytes)) in heap.mappings.iter().enumerate() {
            if let Err(error) = driver.let_in(*at, *bytes, &[(peer, after)]) {
                let mut changed = heap.mappings.iter().take(done);
                let restored = changed.all(|(at, bytes)| driver.let_in(*at, *bytes, &[(peer, before)]).is_ok());
                return Err((error, restored));
            }
        }
        Ok(())
    }

    /// Whether every use that would be cut off has completed, as far as the host knows. INVARIANT: seen-off.
    fn check_uses(&self, grants: &mut Grants, device: &DeviceName, left: PeerAccess) -> Result<()> {
        let base = hosts::base();
        let Some(grant) = grants.list.iter_mut().find(|grant| grant.device.key() == device.key()) else {
            return Ok(());
        };
        grant.uses.retain(|it| !base.covers(it.point));
        let is_cut = |it: &&Use| left == PeerAccess::None || it.site.act != Act::Read;
        match grant.uses.iter().find(is_cut) {
            None => Ok(()),
            Some(last) => Err(Invalid::InUse {
                pool: self.id,
                owner: self.context.name(),
                device: device.clone(),
                last: side(device.key(), last.site),
            }
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use millpond_driver::locks::lock;

    use crate::pool::PeerAccess;
    use crate::{Device, HostConfig};

    #[test]
    fn devices_that_are_gone_or_have_nothing_are_not_kept() {
        let device = Device::host(HostConfig::default()).unwrap();
        let pool = device.default_pool();
        for round in 0..10 {
            let other = Device::host(HostConfig::default()).unwrap();
            pool.grant(&other, PeerAccess::Read).unwrap();
            assert_eq!(lock(&pool.shared.grants).list.len(), 1, "{round}");
            if round % 2 == 0 {
                pool.revoke(&other).unwrap();
                assert!(lock(&pool.shared.grants).list.is_empty(), "{round}");
            }
        }
    }
}
