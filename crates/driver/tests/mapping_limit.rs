//! The system's limit on mappings, reached deliberately. Alone in its process, because nothing else can map meanwhile.

use millpond_driver::{Driver, DriverError, HostConfig, HostDriver, RawChunk};

const PAGE: u64 = 4096;

#[test]
fn the_limit_on_mappings_is_an_error_and_no_more() {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let limit: u64 = text.trim().parse().unwrap();
    if limit > 300_000 {
        return; // It would take too long to reach the limit.
    }
    // A mapping in the middle of a range makes two more. So the number of mappings before decides if the last one
    // reaches the limit or exceeds it by one.
    for before in 0..4 {
        reach_the_limit(limit, before);
    }
}

fn reach_the_limit(limit: u64, before: u64) {
    let device = HostDriver::new(HostConfig { granularity: PAGE, ..HostConfig::default() }).unwrap();
    for _ in 0..before {
        let at = device.reserve(2 * PAGE).unwrap();
        let chunk = device.create(PAGE).unwrap();
        // SAFETY: the place is in the range, and nothing is mapped there.
        unsafe { device.map(chunk, at, PAGE) }.unwrap();
    }
    let chunks: Vec<RawChunk> = (0..limit).map(|_| device.create(PAGE).unwrap()).collect();
    let at = device.reserve(2 * limit * PAGE).unwrap();
    // Every other page, so that no two mappings become one.
    let place = |number: usize| at + 2 * number as u64 * PAGE;
    // SAFETY: the places are in the range, and nothing is mapped there.
    let map = |number: usize| unsafe { device.map(chunks[number], place(number), PAGE) };
    // SAFETY: nothing uses the memory.
    let unmap = |number: usize| unsafe { device.unmap(place(number), PAGE) };
    let (full, error) = (0..chunks.len()).find_map(|number| Some((number, map(number).err()?))).expect("a limit");
    assert!(
        matches!(&error, DriverError::Failed { call: "map", reason } if reason.contains("vm.max_map_count")),
        "{error}"
    );
    // Everything is as before: the refused mapping is possible once there is room.
    assert_eq!(map(full), Err(error));
    unmap(0).unwrap();
    unmap(1).unwrap();
    map(full).unwrap();
    for number in 2..=full {
        unmap(number).unwrap();
    }
    // SAFETY: nothing is mapped there and nothing uses it.
    unsafe { device.unreserve(at, 2 * limit * PAGE) }.unwrap();
}
