//! What was served: how often, in which time, and the most that pools had. `account` sends it to the command.
//!
//! Of the driver's pools (`--driver-pool`) the driver is asked itself, so that both are measured by the same program.

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

/// Why an allocation was the driver's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Passed {
    /// In a capture.
    Captured,
    /// From a pool that is not ours.
    Pool,
    /// Millpond could not serve it.
    Other,
}

static ALLOCATED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Devices that were opened, and the time of that.
static OPENED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static FREED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static PASSED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// Of the pools that were destroyed.
static RETIRED: Mutex<Leaf, Sums> = Mutex::new(BTreeMap::new());

fn count(of: &[AtomicU64; 2], nanoseconds: u64) {
    of[0].fetch_add(1, Ordering::Relaxed);
    of[1].fetch_add(nanoseconds, Ordering::Relaxed);
}

/// An allocation was made in so much time.
pub(super) fn allocated(nanoseconds: u64) {
    begin();
    count(&ALLOCATED, nanoseconds);
}

/// A free was made in so much time.
pub(super) fn freed(nanoseconds: u64) {
    count(&FREED, nanoseconds);
}

/// The time in which devices were opened so far: it is not a part of the call that wanted one.
pub(super) fn opening() -> u64 {
    OPENED[1].load(Ordering::Relaxed)
}

/// A device was opened, inside the first call that wanted it.
pub(super) fn opened(time: Duration) {
    count(&OPENED, time.as_nanos() as u64);
}

/// An allocation was left to the driver.
pub(super) fn passed(reason: Passed) {
    PASSED[reason as usize].fetch_add(1, Ordering::Relaxed);
}

/// How many pools a device had, and the sums of what they had reserved and used at the most; by device, -1 where it is
/// not known.
pub(super) type Sums = BTreeMap<i32, [u64; 3]>;

/// The most that a pool had reserved and used; none where the driver does not say so any more.
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

/// The figures of a pool that is to be destroyed: its device, and its peaks.
pub(super) fn last_of(handle: Pool, ours: Option<(i32, &millpond::Pool)>) -> Option<(i32, [u64; 2])> {
    if !mode::reports() || ours.is_some() != is_ours() {
        return None;
    }
    let (ordinal, pool) = ours.unzip();
    let peaks = peaks(handle, pool).filter(|it| it[0] > 0)?;
    Some((ordinal.unwrap_or(-1), peaks))
}

/// A pool is destroyed, whose last figures these are.
pub(super) fn retire((ordinal, peaks): (i32, [u64; 2])) {
    add(&mut lock(&RETIRED), ordinal, peaks);
}

/// Of the pools that were destroyed so far; they are taken out.
pub(super) fn retired() -> Sums {
    std::mem::take(&mut *lock(&RETIRED))
}

/// How many calls were served and in how many nanoseconds: allocations, frees, devices opened.
pub(super) fn calls() -> [[u64; 2]; 3] {
    [&ALLOCATED, &FREED, &OPENED].map(|it| it.each_ref().map(|it| it.load(Ordering::Relaxed)))
}

/// How many allocations were the driver's, by [`Passed`].
pub(super) fn all_passed() -> [u64; 3] {
    PASSED.each_ref().map(|it| it.load(Ordering::Relaxed))
}
