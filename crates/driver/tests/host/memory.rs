//! Memory is given back to the system, may be more than the machine has, and can be shared between devices.

use millpond_driver::{Access, Driver, DriverError, HostConfig, HostDriver, Work};

use super::*;

#[test]
fn memory_goes_back_with_its_last_holder() {
    let device = parallel();
    assert_eq!(device.resident_bytes(), Ok(0));
    let chunk = device.create(8 * MIB).unwrap();
    let (left, right) = (map(&*device, chunk, 8 * MIB), map(&*device, chunk, 8 * MIB));
    assert_eq!((device.resident_bytes(), device.used_bytes()), (Ok(0), 8 * MIB), "untouched memory costs nothing");
    touch(left, 8 * MIB, 1);
    touch(right, 4 * MIB, 2);
    assert_eq!(device.resident_bytes(), Ok(8 * MIB), "two addresses are one memory");
    unmap(&*device, left, 8 * MIB);
    device.destroy(chunk).unwrap();
    assert_eq!((device.resident_bytes(), device.used_bytes()), (Ok(8 * MIB), 8 * MIB), "still mapped");
    assert_eq!((peek(right), peek(right + 5 * MIB)), (2, 1));
    unmap(&*device, right, 8 * MIB);
    assert_eq!((device.resident_bytes(), device.used_bytes()), (Ok(0), 0));
}

#[test]
fn fresh_chunks_read_as_zero() {
    let device = parallel();
    for round in 0..4 {
        let chunk = device.create(GRANULE).unwrap();
        let at = map(&*device, chunk, GRANULE);
        assert_eq!((peek(at), peek(at + GRANULE - 1)), (0, 0), "round {round}");
        touch(at, GRANULE, 9);
        unmap(&*device, at, GRANULE);
        device.destroy(chunk).unwrap();
    }
}

#[test]
fn a_device_may_be_larger_than_the_machine() {
    let device = HostDriver::new(HostConfig { total_bytes: 1 << 50, ..HostConfig::default() }).unwrap();
    let bytes = 1 << 40;
    let chunk = device.create(bytes).unwrap();
    let at = map(&device, chunk, bytes);
    touch(at + bytes - 1, 1, 7);
    assert_eq!(peek(at + bytes - 1), 7);
    assert!(device.resident_bytes().unwrap() <= 2 * GRANULE);
    // Many chunks take no files: these are more than a process may usually open.
    let chunks: Vec<_> = (0..6000).map(|_| device.create(GRANULE).unwrap()).collect();
    let range = device.reserve(6000 * GRANULE).unwrap();
    for (place, &chunk) in (0..).zip(&chunks) {
        // SAFETY: the range is fresh.
        unsafe { device.map(chunk, range + place * GRANULE, GRANULE) }.unwrap();
    }
    assert_eq!(device.used_bytes(), bytes + 6000 * GRANULE);
}

#[test]
fn the_total_is_kept() {
    let device = HostDriver::new(HostConfig { total_bytes: 2 * GRANULE, ..HostConfig::default() }).unwrap();
    let first = device.create(GRANULE).unwrap();
    let second = device.create(GRANULE).unwrap();
    let at = map(&device, first, GRANULE);
    let full = Err(DriverError::OutOfMemory { call: "create", bytes: GRANULE });
    assert_eq!(device.create(GRANULE), full);
    device.destroy(first).unwrap();
    assert_eq!(device.create(GRANULE), full, "a destroyed chunk that is mapped is still there");
    unmap(&device, at, GRANULE);
    device.create(GRANULE).unwrap();
    device.destroy(second).unwrap();
}

#[test]
fn wrong_granularities_are_refused() {
    for granularity in [0, 2048, 3 * MIB] {
        assert!(HostDriver::new(HostConfig { granularity, ..HostConfig::default() }).is_err());
    }
    let device = HostDriver::new(HostConfig { granularity: 64 * MIB, ..HostConfig::default() }).unwrap();
    assert_eq!(device.reserve(64 * MIB).unwrap() % (64 * MIB), 0);
}

#[test]
fn shareable_chunks_live_on_elsewhere() {
    let (here, there) = (parallel(), seeded(1));
    let chunk = here.create_shareable(GRANULE).unwrap();
    let at = map(&*here, chunk, GRANULE);
    touch(at, GRANULE, 5);
    let imported = there.import(here.export(chunk).unwrap(), GRANULE).unwrap();
    let seen = map(&*there, imported, GRANULE);
    assert_eq!(peek(seen), 5);
    touch(seen, GRANULE, 6);
    assert_eq!(peek(at), 6);
    assert_eq!(here.resident_bytes(), Ok(GRANULE));
    unmap(&*here, at, GRANULE);
    here.destroy(chunk).unwrap();
    drop(here);
    assert_eq!(peek(seen + GRANULE - 1), 6);
    let again = there.export(imported).unwrap();
    there.import(again, GRANULE).unwrap();
}

/// Files of other sizes. The conformance suite has the other refusals.
#[test]
fn an_imported_size_is_checked_against_the_file() {
    let device = parallel();
    let shared = device.create_shareable(GRANULE).unwrap();
    for announced in [0, GRANULE - 1, 2 * GRANULE, u64::MAX] {
        let refused = device.import(device.export(shared).unwrap(), announced);
        assert!(matches!(refused, Err(DriverError::Failed { call: "import", .. })), "{announced} B");
    }
    device.destroy(shared).unwrap();
    // A chunk of another granularity does not fit.
    let fine = HostDriver::new(HostConfig { granularity: 4096, ..HostConfig::default() }).unwrap();
    let small = fine.create_shareable(4096).unwrap();
    let refused = device.import(fine.export(small).unwrap(), 4096);
    assert!(matches!(refused, Err(DriverError::Failed { call: "import", .. })));
    assert_eq!(device.used_bytes(), 0);
}

#[test]
fn protection_is_the_systems() {
    let device = parallel();
    let chunk = device.create(GRANULE).unwrap();
    let at = map(&*device, chunk, GRANULE);
    let stream = stream(&*device);
    assert!(permissions(at).starts_with("rw"));
    // SAFETY: mapped, and nothing else uses it.
    unsafe { device.submit(stream, &mut Some(Work::Protect { at, bytes: 4096, access: Access::None })) }.unwrap();
    finish(&*device, stream);
    assert!(permissions(at).starts_with("--"));
    assert!(permissions(at + 4096).starts_with("rw"));
    // SAFETY: refused before it does anything.
    let odd = unsafe { device.submit(stream, &mut Some(Work::Protect { at, bytes: 100, access: Access::None })) };
    assert!(matches!(odd, Err(DriverError::Failed { call: "submit", .. })));
}

/// Returns the system's permissions of an address, as `rw-s`.
fn permissions(at: u64) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let found = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let parse = |text| u64::from_str_radix(text, 16).ok();
        (parse(start)? <= at && at < parse(end)?).then(|| rest[..4].to_owned())
    });
    found.expect("a mapped address")
}
