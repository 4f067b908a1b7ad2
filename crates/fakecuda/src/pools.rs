//! Pools, as far as programs can observe them: their settings, and the pool of each allocation.
//!
//! All memory comes from the device; a pool is a name with statistics. It keeps what it reserved until it is trimmed.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex, MutexGuard};

use millpond_driver::cuda::abi::Code;
use millpond_driver::cuda::abi::pool::attribute::{
    FOLLOW_EVENTS, INTERNAL, RELEASE_THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH,
};

use crate::device::open;
use crate::device::{end_handle, fresh_handle};
use crate::lock;
use crate::settings;

/// The handle of a default pool is this number plus the device's number.
const DEFAULT: usize = 0xF001_0000;

const SWITCHES: std::ops::RangeInclusive<c_int> = FOLLOW_EVENTS..=INTERNAL;

#[derive(Debug)]
struct Pool {
    device: c_int,
    /// By the number of the attribute.
    attributes: [u64; 9],
    access: BTreeMap<c_int, c_int>,
}

impl Pool {
    fn new(device: c_int) -> Self {
        let mut attributes = [0; 9];
        SWITCHES.for_each(|switch| attributes[switch as usize] = 1);
        Self { device, attributes, access: BTreeMap::new() }
    }

    fn raise(&mut self, which: c_int, bytes: u64) {
        let which = which as usize;
        self.attributes[which] += bytes;
        self.attributes[which + 1] = self.attributes[which + 1].max(self.attributes[which]);
    }
}

/// All pools of the process.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pools: HashMap<usize, Pool>,
    current: HashMap<c_int, usize>,
    /// The pool and the bytes of each allocation.
    allocations: BTreeMap<u64, (usize, u64)>,
}

static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);

/// Returns all pools, locked.
pub(crate) fn pools() -> MutexGuard<'static, Pools> {
    lock(&POOLS)
}

impl Pools {
    fn find(&mut self, handle: usize) -> Result<&mut Pool, Code> {
        if let Some(device) = handle.checked_sub(DEFAULT).filter(|device| *device < settings::devices()) {
            return Ok(self.pools.entry(handle).or_insert_with(|| Pool::new(device as c_int)));
        }
        self.pools.get_mut(&handle).ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn create(&mut self, device: c_int) -> Result<usize, Code> {
        open::check(device)?;
        let handle = fresh_handle();
        self.pools.insert(handle, Pool::new(device));
        Ok(handle)
    }

    /// Destroys a pool. A device that has it as its current pool gets its default pool again.
    pub(crate) fn destroy(&mut self, handle: usize) -> Result<(), Code> {
        if handle >= DEFAULT {
            return Err(Code::INVALID_VALUE);
        }
        self.pools.remove(&handle).ok_or(Code::INVALID_VALUE)?;
        end_handle(handle);
        self.current.retain(|_, current| *current != handle);
        Ok(())
    }

    pub(crate) fn default_of(device: c_int) -> Result<usize, Code> {
        open::check(device)?;
        Ok(DEFAULT + device as usize)
    }

    pub(crate) fn current_of(&self, device: c_int) -> Result<usize, Code> {
        let default = Self::default_of(device)?;
        Ok(self.current.get(&device).copied().unwrap_or(default))
    }

    pub(crate) fn set_current(&mut self, device: c_int, handle: usize) -> Result<(), Code> {
        if self.find(handle)?.device != device {
            return Err(Code::INVALID_VALUE);
        }
        self.current.insert(device, handle);
        Ok(())
    }

    pub(crate) fn check(&mut self, handle: usize) -> Result<(), Code> {
        self.find(handle).map(drop)
    }

    /// Gives back what is reserved and not used, down to `keep` bytes.
    pub(crate) fn trim(&mut self, handle: usize, keep: u64) -> Result<(), Code> {
        let attributes = &mut self.find(handle)?.attributes;
        let (used, reserved) = (attributes[USED as usize], attributes[RESERVED as usize]);
        attributes[RESERVED as usize] = reserved.min(used.max(keep));
        Ok(())
    }

    pub(crate) fn attribute(&mut self, handle: usize, which: c_int) -> Result<u64, Code> {
        let pool = self.find(handle)?;
        let known = usize::try_from(which).ok().filter(|which| *which > 0);
        known.and_then(|which| pool.attributes.get(which)).copied().ok_or(Code::INVALID_VALUE)
    }

    /// Sets an attribute: the switches and the threshold to any value, the high-water marks only to 0.
    pub(crate) fn set_attribute(&mut self, handle: usize, which: c_int, value: u64) -> Result<(), Code> {
        let pool = self.find(handle)?;
        let is_high = matches!(which, RESERVED_HIGH | USED_HIGH);
        match which {
            _ if SWITCHES.contains(&which) || which == RELEASE_THRESHOLD => pool.attributes[which as usize] = value,
            _ if is_high && value == 0 => pool.attributes[which as usize] = pool.attributes[which as usize - 1],
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    pub(crate) fn set_access(&mut self, handle: usize, device: c_int, flags: c_int) -> Result<(), Code> {
        open::check(device)?;
        self.find(handle)?.access.insert(device, flags);
        Ok(())
    }

    pub(crate) fn access(&mut self, handle: usize, device: c_int) -> Result<c_int, Code> {
        let pool = self.find(handle)?;
        let own = if pool.device == device { 3 } else { 0 };
        Ok(pool.access.get(&device).copied().unwrap_or(own))
    }

    /// Records an allocation from a pool.
    pub(crate) fn allocated(&mut self, handle: usize, at: u64, bytes: u64) -> Result<(), Code> {
        let pool = self.find(handle)?;
        pool.raise(USED, bytes);
        let more = pool.attributes[USED as usize].saturating_sub(pool.attributes[RESERVED as usize]);
        pool.raise(RESERVED, more);
        self.allocations.insert(at, (handle, bytes));
        Ok(())
    }

    /// Takes an allocation that is about to be freed.
    pub(crate) fn take(&mut self, at: u64) -> Option<(usize, u64)> {
        self.allocations.remove(&at)
    }

    /// Records that an allocation was freed, or puts it back.
    pub(crate) fn freed(&mut self, at: u64, (handle, bytes): (usize, u64), is_freed: bool) {
        if !is_freed {
            self.allocations.insert(at, (handle, bytes));
        } else if let Some(pool) = self.pools.get_mut(&handle) {
            pool.attributes[USED as usize] -= bytes;
        }
    }

    /// Returns the pool of an allocation.
    pub(crate) fn of(&self, start: u64) -> Option<usize> {
        self.allocations.get(&start).map(|it| it.0)
    }
}
