//! Two threads that allocate and free on their own streams share no lock while their caches suffice.

use std::sync::Barrier;

use millpond::{Device, HostConfig, Pool, PoolConfig, Stream};

const PAIRS: usize = 20_000;
const SIZES: [usize; 3] = [512, 64 << 10, 1 << 20];

fn churn(stream: &Stream, pool: &Pool, pairs: usize) {
    for i in 0..pairs {
        // Three sizes in turn, two of them live at once: all within what a cache keeps.
        let held = stream.alloc::<u8>(pool, SIZES[i % 3]).unwrap();
        let other = stream.alloc::<u8>(pool, SIZES[(i + 1) % 3]).unwrap();
        stream.free(held).unwrap();
        stream.free(other).unwrap();
    }
}

fn shared_locks_of_two_threads(device: &Device) {
    let pool = device.pool(PoolConfig::default().release_threshold(u64::MAX)).unwrap();
    let (warm, done) = (Barrier::new(3), Barrier::new(3));
    let taken = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let stream = device.stream().unwrap();
                // A stream that must grow takes idle memory of others. So both first hold all the memory that they will
                // ever hold at once.
                let held = SIZES.map(|bytes| stream.alloc::<u8>(&pool, bytes).unwrap());
                warm.wait();
                held.into_iter().for_each(|buffer| stream.free(buffer).unwrap());
                warm.wait();
                warm.wait();
                churn(&stream, &pool, PAIRS);
                done.wait();
                done.wait();
            });
        }
        warm.wait();
        warm.wait();
        let before = pool.statistics().shared_locks;
        warm.wait();
        done.wait();
        let after = pool.statistics().shared_locks;
        done.wait();
        // Reading the statistics itself takes the lock once.
        after - before - 1
    });
    assert_eq!(taken, 0, "the shared lock was taken {taken} times in {} pairs", 4 * PAIRS);
}

#[test]
fn caches_share_no_lock_on_the_host_device() {
    shared_locks_of_two_threads(&Device::host(HostConfig::default()).unwrap());
}

#[test]
fn a_miss_is_counted() {
    // The counterpart: the tests above would prove nothing if the count never changed.
    let device = Device::host(HostConfig::default()).unwrap();
    let (pool, stream) = (device.default_pool(), device.stream().unwrap());
    let before = pool.statistics().shared_locks;
    let buffer = stream.alloc::<u8>(&pool, 4096).unwrap();
    assert!(pool.statistics().shared_locks > before + 1);
    stream.free(buffer).unwrap();
}
