//! What other devices may do with the memory of a pool or a device, now or as of when it was allocated.
//!
//! Knows neither memory nor time: who keeps a copy has what was granted then.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::ids::{DeviceId, PoolId, ProcessId};
use crate::life::Site;
use crate::op::{Act, Reach};

/// Whose memory it is that another device may use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Lender {
    /// A pool's.
    Pool(PoolId),
    /// What exists at once on a device, of a process.
    Device(ProcessId, DeviceId),
}

/// What uses memory of another device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum User {
    /// A kernel, of the stream's device, or of another one.
    Kernel(Option<DeviceId>),
    /// Other work, which reaches all memory that exists at once.
    Other(Option<DeviceId>),
}

/// What it lets other devices do now. A copy stays as it is, and costs nothing until the pool's is changed.
#[derive(Clone, Debug, Default)]
pub(super) struct LetIn(Arc<FxHashMap<DeviceId, Reach>>);

impl LetIn {
    pub(super) fn set(&mut self, device: DeviceId, reach: Reach) {
        Arc::make_mut(&mut self.0).insert(device, reach);
    }

    pub(super) fn allows(&self, device: DeviceId, act: Act) -> bool {
        self.0.get(&device).copied().unwrap_or_default() >= needed(act)
    }
}

/// What memory that a capture allocates has of its pool: whatever becomes of the pool.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) pool: PoolId,
    /// The device that it is of.
    pub(super) owner: DeviceId,
    /// Where it was allocated.
    pub(super) born: Site,
    pub(super) let_in: LetIn,
}

/// What a device has to be let do.
pub(super) fn needed(act: Act) -> Reach {
    if act == Act::Read { Reach::Read } else { Reach::ReadWrite }
}
