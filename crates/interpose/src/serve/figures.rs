//! Figures of what was served: the number of calls, their time, and the pools' peaks. `account` sends them to the
//! command.
//!
//! For the driver's pools (`--driver-pool`) the driver itself is asked, so that both are measured by the same program.

use millpond_driver::locks::{Leaf, Mutex, lock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{begin, is_ours};
use crate::abi::Pool;
use crate::{ask, mode};

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH`, `CU_MEMPOOL_ATTR_USED_MEM_HIGH`
const RESERVED_HIGH: i32 = 6;
const USED_HIGH: i32 = 8;

/// The reason why the driver made an allocation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Passed {
    /// It was made in a capture.
    Captured,
    /// It was from a pool that is not Millpond's.
    Pool,
    /// Millpond could not serve it.
    Other,
}

static ALLOCATED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The number of devices that were opened, and the time that this took.
static OPENED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static FREED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static PASSED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// The sums of destroyed pools.
static RETIRED: Mutex<Leaf, Sums> = Mutex::new(BTreeMap::new());

fn count(of: &[AtomicU64; 2], nanoseconds: u64) {
    of[0].fetch_add(1, Ordering::Relaxed);
    of[1].fetch_add(nanoseconds, Ordering::Relaxed);
}

/// Notes an allocation and its time.
pub(super) fn allocated(nanoseconds: u64) {
    begin();
    count(&ALLOCATED, nanoseconds);
}

/// Notes a free and its time.
pub(super) fn freed(nanoseconds: u64) {
    count(&FREED, nanoseconds);
}

/// Returns the total time spent opening devices. It does not count as time of the call that needed the device.
pub(super) fn opening() -> u64 {
    OPENED[1].load(Ordering::Relaxed)
}

/// Notes that a device was opened, inside the first call that needed it.
pub(super) fn opened(time: Duration) {
    count(&OPENED, time.as_nanos() as u64);
}

/// Notes that an allocation was left to the driver.
pub(super) fn passed(reason: Passed) {
    PASSED[reason as usize].fetch_add(1, Ordering::Relaxed);
}

/// By device (-1 if it is not known): the number of pools, and the sums of their peaks of reserved and used bytes.
pub(super) type Sums = BTreeMap<i32, [u64; 3]>;

/// Returns a pool's peaks of reserved and used bytes; `None` if the driver does not tell any more.
pub(super) fn peaks(handle: Pool, ours: Option<&millpond::Pool>) -> Option<[u64; 2]> {
    match ours {
        Some(pool) => {
            let figures = pool.statistics();
            Some([figures.reserved_high_bytes, figures.used_high_bytes])
        }
        None => Some([ask::pool_bytes(handle, RESERVED_HIGH)?, ask::pool_bytes(handle, USED_HIGH)?]),
    }
}

pub(super) fn add(sums: &mut Sums, ordinal: i32, [reserved, used]: [u64; 2]) {
    let sum = sums.entry(ordinal).or_default();
    for (sum, more) in sum.iter_mut().zip([1, reserved, used]) {
        *sum += more;
    }
}

/// Returns the device and the peaks of a pool that is about to be destroyed.
pub(super) fn last_of(handle: Pool, ours: Option<(i32, &millpond::Pool)>) -> Option<(i32, [u64; 2])> {
    if !mode::reports() || ours.is_some() != is_ours() {
        return None;
    }
    let (ordinal, pool) = ours.unzip();
    let peaks = peaks(handle, pool).filter(|it| it[0] > 0)?;
    Some((ordinal.unwrap_or(-1), peaks))
}

/// Adds the last figures of a destroyed pool.
pub(super) fn retire((ordinal, peaks): (i32, [u64; 2])) {
    add(&mut lock(&RETIRED), ordinal, peaks);
}

/// Takes the sums of the pools that were destroyed so far.
pub(super) fn retired() -> Sums {
    std::mem::take(&mut *lock(&RETIRED))
}

/// Returns the number of calls and their nanoseconds: of allocations, of frees, of opened devices.
pub(super) fn calls() -> [[u64; 2]; 3] {
    [&ALLOCATED, &FREED, &OPENED].map(|it| it.each_ref().map(|it| it.load(Ordering::Relaxed)))
}

/// Returns the number of allocations that the driver made, by [`Passed`].
pub(super) fn all_passed() -> [u64; 3] {
    PASSED.each_ref().map(|it| it.load(Ordering::Relaxed))
}
