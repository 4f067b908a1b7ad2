//! Programs of several devices.

use std::collections::hash_map::Entry;

use millpond::pool::PeerAccess;
use millpond::{Device, Pool};
use millpond_core::ids::{DeviceId, PoolId, StreamId};
use millpond_core::op::{Act, Reach, StreamRole};
use millpond_core::order::default_streams::Standing;

use crate::{Cannot, Run, Said, cannot, said};

impl Run {
    /// Returns a device of the program. Opens it if it was not named before.
    pub(crate) fn device_of(&mut self, device: DeviceId) -> Result<Device, Cannot> {
        if device == DeviceId(0) {
            return Ok(self.devices.first.clone());
        }
        if self.is_capturing() && !self.devices.others.contains_key(&device) {
            return cannot("a device is opened with its pool, which a capture of the same trace forbids");
        }
        Ok(match self.devices.others.entry(device) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(free) => {
                free.insert(self.devices.place.device(device.0, self.devices.trace.clone())?).clone()
            }
        })
    }

    pub(crate) fn create_stream(
        &mut self,
        stream: StreamId,
        role: StreamRole,
        device: DeviceId,
    ) -> Result<Said, Cannot> {
        self.streams.devices.insert(stream, device);
        if role == StreamRole::Legacy {
            self.streams.legacy.insert(stream);
        }
        if role == StreamRole::PerThread {
            self.streams.per_thread.insert(stream);
        }
        if role.standing() == Standing::Tied {
            self.streams.blocking.insert(stream);
        }
        let device = self.device_of(device)?;
        let made = match role {
            StreamRole::Blocking => device.stream(),
            StreamRole::NonBlocking => device.non_blocking_stream(),
            StreamRole::PerThread => device.per_thread_stream(),
            StreamRole::Legacy => Ok(device.legacy_stream()),
        };
        match made {
            Ok(made) => {
                self.streams.all.insert(stream, made);
                Ok(Said::Done)
            }
            Err(error) => Ok(Said::Refused(error, Act::Read)),
        }
    }

    /// Returns the default pool of a stream's device.
    pub(crate) fn default_pool(&mut self, stream: StreamId) -> Result<Pool, Cannot> {
        let home = self.streams.devices.get(&stream).copied().unwrap_or_default();
        Ok(self.device_of(home)?.default_pool())
    }

    /// Grants or revokes a device's access to a pool.
    pub(crate) fn let_in(&mut self, pool: PoolId, device: DeviceId, reach: Reach) -> Result<Said, Cannot> {
        let access = match reach {
            Reach::None => PeerAccess::None,
            Reach::Read => PeerAccess::Read,
            Reach::ReadWrite => PeerAccess::ReadWrite,
        };
        let device = self.device_of(device)?;
        match self.memory.pools.get(&pool) {
            Some(pool) => Ok(said(pool.grant(&device, access), Act::Free)),
            None => cannot("a pool that is gone cannot be named"),
        }
    }
}
