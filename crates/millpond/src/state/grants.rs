//! What a pool grants to other devices, and what those did with it: data of `pool/grants.rs`.

use millpond_core::check::Use;
use millpond_driver::locks::{Mutex, lock};
use millpond_driver::{Driver, Peer, PeerAccess};
use smallvec::SmallVec;

use crate::clock::mark::CountedDriver;
use crate::names::device_name::DeviceName;
use crate::sync::ranks;

/// What a pool grants.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    pub(crate) list: Vec<Grant>,
}

/// What one device may do.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) device: DeviceName,
    peer: Peer,
    access: PeerAccess,
    /// The last read and the last write of each of its chains.
    pub(crate) uses: Vec<Use>,
}

impl Grants {
    fn find(&self, device: u32) -> Option<&Grant> {
        self.list.iter().find(|grant| grant.device.key() == device)
    }

    pub(crate) fn access(&self, device: u32) -> PeerAccess {
        self.find(device).map_or(PeerAccess::None, |grant| grant.access)
    }

    /// What the driver has to let in, were `device` granted that: several of our devices may be one of the driver's.
    pub(crate) fn peer_access(&self, peer: Peer, device: u32, access: PeerAccess) -> PeerAccess {
        let others = self.list.iter().filter(|grant| grant.peer == peer && grant.device.key() != device);
        others.map(|grant| grant.access).max().unwrap_or_default().max(access)
    }

    /// Who is to be let in to new mappings.
    pub(crate) fn peers(&self) -> SmallVec<[(Peer, PeerAccess); 2]> {
        let mut peers = SmallVec::<[(Peer, PeerAccess); 2]>::new();
        for grant in self.list.iter().filter(|grant| grant.access > PeerAccess::None) {
            match peers.iter_mut().find(|(peer, _)| *peer == grant.peer) {
                Some((_, access)) => *access = grant.access.max(*access),
                None => peers.push((grant.peer, grant.access)),
            }
        }
        peers
    }

    /// Changes what a device may do, and forgets those that have nothing any more, or are gone.
    pub(crate) fn set(&mut self, device: DeviceName, peer: Peer, access: PeerAccess, is_open: impl Fn(u32) -> bool) {
        match self.list.iter_mut().find(|grant| grant.device.key() == device.key()) {
            Some(grant) => grant.access = access,
            None => self.list.push(Grant { device, peer, access, uses: Vec::new() }),
        }
        let has_something = |grant: &Grant| grant.access > PeerAccess::None || !grant.uses.is_empty();
        self.list.retain(|grant| has_something(grant) && is_open(grant.device.key()));
    }

    /// A device's work uses the memory; only the last use of a chain matters.
    pub(crate) fn used(&mut self, device: u32, by: Use) {
        let Some(grant) = self.list.iter_mut().find(|grant| grant.device.key() == device) else { return };
        let same = |it: &&mut Use| it.point.slot == by.point.slot && it.site.act == by.site.act;
        match grant.uses.iter_mut().find(same) {
            Some(last) => *last = by,
            None => grant.uses.push(by),
        }
    }
}

/// Opens a new mapping to all that the pool grants access. INVARIANT: granted-open.
pub(crate) fn open_mapping(
    driver: &CountedDriver,
    grants: &Mutex<ranks::Grants, Grants>,
    at: u64,
    bytes: u64,
) -> millpond_driver::Result<()> {
    let peers = lock(grants).peers();
    if peers.is_empty() { Ok(()) } else { driver.let_in(at, bytes, &peers) }
}
