//! The memory that an importer can reach: what it was lent, and no memory of others, then or later.

use std::time::Duration;

use millpond::{Device, Error, HostConfig, MIB, PoolConfig};
use millpond_core::share::{Reply, Request};
use rustix::io::pread;

use super::child::Child;
use super::raw::{Raw, claim};
use super::{Side, eventually, gate, import, is_filled, pattern};

#[test]
fn a_ticket_shows_no_other_allocation() {
    let side = Side::new();
    let (before, x, after) = (side.filled(1000, 1), side.filled(1000, 2), side.filled(1000, 3));
    let ticket = x.export().unwrap();
    let raw = Raw::connect(&ticket).unwrap();
    let grant = raw.claim(&ticket);
    assert_eq!((grant.offset, grant.parts.len()), (0, 1));
    let (reply, files) = raw.ask(&Request::Fetch(vec![grant.parts[0].chunk])).unwrap();
    assert_eq!((reply, files.len()), (Reply::Chunks(1), 1));
    let mut all = vec![0; grant.parts[0].bytes as usize];
    assert_eq!(pread(&files[0], &mut all, 0), Ok(all.len()));
    assert_eq!(all[4..8], pattern(2, 1).to_ne_bytes());
    assert!(all[4000..].iter().all(|byte| *byte == 0), "nothing else lies there");
    assert!(is_filled(&side.stream, &before, 1).unwrap() && is_filled(&side.stream, &after, 3).unwrap());
}

#[test]
fn a_pools_ticket_gives_no_file_by_itself() {
    let side = Side::new();
    let x = side.filled(1000, 1);
    let (pool, ticket) = (side.pool.export().unwrap(), x.export().unwrap());
    let raw = Raw::connect(&pool).unwrap();
    let first = raw.claim(&ticket).parts[0].chunk;
    let other = Raw::connect(&pool).unwrap();
    assert!(matches!(other.ask(&claim(&pool)), Some((Reply::Pool(_), _))));
    assert!(matches!(other.ask(&Request::Fetch(vec![first])), Some((Reply::Refused(_), _))));
    assert!(matches!(raw.ask(&Request::Fetch(vec![first])), Some((Reply::Chunks(1), _))));
}

/// A process keeps the file of returned memory. It must not see what is stored there afterwards.
#[test]
fn memory_that_another_process_had_serves_nobody_again() {
    let side = Side::new();
    let destroyed = || side.device.driver_calls()[millpond::device::CallKind::Destroy];
    let kept = side.device.pool(PoolConfig::default().shareable(true).release_threshold(u64::MAX)).unwrap();
    for (is_dropped, is_lent) in [(false, false), (true, false), (false, true), (true, true)] {
        let x = side.stream.alloc::<u32>(&kept, 1000).unwrap();
        side.stream.synchronize().unwrap();
        let mut child = Child::new();
        if is_lent {
            child.must(format!("import x {}", x.export().unwrap()));
            child.must("free x");
            child.must("sync");
        }
        let before = destroyed();
        match is_dropped {
            true => drop(x),
            false => side.stream.free(x).unwrap(),
        }
        eventually("its lease is back", || side.device.sharing().leases == 0);
        side.stream.synchronize().unwrap();
        assert_eq!(destroyed() - before, u64::from(is_lent), "dropped: {is_dropped}, lent: {is_lent}");
        child.end();
    }
    assert_eq!(kept.statistics().used_bytes, 0);
}

#[test]
fn who_shares_chunks_says_so() {
    let side = Side::new();
    let config = PoolConfig::default().shareable(true);
    let pool = side.device.pool_sharing_chunks(config).unwrap();
    let (x, y) = (side.stream.alloc::<u32>(&pool, 1000).unwrap(), side.stream.alloc::<u32>(&pool, 1000).unwrap());
    assert_eq!(x.address() >> 21, y.address() >> 21);
    let other = Side::new();
    drop(import(&other.device, &x.export().unwrap()).unwrap());
    let (apart, too) = (side.filled(1000, 1), side.filled(1000, 2));
    assert_ne!(apart.address() >> 21, too.address() >> 21);
}

#[test]
fn what_is_exported_to_be_read_is_not_written_to() {
    let side = Side::new();
    let buffer = side.filled(1000, 1);
    let mut child = Child::new();
    child.must(format!("import x {}", buffer.export_read_only().unwrap()));
    assert_eq!(child.must("check x 1"), "right");
    for write in ["fill x 2", "copy x 2"] {
        let refused = child.ask(write);
        assert!(refused.contains("read only"), "{refused}");
    }
    // The same memory by a ticket that allows writes, in addition to the other import.
    child.must(format!("import y {}", buffer.export().unwrap()));
    child.must("fill y 3");
    assert_eq!(child.must("check y 3"), "right");
    assert_eq!(child.must("check x 3"), "right");
    child.must("free y");
    child.must("free x");
    child.must("sync");
    child.end();
    assert!(is_filled(&side.stream, &buffer, 3).unwrap());
    side.stream.free(buffer).unwrap();
    side.assert_empty();
}

#[test]
fn a_file_that_can_only_be_read_is_no_memory_to_write_to() {
    let side = Side::new();
    let buffer = side.filled(1000, 1);
    let ticket = buffer.export_read_only().unwrap();
    let raw = Raw::connect(&ticket).unwrap();
    let grant = raw.claim(&ticket);
    assert!(!grant.can_write);
    let (_, files) = raw.ask(&Request::Fetch(vec![grant.parts[0].chunk])).unwrap();
    assert!(rustix::io::write(&files[0], b"x").is_err());
}

/// Memory that outlives its pool and is lent after that: all of it is given back with the last free, and the device can
/// be dropped.
#[test]
fn memory_of_a_destroyed_pool_that_another_process_had_goes_back() {
    let side = Side::new();
    let buffer = side.filled(1000, 1);
    let Side { device, pool, stream } = side;
    drop(pool);
    let mut child = Child::new();
    child.must(format!("import x {}", buffer.export().unwrap()));
    assert_eq!(child.must("check x 1"), "right");
    child.must("free x");
    child.must("sync");
    stream.free(buffer).unwrap();
    device.synchronize().unwrap();
    child.end();
    let calls = device.driver_calls();
    assert_eq!(calls[millpond::device::CallKind::Create], calls[millpond::device::CallKind::Destroy]);
}

/// Memory that others can reach is freed under work that began after a request was refused. A wait for memory sees the
/// free, and then the end of that work.
#[test]
fn a_wait_for_memory_ends_with_the_uses_of_what_others_reach() {
    let device = Device::host(HostConfig::default()).unwrap();
    let pool = device.pool(PoolConfig::default().shareable(true).max_bytes(4 * MIB)).unwrap();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let buffer = stream.alloc::<u8>(&pool, 4 << 20).unwrap();
    // SAFETY: nobody uses the files.
    drop(unsafe { buffer.export_files() }.unwrap());
    stream.synchronize().unwrap();
    assert!(matches!(other.alloc::<u8>(&pool, 4096), Err(Error::OutOfMemory(_))));
    let go = gate(&stream).unwrap();
    stream.launch(buffer.write(), |buffer| buffer.fill(1)).unwrap();
    stream.free(buffer).unwrap();
    let wait = || pool.wait_for_memory(Duration::from_secs(30)).unwrap();
    assert!(wait(), "it was freed since");
    assert!(other.alloc::<u8>(&pool, 4096).is_err(), "and the work runs on");
    drop(go);
    while other.alloc::<u8>(&pool, 4096).is_err() {
        assert!(wait(), "the work ends");
    }
}
