//! The most that a device's shared and private memory took together, and the limit of both.
//!
//! The shared pool keeps high marks of its own. Private memory changes rarely, and between two changes it is a constant
//! that the shared pool's mark can be added to: so with each change of private memory the mark is taken and begins
//! anew. Marks of different moments are never added.

use millpond::pool::PoolStatistics;
use millpond::{Pool, Result};

/// Bytes used and reserved.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Taken {
    pub(super) used: u64,
    pub(super) reserved: u64,
}

/// High marks and limit of a device.
#[derive(Default)]
pub(super) struct Peaks {
    high: Taken,
    /// Private memory since the shared pool's marks began.
    private: Taken,
    /// The most that may be reserved.
    limit: Option<u64>,
}

impl Peaks {
    /// Private memory is this much from now on.
    pub(super) fn change(&mut self, shared: &Pool, private: Taken) -> Result<()> {
        if private == self.private {
            return Ok(());
        }
        self.note(&shared.statistics());
        shared.reset_used_high();
        shared.reset_reserved_high();
        self.private = private;
        self.hold(shared)
    }

    /// The most that was used and reserved at one moment.
    pub(super) fn high(&mut self, shared: &PoolStatistics) -> Taken {
        self.note(shared);
        self.high
    }

    fn note(&mut self, shared: &PoolStatistics) {
        self.high.used = self.high.used.max(shared.used_high_bytes + self.private.used);
        self.high.reserved = self.high.reserved.max(shared.reserved_high_bytes + self.private.reserved);
    }

    /// High marks begin anew.
    pub(super) fn reset(&mut self, shared: &Pool) {
        shared.reset_used_high();
        shared.reset_reserved_high();
        self.high = Taken::default();
    }

    /// Shared and private memory together may be this much.
    pub(super) fn set_limit(&mut self, shared: &Pool, bytes: u64) -> Result<()> {
        self.limit = Some(bytes);
        self.hold(shared)
    }

    /// The shared pool has what the private ones leave; nothing is not a limit that a pool can have.
    fn hold(&self, shared: &Pool) -> Result<()> {
        let Some(limit) = self.limit else { return Ok(()) };
        shared.set_max_bytes(Some(limit.saturating_sub(self.private.reserved).max(1)))
    }

    /// What a private pool that has so much may have at most.
    pub(super) fn room(&self, shared: &Pool, own: u64) -> Option<u64> {
        let others = shared.statistics().reserved_bytes + self.private.reserved - own.min(self.private.reserved);
        Some(self.limit?.saturating_sub(others).max(1))
    }
}
