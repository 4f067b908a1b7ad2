//! The device calls for memory that is allocated on one stream, passed on by an event, and freed on another.

use millpond::device::CallKind;
use millpond::{Buffer, Device, HostConfig, PoolConfig};

const ROUNDS: u64 = 2_000;

fn one_record_and_one_wait(device: &Device) {
    let pool = device.pool(PoolConfig::default().release_threshold(u64::MAX)).unwrap();
    let (left, right) = (device.non_blocking_stream().unwrap(), device.non_blocking_stream().unwrap());
    let hand_over = || {
        let buffer: Buffer<u8> = left.alloc(&pool, 64 << 10).unwrap();
        right.wait(&left.record().unwrap()).unwrap();
        right.free(buffer).unwrap();
    };
    (0..100).for_each(|_| hand_over());
    let before = device.driver_calls();
    (0..ROUNDS).for_each(|_| hand_over());
    let calls = device.driver_calls() - before;
    assert_eq!(calls[CallKind::Wait], ROUNDS, "{calls}");
    // Memory freed on the other stream is returned once the device has passed that: one query for some tens of blocks.
    assert!((ROUNDS..ROUNDS + ROUNDS / 16).contains(&calls[CallKind::Record]), "{calls}");
    assert!(calls[CallKind::IsOver] <= ROUNDS / 16 && calls.memory() == 0, "{calls}");
}

#[test]
fn a_hand_over_is_one_record_and_one_wait_on_the_host_device() {
    one_record_and_one_wait(&Device::host(HostConfig::default()).unwrap());
}
