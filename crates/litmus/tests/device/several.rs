//! Programs of several devices. Pools that a program makes are the first device's here.

use millpond::{Device, HostConfig, PeerAccess, Pool};
use millpond_core::ids::{DeviceId, PoolId, StreamId};
use millpond_core::op::{Act, Reach};

use super::{Cannot, Run, Said, cannot, said};

impl Run {
    /// A device of the program, made where it is first named.
    pub(super) fn device_of(&mut self, device: DeviceId) -> Device {
        let fresh = || Device::host(HostConfig { schedule: self.timing.schedule(), ..HostConfig::default() });
        match device {
            DeviceId(0) => self.device.clone(),
            other => self.others.entry(other).or_insert_with(|| fresh().expect("a host device")).clone(),
        }
    }

    /// The default pool of a stream's device.
    pub(super) fn default_pool(&mut self, stream: StreamId) -> Pool {
        let home = self.homes.get(&stream).copied().unwrap_or_default();
        self.device_of(home).default_pool()
    }

    /// A pool lets a device in, or not any more.
    pub(super) fn let_in(&mut self, pool: PoolId, device: DeviceId, reach: Reach) -> Result<Said, Cannot> {
        let access = match reach {
            Reach::None => PeerAccess::None,
            Reach::Read => PeerAccess::Read,
            Reach::ReadWrite => PeerAccess::ReadWrite,
        };
        let device = self.device_of(device);
        match self.pools.get(&pool) {
            Some(pool) => Ok(said(pool.grant(&device, access), Act::Read)),
            None => cannot("a pool that is gone cannot be named"),
        }
    }
}
