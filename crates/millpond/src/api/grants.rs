//! The access of other devices to a pool's memory: queried and granted (CUDA: `cudaMemPoolSetAccess`).

use std::panic::Location;

use millpond_driver::locks::lock;
use millpond_driver::{Driver, PeerAccess, process};

use crate::api::device::Device;
use crate::names::error::{Invalid, Result};
use crate::pool::handle::Pool;

impl Device {
    /// Returns `true` if this device could be [granted access](Pool::grant) to the memory of another (CUDA:
    /// `cudaDeviceCanAccessPeer`). A device always has access to its own memory.
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
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
    /// Grants another device access to all memory of this pool: to current and later allocations, also after the pool
    /// has moved memory (CUDA: `cudaMemPoolSetAccess`). The call does not wait. The device's streams may then copy from
    /// and to the memory, and its kernels may use it, in order: through an event of one device that a stream of the
    /// other waits for.
    ///
    /// Without a grant such an access is refused before it runs. Granting less than before works as
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

    /// Revokes a device's access (CUDA: `cudaMemPoolSetAccess` with `cudaMemAccessFlagsProtNone`). The call does not
    /// wait: the host must have synchronised with every use by that device, as for
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

    /// Returns the access of a device to memory of this pool (CUDA: `cudaMemPoolGetAccess`).
    pub fn access_of(&self, device: &Device) -> PeerAccess {
        let (pool, number) = (&*self.shared, device.context().number);
        if number == pool.context.number { PeerAccess::ReadWrite } else { lock(&pool.grants).access(number) }
    }
}
