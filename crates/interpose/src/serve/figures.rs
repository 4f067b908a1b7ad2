//! What was served, for the report of the command: how often, in which time, and the most that pools had.
//!
//! Of the driver's pools (`--driver-pool`) the driver is asked itself, so that both are measured by the same program.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::pools::{self, ServedPool};
use super::{begin, is_ours};
use crate::abi::Pool;
use crate::{ask, mode, report};

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
/// Pools that were destroyed, by device (-1: not known): how many, and the sums of what they had reserved and used.
static RETIRED: Mutex<BTreeMap<i32, [u64; 3]>> = Mutex::new(BTreeMap::new());

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

/// The time in which devices were opened so far: it is no part of the call that wanted one.
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

/// The most that a pool had reserved and used; none where the driver does not say so any more.
fn peaks(handle: Pool, ours: Option<&ServedPool>) -> Option<[u64; 2]> {
    match ours {
        Some(it) => {
            let figures = it.pool.statistics();
            Some([figures.reserved_high_bytes, figures.used_high_bytes])
        }
        None => Some([ask::pool_bytes(handle, RESERVED_HIGH)?, ask::pool_bytes(handle, USED_HIGH)?]),
    }
}

fn add(sums: &mut BTreeMap<i32, [u64; 3]>, ordinal: i32, [reserved, used]: [u64; 2]) {
    let sum = sums.entry(ordinal).or_default();
    for (sum, more) in sum.iter_mut().zip([1, reserved, used]) {
        *sum += more;
    }
}

/// The figures of a pool that is to be destroyed: its device, and its peaks.
pub(super) fn last_of(handle: Pool, ours: Option<&ServedPool>) -> Option<(i32, [u64; 2])> {
    if !mode::reports() || ours.is_some() != is_ours() {
        return None;
    }
    let peaks = peaks(handle, ours).filter(|it| it[0] > 0)?;
    Some((ours.map_or(-1, |it| it.ordinal), peaks))
}

/// A pool is destroyed, whose last figures these are.
pub(super) fn retire((ordinal, peaks): (i32, [u64; 2])) {
    add(&mut RETIRED.lock().unwrap_or_else(PoisonError::into_inner), ordinal, peaks);
}

/// The process ends: the command gets all of it.
pub(super) fn report() {
    if !mode::reports() {
        return;
    }
    let mut sums = std::mem::take(&mut *RETIRED.lock().unwrap_or_else(PoisonError::into_inner));
    let mut is_whole = true;
    let mut note = |ordinal: i32, peaks: Option<[u64; 2]>| match peaks {
        Some([0, _]) => {}
        Some(peaks) => add(&mut sums, ordinal, peaks),
        None => is_whole = false,
    };
    if is_ours() {
        pools::all().iter().for_each(|pool| note(pool.ordinal, peaks(pool.handle, Some(pool))));
    } else {
        let mut known = pools::handles();
        for device in 0..ask::devices() {
            let default = ask::default_pool_of(device);
            default.into_iter().for_each(|handle| note(device, peaks(handle, None)));
            known.retain(|it| Some(*it) != default);
        }
        known.into_iter().for_each(|handle| note(-1, peaks(handle, None)));
    }
    let counts = [&ALLOCATED, &FREED, &OPENED].map(|it| it.each_ref().map(|it| it.load(Ordering::Relaxed)));
    let [[allocations, taken], [frees, freeing], [_, opening]] = counts;
    let mut lines = format!("served\t{allocations}\t{taken}\t{frees}\t{freeing}\t{opening}\n");
    for (device, [pools, reserved, used]) in sums {
        let _ = writeln!(lines, "peaks\t{device}\t{pools}\t{reserved}\t{used}");
    }
    let passed = PASSED.each_ref().map(|it| it.load(Ordering::Relaxed));
    let _ = writeln!(lines, "left\t{}\t{}\t{}", passed[0], passed[1], passed[2]);
    lines += if is_whole { "" } else { "peaks-unknown\n" };
    report::add(&lines);
}
