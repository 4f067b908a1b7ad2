//! Grants: the access of other devices to a pool's memory (CUDA: `cudaMemPoolSetAccess`).
//!
//! A grant belongs to the pool: it holds for all past and future allocations from it, and for memory wherever it moves.
//! Knows mappings and the last uses of each granted device; an access without a grant is refused before it runs. Locks:
//! a pool's grants come after its heap and after allocations' lives.
//!
//! Invariants: **granted-open**: while a pool grants a device access, that device can use every mapping of it;
//! **seen-off**: access is revoked only when the host knows that every use under it has completed.

use std::cmp::Ordering;
use std::panic::Location;
use std::sync::Arc;

use millpond_core::check::{Act, Edge, Finding, Side, Site, Use};
use millpond_core::ids::StreamId;
use millpond_core::order::{Base, Host};
use millpond_driver::locks::{Guard, Mutex, lock};
use millpond_driver::{Driver, Peer, PeerAccess};
use smallvec::SmallVec;

use crate::clock::device_event::CountedDriver;
use crate::clock::hosts;
use crate::names::device_name::DeviceName;
use crate::names::error::{Error, Invalid, Result};
use crate::names::stream_names::side;
use crate::state::allocation::{Allocation, Life, site};
use crate::state::context::Context;
use crate::state::origin::Origin;
use crate::state::peers;
use crate::state::pool::{Heap, PoolShared};
use crate::state::stream::StreamShared;
use crate::stream::report::Noted;
use crate::sync::ranks;
use crate::trace::tracer::Tracer;

/// The grants of a pool.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    list: Vec<Grant>,
}

/// The grant of one device.
#[derive(Debug)]
struct Grant {
    device: DeviceName,
    peer: Peer,
    access: PeerAccess,
    /// The last read and the last write of each of its chains.
    uses: Vec<Use>,
}

impl Grants {
    fn find(&self, device: u32) -> Option<&Grant> {
        self.list.iter().find(|grant| grant.device.key() == device)
    }

    pub(crate) fn access(&self, device: u32) -> PeerAccess {
        self.find(device).map_or(PeerAccess::None, |grant| grant.access)
    }

    /// Returns the access that the driver must set if `device` got this grant: several of our devices may be one of the
    /// driver's.
    fn peer_access(&self, peer: Peer, device: u32, access: PeerAccess) -> PeerAccess {
        let others = self.list.iter().filter(|grant| grant.peer == peer && grant.device.key() != device);
        others.map(|grant| grant.access).max().unwrap_or_default().max(access)
    }

    /// Returns the devices that get access to new mappings, with their access.
    fn peers(&self) -> SmallVec<[(Peer, PeerAccess); 2]> {
        let mut peers = SmallVec::<[(Peer, PeerAccess); 2]>::new();
        for grant in self.list.iter().filter(|grant| grant.access > PeerAccess::None) {
            match peers.iter_mut().find(|(peer, _)| *peer == grant.peer) {
                Some((_, access)) => *access = grant.access.max(*access),
                None => peers.push((grant.peer, grant.access)),
            }
        }
        peers
    }

    /// Changes the grant of a device, and removes grants without access and uses, and those of devices that are gone.
    fn set(&mut self, device: DeviceName, peer: Peer, access: PeerAccess, is_open: impl Fn(u32) -> bool) {
        match self.list.iter_mut().find(|grant| grant.device.key() == device.key()) {
            Some(grant) => grant.access = access,
            None => self.list.push(Grant { device, peer, access, uses: Vec::new() }),
        }
        let has_something = |grant: &Grant| grant.access > PeerAccess::None || !grant.uses.is_empty();
        self.list.retain(|grant| has_something(grant) && is_open(grant.device.key()));
    }

    /// Records a use by a device's work; only the last use of a chain matters.
    fn used(&mut self, device: u32, by: Use) {
        let Some(grant) = self.list.iter_mut().find(|grant| grant.device.key() == device) else { return };
        let same = |it: &&mut Use| it.point.chain == by.point.chain && it.site.act == by.site.act;
        match grant.uses.iter_mut().find(same) {
            Some(last) => *last = by,
            None => grant.uses.push(by),
        }
    }
}

/// Sets the access of all granted devices to a new mapping. INVARIANT: granted-open.
pub(crate) fn open_mapping(
    driver: &CountedDriver,
    grants: &Mutex<ranks::Grants, Grants>,
    at: u64,
    bytes: u64,
) -> millpond_driver::Result<()> {
    let peers = lock(grants).peers();
    if peers.is_empty() { Ok(()) } else { driver.let_in(at, bytes, &peers) }
}

/// A pool's device and number, and its grants, locked.
type Held<'a> = ((u32, u32), Guard<'a, Grants>);

/// An access: its position in the declaration, the allocation with its life, and the kind of access.
type Declared<'a, 'l> = (usize, &'a Allocation, &'l Life, Act);

/// The grants that one operation relies on, held until it is recorded.
pub(crate) struct Visit<'a> {
    device: u32,
    held: SmallVec<[Held<'a>; 2]>,
}

impl<'a> Visit<'a> {
    /// Checks that the stream's device may access memory of other devices in this way, in the order of their numbers.
    /// Each access comes with its position in the declaration, and so does each refusal.
    pub(crate) fn check<'l>(
        stream: &StreamShared,
        wanted: impl Iterator<Item = Declared<'a, 'l>>,
        later: Site,
    ) -> (Visit<'a>, Vec<(usize, Error)>) {
        let mut visit = Visit { device: stream.context.number, held: SmallVec::new() };
        let mut refused = Vec::new();
        let mut pools: SmallVec<[(&'a Arc<PoolShared>, Declared<'a, 'l>); 2]> = SmallVec::new();
        for it @ (at, allocation, ..) in wanted.filter(|(_, allocation, ..)| allocation.device != visit.device) {
            match &allocation.origin {
                Origin::Pool(pool) => pools.push((pool, it)),
                _ => {
                    let (what, with) = (allocation.id.to_string(), stream.title());
                    refused.push((at, Invalid::OtherDevice { what, with }.into()));
                }
            }
        }
        pools.sort_by_key(|(pool, ..)| key(pool));
        for (pool, (at, allocation, life, act)) in pools {
            if visit.held.last().is_none_or(|(held, _)| *held != key(pool)) {
                visit.held.push((key(pool), lock(&pool.grants)));
            }
            let granted = visit.held.last().map_or(PeerAccess::None, |(_, grants)| grants.access(visit.device));
            let needed = if act == Act::Read { PeerAccess::Read } else { PeerAccess::ReadWrite };
            if granted < needed {
                refused.push((at, no_access(stream, pool, (allocation, life), granted, Site { act, ..later })));
                continue;
            }
            // Completion of this chain is queried there through this device's driver.
            pool.context.chains.insert_foreign(stream.chain, &stream.progress, &stream.context.driver);
        }
        (visit, refused)
    }

    /// Records the use of an allocation by the submitted operation.
    pub(crate) fn used(&mut self, allocation: &Allocation, by: Use) {
        let Origin::Pool(pool) = &allocation.origin else { return };
        if let Some((_, grants)) = self.held.iter_mut().find(|(held, _)| *held == key(pool)) {
            grants.used(self.device, by);
        }
    }
}

impl PoolShared {
    /// Records a use of the pool's memory by a device's work, with or without access. INVARIANT: seen-off.
    #[cold]
    pub(crate) fn used_foreign(&self, device: u32, by: Use) {
        lock(&self.grants).used(device, by);
    }
}

fn key(pool: &PoolShared) -> (u32, u32) {
    (pool.context.number, pool.id.0)
}

/// The error that names the memory's owner and the call that is needed.
#[cold]
fn no_access(
    stream: &StreamShared,
    pool: &PoolShared,
    (allocation, life): (&Allocation, &Life),
    granted: PeerAccess,
    later: Site,
) -> Error {
    let [owner, device] = [&pool.context, &stream.context].map(|it| it.name().to_string());
    // The streams are of several devices, so both sides name theirs, unless there are too many to have numbers.
    let of = |site: Site, device: u32| match site.stream.of_device(device) {
        there if there.device() == Some(StreamId::FAR_DEVICE) => side(device, site),
        stream => side(device, Site { stream, ..site }),
    };
    let born = of(life.history.born().site, allocation.device);
    let (title, subject) = (pool.title().to_string(), allocation.subject(life));
    let access = if later.act == Act::Read { "Read" } else { "ReadWrite" };
    let later = of(later, stream.context.number);
    let mut finding = Finding::no_access(subject, (&owner, Some(&title)), (&device, "first"), born, later)
        .advised(format!("call `pool.grant(&device, PeerAccess::{access})` first"));
    finding.notes.push(format!("{title} grants it {granted}"));
    finding.into()
}

impl PoolShared {
    pub(crate) fn set_access(
        &self,
        context: &Context,
        peer: Peer,
        access: PeerAccess,
        caller: &'static Location<'static>,
    ) -> Result<()> {
        loop {
            if let Some(done) = self.try_set_access(context, peer, access, caller) {
                return done;
            }
        }
    }

    /// Returns `None`, and does nothing, if the process has synchronised meanwhile with what it was not known to know.
    fn try_set_access(
        &self,
        context: &Context,
        peer: Peer,
        access: PeerAccess,
        caller: &'static Location<'static>,
    ) -> Option<Result<()>> {
        let (device, open) = (context.name(), peers::open());
        // The heap is locked against new mappings, and the grants against uses that rely on them.
        let heap = self.lock();
        let mut grants = lock(&self.grants);
        let former = grants.access(device.key());
        if access == former {
            return Some(Ok(()));
        }
        let note = |access| {
            if let (Some(tracer), Some(their)) = (&self.context.tracer, &context.tracer) {
                tracer.pool_access(self.id, their, access);
            }
        };
        if access < former {
            let base = hosts::base();
            if let Err(error) = self.check_uses(&mut grants, &device, access, &base, caller) {
                let has_news = |host: &Host| !Arc::ptr_eq(host.base(), &base);
                let noted = Tracer::refused_here(self.context.tracer.as_ref(), &error, has_news, |_| note(access));
                return (noted != Noted::Anew).then_some(Err(error));
            }
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
        // Under the lock, so that uses that rely on the grant are written after it, and before its end.
        if left != former {
            note(left);
        }
        Some(outcome.map_err(|(error, _)| error.into()))
    }

    /// Changes a device's access to every mapping. An error contains `true` if all mappings were restored.
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

    /// Checks that every use that would lose its access has completed, as far as the host knows. INVARIANT: seen-off.
    fn check_uses(
        &self,
        grants: &mut Grants,
        device: &DeviceName,
        left: PeerAccess,
        base: &Base,
        caller: &'static Location<'static>,
    ) -> Result<()> {
        let Some(grant) = grants.list.iter_mut().find(|grant| grant.device.key() == device.key()) else {
            return Ok(());
        };
        grant.uses.retain(|it| !base.covers(it.point));
        let is_cut = |it: &&Use| left == PeerAccess::None || it.site.act != Act::Read;
        let cut = grant.uses.iter().filter(is_cut).map(|used| {
            let by = side(device.key(), used.site);
            (by.clone(), Edge::of(by, used.point))
        });
        let cut: Vec<_> = cut.collect();
        if cut.is_empty() {
            return Ok(());
        }
        let later = side(self.context.number, site(Act::Free, StreamId::HOST, 0, caller));
        let later = Side { verb: "revoked".to_owned(), ..later };
        let pool = format!("{} of {}", self.title(), self.context.name());
        Err(Finding::in_use(&pool, &device.to_string(), cut, later).into())
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
