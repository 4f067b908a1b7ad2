//! The final report of a served process to the command: what was served, and the peaks of its pools.

use std::fmt::Write;

use super::{figures, is_ours, pools};
use crate::{ask, mode, report};

/// Reports everything at the process's end.
pub(super) fn report() {
    if !mode::reports() {
        return;
    }
    let mut sums = figures::retired();
    let mut is_whole = true;
    let mut note = |ordinal: i32, peaks: Option<[u64; 2]>| match peaks {
        Some([0, _]) => {}
        Some(peaks) => figures::add(&mut sums, ordinal, peaks),
        None => is_whole = false,
    };
    if is_ours() {
        pools::all().iter().for_each(|pool| note(pool.ordinal, figures::peaks(pool.handle, Some(&pool.pool))));
    } else {
        let mut known = pools::handles();
        for device in 0..ask::devices() {
            let default = ask::default_pool_of(device);
            default.into_iter().for_each(|handle| note(device, figures::peaks(handle, None)));
            known.retain(|it| Some(*it) != default);
        }
        known.into_iter().for_each(|handle| note(-1, figures::peaks(handle, None)));
    }
    let [[allocations, taken], [frees, freeing], [_, opening]] = figures::calls();
    let mut lines = format!("served\t{allocations}\t{taken}\t{frees}\t{freeing}\t{opening}\n");
    for (device, [pools, reserved, used]) in sums {
        let _ = writeln!(lines, "peaks\t{device}\t{pools}\t{reserved}\t{used}");
    }
    let [captured, pool, other] = figures::all_passed();
    let _ = writeln!(lines, "left\t{captured}\t{pool}\t{other}");
    lines += if is_whole { "" } else { "peaks-unknown\n" };
    report::add(&lines);
}
