//! The peak of a device's shared and private memory together, and the limit of both.
//!
//! The shared pool has high values of its own. Private memory changes rarely. Between two changes it is a constant that
//! can be added to the shared pool's high value. So at each change of private memory the high value is read and reset.
//! Values of different moments are never added.

use millpond::pool::PoolStatistics;
use millpond::{Pool, Result};

/// Bytes used and reserved.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Taken {
    pub(super) used: u64,
    pub(super) reserved: u64,
}

/// The high values and the limit of a device.
#[derive(Default)]
pub(super) struct Peaks {
    high: Taken,
    /// The private memory since the shared pool's high values were last reset.
    private: Taken,
    /// The most bytes that may be reserved.
    limit: Option<u64>,
}

impl Peaks {
    /// Sets the amount of private memory.
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

    /// Returns the most that was used and reserved at one moment.
    pub(super) fn high(&mut self, shared: &PoolStatistics) -> Taken {
        self.note(shared);
        self.high
    }

    fn note(&mut self, shared: &PoolStatistics) {
        self.high.used = self.high.used.max(shared.used_high_bytes + self.private.used);
        self.high.reserved = self.high.reserved.max(shared.reserved_high_bytes + self.private.reserved);
    }

    /// Resets the high values.
    pub(super) fn reset(&mut self, shared: &Pool) {
        shared.reset_used_high();
        shared.reset_reserved_high();
        self.high = Taken::default();
    }

    /// Limits shared and private memory together.
    pub(super) fn set_limit(&mut self, shared: &Pool, bytes: u64) -> Result<()> {
        self.limit = Some(bytes);
        self.hold(shared)
    }

    /// Limits the shared pool to what the private pools leave, and to at least 1 byte: a limit of 0 is not possible.
    fn hold(&self, shared: &Pool) -> Result<()> {
        let Some(limit) = self.limit else { return Ok(()) };
        shared.set_max_bytes(Some(limit.saturating_sub(self.private.reserved).max(1)))
    }

    /// Returns the limit of a private pool that has reserved `own` bytes.
    pub(super) fn room(&self, shared: &Pool, own: u64) -> Option<u64> {
        let others = shared.statistics().reserved_bytes + self.private.reserved - own.min(self.private.reserved);
        Some(self.limit?.saturating_sub(others).max(1))
    }
}
