//! A guarded pool makes freed addresses inaccessible: a stray access ends the process instead of reading old data.
//!
//! Each case runs in its own process: this test binary again, with the case in an environment variable.

use std::os::unix::process::ExitStatusExt;

use millpond::{Device, HostConfig, PoolConfig};

use crate::common::process;

const CASE: &str = "MILLPOND_GUARD_CASE";
const SIGSEGV: i32 = 11;

/// Writes a buffer, frees it or not, and reads its first byte by the raw address.
fn read_after(free: bool, guard: bool) {
    let device = Device::host(HostConfig::default()).unwrap();
    let pool = device.pool(PoolConfig::default().guard(guard).release_threshold(u64::MAX)).unwrap();
    let stream = device.stream().unwrap();
    let buffer = stream.alloc::<u8>(&pool, 10_000).unwrap();
    let address = buffer.address() as *const u8;
    stream.launch(buffer.write(), |bytes| bytes.fill(7)).unwrap();
    let kept = if free {
        stream.free(buffer).unwrap();
        None
    } else {
        Some(buffer)
    };
    stream.synchronize().unwrap();
    // SAFETY: if the buffer is live this reads its memory; if it is freed the pool keeps the pages mapped, and reading
    // them is the stray access that this test is about.
    let byte = unsafe { address.read_volatile() };
    assert_eq!(byte, 7);
    drop(kept);
}

#[test]
fn in_a_process_of_its_own() {
    match std::env::var(CASE).as_deref() {
        Ok("side_work") => read_after(true, true),
        Ok("twin") => read_after(false, true),
        Ok("unguarded") => read_after(true, false),
        _ => {}
    }
}

fn run(case: &str) -> std::process::ExitStatus {
    process::test("guard::in_a_process_of_its_own").env(CASE, case).output().unwrap().status
}

#[test]
fn a_stray_access_faults() {
    assert_eq!(run("side_work").signal(), Some(SIGSEGV));
}

#[test]
fn its_correct_twin_runs() {
    assert!(run("twin").success());
}

#[test]
fn without_the_guard_old_data_is_read() {
    assert!(run("unguarded").success());
}

#[test]
fn guarded_memory_serves_again() {
    let device = Device::host(HostConfig::default()).unwrap();
    let pool = device.pool(PoolConfig::default().guard(true)).unwrap();
    let stream = device.stream().unwrap();
    for round in 0..50u8 {
        let buffer = stream.alloc::<u8>(&pool, 5000 + 700 * usize::from(round % 5)).unwrap();
        stream.memset(buffer.write(), round).unwrap();
        assert!(stream.copy_to_host(buffer.read()).unwrap().iter().all(|byte| *byte == round));
        stream.free(buffer).unwrap();
    }
}

/// The free of a destroyed pool's last block closes it in stream order: its memory is unmapped after that, not before.
#[test]
fn a_destroyed_pool_keeps_its_last_block_until_it_is_closed() {
    let schedule = millpond::config::Schedule::Seeded(1);
    let device = Device::host(HostConfig::default().schedule(schedule)).unwrap();
    let stream = device.stream().unwrap();
    let pool = device.pool(PoolConfig::default().guard(true)).unwrap();
    let x = stream.alloc::<u8>(&pool, 4096).unwrap();
    stream.memset(x.write(), 1).unwrap();
    stream.synchronize().unwrap();
    drop(pool);
    stream.free(x).unwrap();
    stream.synchronize().unwrap();
    let again = stream.alloc::<u8>(&device.default_pool(), 4096).unwrap();
    stream.memset(again.write(), 1).unwrap();
    stream.synchronize().unwrap();
}
