//! What a pool lets other devices do with its memory, now or as of when something was allocated from it.
//!
//! Knows neither memory nor time: who keeps a copy has what was granted then.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::ids::{DeviceId, PoolId};
use crate::life::Site;
use crate::op::{Act, Reach};

/// What a pool grants now. A copy stays as it is, and costs nothing until the pool's is changed.
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
