//! Which other devices may use a pool's memory: asked and granted (CUDA: `cudaMemPoolSetAccess`).

use std::panic::Location;

use millpond_driver::locks::lock;
use millpond_driver::{Driver, PeerAccess, process};

use crate::api::device::Device;
use crate::names::error::{Invalid, Result};
use crate::pool::handle::Pool;

impl Device {
    /// Whether work of this device could be [let in](Pool::grant) to memory of another (CUDA:
    /// `cudaDeviceCanAccessPeer`). A device's own memory it always has.
    ///
    /// # Errors
    /// The driver refused.
    pub fn can_access(&self, other: &Device) -> Result<bool> {
        let (own, other) = (self.context(), other.context());
        match own.driver.peer() {
            _ if own.number == other.number => Ok(true),
            Some(peer) => Ok(other.driver.can_let(peer)?),
            None => Ok(false),
        }
    }
}

impl Pool {
    /// Lets another device use all memory of this pool: what was allocated from it and what will be, wherever it is
    /// moved (CUDA: `cudaMemPoolSetAccess`). Nothing waits. The device's streams may then copy from and to it, and its
    /// kernels use it, in order: an event of one device that a stream of the other waits for.
    ///
    /// Without a grant such an access is refused before it runs. Granting less than before is as
    /// [`revoke`](Self::revoke). A pool's own device always has access.
    ///
    /// # Errors
    /// [`Invalid::NotPeers`] where the device can have no access to this one's memory (CUDA:
    /// `cudaErrorInvalidDevice`). The driver refused: then nothing is granted.
    #[track_caller]
    pub fn grant(&self, device: &Device, access: PeerAccess) -> Result<()> {
        process::refuse_forked()?;
        let (pool, context) = (&*self.shared, device.context());
        if context.number == pool.context.number {
            return match access {
                PeerAccess::ReadWrite => Ok(()),
                _ => Err(Invalid::OwnAccess { pool: pool.title(), device: context.name() }.into()),
            };
        }
        if access == PeerAccess::None && self.access_of(device) == PeerAccess::None {
            return Ok(());
        }
        let not_peers = || Invalid::NotPeers { device: context.name(), other: pool.context.name() };
        let peer = context.driver.peer().ok_or_else(not_peers)?;
        if access > PeerAccess::None {
            if !pool.context.driver.can_let(peer)? {
                return Err(not_peers().into());
            }
            pool.context.meet(context);
            context.finish_guests();
            if let Some(memory) = pool.context.driver.held_memory()
                && lock(&context.guests).add(pool.context.number, &memory)
            {
                context.driver.keep(memory);
            }
        }
        pool.set_access(context, peer, access, Location::caller())
    }

    /// Takes a device's access away again (CUDA: `cudaMemPoolSetAccess` with `cudaMemAccessFlagsProtNone`). It waits
    /// for nothing: the host must have synchronised with every use by that device, as for
    /// [`Device::free`](crate::Device::free). Without a grant this has no effect.
    ///
    /// # Errors
    /// A violation: the host does not know that a use has completed; the grant is as it was. The driver
    /// refused: the grant is as it was, or, where the driver also refuses to restore that, it is gone.
    #[track_caller]
    pub fn revoke(&self, device: &Device) -> Result<()> {
        process::refuse_forked()?;
        self.grant(device, PeerAccess::None)
    }

    /// What a device may do with memory of this pool (CUDA: `cudaMemPoolGetAccess`).
    pub fn access_of(&self, device: &Device) -> PeerAccess {
        let (pool, number) = (&*self.shared, device.context().number);
        if number == pool.context.number { PeerAccess::ReadWrite } else { lock(&pool.grants).access(number) }
    }
}
