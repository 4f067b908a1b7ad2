//! The report of a pool that is out of memory: the holders of the memory. Plain data.

use std::fmt;

use millpond_core::pool::Exhausted;
use millpond_core::units::{Bytes, Range};

use crate::names::pool_name::PoolName;

/// A report of the holders of memory, when none is left.
#[derive(Clone, PartialEq, Debug)]
pub struct OutOfMemory {
    /// The pool of the request.
    pub pool: PoolName,
    /// The pool's figures.
    pub exhausted: Exhausted,
    /// The device's physical memory in bytes.
    pub device_bytes: u64,
    /// The size of the pool's address range in bytes. It is smaller than the memory only if the system granted no
    /// more.
    pub address_bytes: u64,
    /// Physical memory of the device's other pools in bytes, including dropped ones while work in flight uses it.
    pub other_pools_bytes: u64,
    /// The largest live allocations, with the places where they were allocated.
    pub largest: Vec<Holder>,
}

/// A live allocation in a report.
#[derive(Clone, PartialEq, Debug)]
pub struct Holder {
    /// Its name.
    pub allocation: String,
    /// Its addresses.
    pub range: Range,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory in {}: {}", self.pool, self.exhausted)?;
        write!(f, "; the device has {}", Bytes(self.device_bytes))?;
        let limit = self.exhausted.limit.unwrap_or(u64::MAX);
        if self.address_bytes < limit.min(self.device_bytes) {
            let granted = Bytes(self.address_bytes);
            write!(f, ", and the system granted the pool only {granted} of addresses: raise the limit ")?;
            write!(f, "(RLIMIT_AS, `ulimit -v`)")?;
        }
        if self.other_pools_bytes > 0 {
            write!(f, ", other pools have reserved {}", Bytes(self.other_pools_bytes))?;
        }
        for holder in &self.largest {
            write!(f, "\n  held by {}", holder.allocation)?;
        }
        Ok(())
    }
}
