//! Giving memory back: the release threshold, and trim.

use millpond::{KIB, MIB, Pool, PoolConfig};

use crate::common::{on_devices_that_hold, on_every_device, touch};

fn reserved(pool: &Pool) -> u64 {
    pool.statistics().reserved_bytes
}

#[test]
fn threshold_zero_gives_all_back_at_a_synchronisation() {
    on_every_device(|on| {
        let stream = on.stream();
        for way in 0..3 {
            let pool = on.pool(PoolConfig::default());
            let x = stream.alloc::<u8>(&pool, 5 * MIB as usize).unwrap();
            touch(&stream, &x);
            stream.free(x).unwrap();
            let full = reserved(&pool);
            assert!(full >= 5 * MIB);
            match way {
                0 => stream.synchronize().unwrap(),
                1 => on.device.synchronize().unwrap(),
                _ => stream.record().unwrap().synchronize().unwrap(),
            }
            assert_eq!((reserved(&pool), pool.statistics().reserved_high_bytes), (0, full));
        }
    });
}

/// Measured: a query that returns yes keeps what is reserved. A synchronisation gives it back.
#[test]
fn a_query_gives_nothing_back() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.pool(PoolConfig::default()));
        let x = stream.alloc::<u8>(&pool, 5 * MIB as usize).unwrap();
        stream.free(x).unwrap();
        let full = reserved(&pool);
        assert!(stream.is_idle().unwrap());
        assert_eq!(reserved(&pool), full);
        stream.synchronize().unwrap();
        assert_eq!(reserved(&pool), 0);
    });
}

#[test]
fn memory_in_use_is_not_given_back() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.pool(PoolConfig::default()));
        let x = stream.alloc::<u8>(&pool, 5 * MIB as usize).unwrap();
        stream.synchronize().unwrap();
        pool.trim_to(0).unwrap();
        assert!(reserved(&pool) >= 5 * MIB);
        touch(&stream, &x);
        stream.synchronize().unwrap();
        drop(x);
        stream.synchronize().unwrap();
        assert_eq!(reserved(&pool), 0);
    });
}

#[test]
fn the_threshold_is_kept() {
    on_every_device(|on| {
        let stream = on.stream();
        let sweep = |pool: &Pool| {
            let buffers: Vec<_> = (0..16).map(|_| stream.alloc::<u8>(pool, 2 * MIB as usize).unwrap()).collect();
            let full = reserved(pool);
            drop(buffers);
            stream.synchronize().unwrap();
            full
        };
        let pool = on.pool(PoolConfig::default().release_threshold(u64::MAX));
        let full = sweep(&pool);
        assert_eq!(reserved(&pool), full, "nothing is ever given back by itself");
        assert_eq!(sweep(&pool), full, "and all of it serves again");
        pool.trim_to(0).unwrap();
        assert_eq!(reserved(&pool), 0);

        // Chunks are given back as a whole, so the most that is possible is given back: never below the threshold.
        let chunky = PoolConfig::default().chunk_bytes_max(2 * MIB).release_threshold(10 * MIB);
        let pool = on.pool(chunky);
        sweep(&pool);
        assert_eq!(reserved(&pool), 10 * MIB);
        pool.set_release_threshold(4 * MIB);
        assert_eq!(reserved(&pool), 10 * MIB, "a setting acts at the next synchronisation");
        stream.synchronize().unwrap();
        assert_eq!(reserved(&pool), 4 * MIB);
        pool.set_release_threshold(0);
        on.device.synchronize().unwrap();
        assert_eq!(reserved(&pool), 0);
    });
}

#[test]
fn trim_keeps_what_it_is_told_to() {
    on_every_device(|on| {
        let keeping = PoolConfig::default().chunk_bytes_max(2 * MIB).release_threshold(u64::MAX);
        let (stream, pool) = (on.stream(), on.pool(keeping));
        let live = stream.alloc::<u8>(&pool, 8 * KIB as usize).unwrap();
        let freed = stream.alloc::<u8>(&pool, 30 * MIB as usize).unwrap();
        stream.free(freed).unwrap();
        stream.synchronize().unwrap();
        let full = reserved(&pool);
        pool.trim_to(24 * full).unwrap();
        assert_eq!(reserved(&pool), full, "there is less than that already");
        for keep in [30 * MIB, 21 * MIB, 20 * MIB, 7 * MIB] {
            pool.trim_to(keep).unwrap();
            let left = reserved(&pool);
            assert!((keep..keep + 2 * MIB).contains(&left), "{left} left of {keep}");
        }
        pool.trim_to(0).unwrap();
        assert_eq!(reserved(&pool), 2 * MIB, "what is live stays");
        assert_eq!(pool.statistics().used_bytes, 8 * KIB);
        touch(&stream, &live);
        stream.free(live).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(reserved(&pool), 2 * MIB, "without trim nothing goes");
        pool.trim_to(1024).unwrap();
        assert_eq!(reserved(&pool), 2 * MIB, "one chunk cannot be cut");
        pool.trim_to(0).unwrap();
        assert_eq!(reserved(&pool), 0);
    });
}

/// Freed memory that a kernel still uses stays until that has completed.
#[test]
fn trim_leaves_busy_memory() {
    on_devices_that_hold(|on| {
        let stream = on.stream();
        let pool = on.pool(PoolConfig::default().release_threshold(128 * MIB));
        let small = stream.alloc::<u8>(&pool, 4096).unwrap();
        let big = stream.alloc::<u8>(&pool, 32 * MIB as usize).unwrap();
        let busy = on.hold(&stream, big.write());
        stream.free(big).unwrap();
        pool.trim_to(4096).unwrap();
        let full = reserved(&pool);
        assert!(full >= 32 * MIB, "the kernel still runs");
        assert_eq!(pool.statistics().used_bytes, 4096);
        drop(busy);
        stream.synchronize().unwrap();
        assert_eq!(reserved(&pool), full, "it is below the threshold");
        pool.trim_to(4096).unwrap();
        assert!(reserved(&pool) < 32 * MIB);
        assert_eq!(pool.statistics().used_high_bytes, 4096 + 32 * MIB);
        drop(small);
    });
}

/// A synchronisation with another stream leaves it, too.
#[test]
fn a_synchronisation_leaves_busy_memory() {
    on_devices_that_hold(|on| {
        // If time is simulated, a wait for one stream also runs the earlier work of the others.
        if !on.is_parallel {
            return;
        }
        let [stream, other] = on.streams();
        let pool = on.pool(PoolConfig::default());
        let big = stream.alloc::<u8>(&pool, 32 * MIB as usize).unwrap();
        let busy = on.hold(&stream, big.write());
        stream.free(big).unwrap();
        other.synchronize().unwrap();
        assert!(reserved(&pool) >= 32 * MIB);
        drop(busy);
        stream.synchronize().unwrap();
        assert_eq!(reserved(&pool), 0);
    });
}

#[test]
fn many_threads_trim_one_pool() {
    on_every_device(|on| {
        let pool = on.pool(PoolConfig::default().release_threshold(u64::MAX));
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (pool, stream) = (&pool, on.stream());
                scope.spawn(move || {
                    for round in 0..50 {
                        let x = stream.alloc::<u8>(pool, ((round % 7 + 1) * MIB) as usize).unwrap();
                        touch(&stream, &x);
                        stream.free(x).unwrap();
                        if round % 8 == thread {
                            pool.trim_to(round % 3 * MIB).unwrap();
                        }
                    }
                });
            }
        });
        on.device.synchronize().unwrap();
        pool.trim_to(0).unwrap();
        assert_eq!((pool.statistics().used_bytes, reserved(&pool)), (0, 0));
    });
}
