//! Pools by CUDA's rules: statistics, limits, the current pool, and the end of a pool.

use millpond::config::{ReusePolicy, Schedule, Slack};
use millpond::error::Invalid;
use millpond::{Device, Error, HostConfig, KIB, MIB, Pool, PoolConfig};
use millpond_driver::CallKind;

use crate::common::{on_devices_with_memory, on_every_device, touch};

/// Returns the used bytes, and their high mark.
fn used(pool: &Pool) -> (u64, u64) {
    let statistics = pool.statistics();
    (statistics.used_bytes, statistics.used_high_bytes)
}

fn reserved(pool: &Pool) -> u64 {
    pool.statistics().reserved_bytes
}

#[test]
fn one_allocation_lives_and_leaves_nothing() {
    on_every_device(|on| {
        for len in [1, 2048, 4096, 8192] {
            let (stream, pool) = (on.stream(), on.pool(PoolConfig::default()));
            let x = stream.alloc::<u8>(&pool, len).unwrap();
            assert_eq!((x.len(), x.bytes()), (len, len as u64));
            assert_eq!(used(&pool), (len as u64, len as u64));
            stream.memset(x.write(), 5).unwrap();
            if on.has_memory {
                assert_eq!(stream.copy_to_host(x.read()).unwrap(), vec![5; len]);
            }
            stream.free(x).unwrap();
            stream.synchronize().unwrap();
            assert_eq!((used(&pool), reserved(&pool)), ((0, len as u64), 0));
        }
    });
}

#[test]
fn two_allocations_are_counted_to_the_byte() {
    on_every_device(|on| {
        for len in [100, 2048, 4096, 8192] {
            let (stream, pool) = (on.stream(), on.pool(PoolConfig::default()));
            let bytes = len as u64;
            let x = stream.alloc::<u8>(&pool, len).unwrap();
            let y = stream.alloc::<u8>(&pool, len).unwrap();
            stream.memset(x.write(), 7).unwrap();
            stream.copy(x.read(), y.write()).unwrap();
            stream.free(x).unwrap();
            stream.synchronize().unwrap();
            assert_eq!(used(&pool), (bytes, 2 * bytes));
            if on.has_memory {
                assert_eq!(stream.copy_to_host(y.read()).unwrap(), vec![7; len]);
            }
            stream.free(y).unwrap();
            stream.synchronize().unwrap();
            assert_eq!(used(&pool), (0, 2 * bytes));
        }
    });
}

/// The used bytes follow every call. The reserved bytes are never fewer, and do not change without need.
#[test]
fn figures_follow_each_step() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.pool(PoolConfig::default()));
        const UNIT: usize = 512;
        let alloc = |units| stream.alloc::<u8>(&pool, units * UNIT).unwrap();
        let check = |units: usize| {
            assert_eq!(pool.statistics().used_bytes, (units * UNIT) as u64);
            assert!(reserved(&pool) >= pool.statistics().used_bytes);
        };
        let x = alloc(2);
        check(2);
        let full = reserved(&pool);
        let y = alloc(4);
        check(6);
        stream.free(y).unwrap();
        check(2);
        stream.free(x).unwrap();
        check(0);
        let z = alloc(1);
        check(1);
        assert_eq!(reserved(&pool), full, "nothing was given back, and nothing more was needed");
        drop(z);
        check(0);
        stream.synchronize().unwrap();
        assert_eq!(reserved(&pool), 0);
        let again = alloc(2);
        assert_eq!(reserved(&pool), full);
        drop(again);
    });
}

#[test]
fn high_marks_are_reset_to_the_present() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.pool(PoolConfig::default()));
        let x = stream.alloc::<u8>(&pool, 3000).unwrap();
        let y = stream.alloc::<u8>(&pool, 32 * MIB as usize).unwrap();
        stream.free(y).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(used(&pool), (3000, 3000 + 32 * MIB));
        let now = pool.statistics();
        assert!(now.reserved_bytes < 32 * MIB && now.reserved_high_bytes >= 32 * MIB, "{now:?}");
        pool.reset_used_high();
        assert_eq!(used(&pool), (3000, 3000));
        assert_eq!(pool.statistics().reserved_high_bytes, now.reserved_high_bytes, "each mark for itself");
        pool.reset_reserved_high();
        assert_eq!(pool.statistics().reserved_high_bytes, now.reserved_bytes);
        // High marks rise from the value to which they were reset.
        let y = stream.alloc::<u8>(&pool, 1000).unwrap();
        assert_eq!(used(&pool), (4000, 4000));
        stream.free(y).unwrap();
        let y = stream.alloc::<u8>(&pool, 1000).unwrap();
        stream.free(y).unwrap();
        assert_eq!(used(&pool), (3000, 4000));
        stream.free(x).unwrap();
        pool.reset_used_high();
        assert_eq!(used(&pool), (0, 0));
    });
}

#[test]
fn settings_read_back() {
    on_every_device(|on| {
        let default = on.device.default_pool();
        for pool in [default, on.pool(PoolConfig::default())] {
            let policy = ReusePolicy {
                follow_event_dependencies: true,
                allow_opportunistic: true,
                allow_internal_dependencies: true,
            };
            assert_eq!((pool.config().reuse, pool.config().release_threshold), (policy, 0));
            let none = ReusePolicy {
                follow_event_dependencies: false,
                allow_opportunistic: false,
                allow_internal_dependencies: false,
            };
            pool.set_reuse(none);
            pool.set_release_threshold(4096);
            assert_eq!((pool.config().reuse, pool.config().release_threshold), (none, 4096));
        }
    });
}

#[test]
fn pools_are_counted_apart() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.pool(PoolConfig::default()));
        let default = on.device.default_pool();
        let x = stream.alloc::<u8>(&pool, 4096).unwrap();
        assert_eq!((used(&pool).0, used(&default).0), (4096, 0));
        let y = stream.alloc::<u8>(&default, 100).unwrap();
        assert_eq!((used(&pool).0, used(&default).0), (4096, 100));
        stream.free(x).unwrap();
        assert_eq!((used(&pool).0, used(&default).0), (0, 100));
        stream.free(y).unwrap();
    });
}

/// A limit is rounded up to the device's granularity, as in CUDA.
#[test]
fn a_limited_pool_refuses_what_passes_its_limit() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.pool(PoolConfig::default().max_bytes(32 * MIB)));
        let small = stream.alloc::<u8>(&pool, 42).unwrap();
        let before = pool.statistics();
        let Err(Error::OutOfMemory(report)) = stream.alloc::<u8>(&pool, 33 * MIB as usize) else {
            panic!("33 MiB of 32 MiB");
        };
        assert_eq!((report.pool.id, report.exhausted.limit), (pool.id(), Some(32 * MIB)));
        assert_eq!(report.exhausted.requested, 33 * MIB);
        assert_eq!(report.largest[0].range.start, small.address());
        assert_eq!(pool.statistics().used_bytes, before.used_bytes);
        assert_eq!(pool.statistics().reserved_bytes, before.reserved_bytes);
        let half = stream.alloc::<u8>(&pool, 16 * MIB as usize).unwrap();
        assert!(stream.alloc::<u8>(&pool, 17 * MIB as usize).is_err());
        drop(half);
        let most = stream.alloc::<u8>(&pool, 30 * MIB as usize).unwrap();
        drop((most, small));
        stream.alloc::<u8>(&pool, 32 * MIB as usize).unwrap();

        let least = on.pool(PoolConfig::default().max_bytes(1));
        let granule = on.device.properties().granularity;
        assert_eq!(least.config().max_bytes, Some(granule));
        stream.alloc::<u8>(&least, granule as usize).unwrap();
        assert!(stream.alloc::<u8>(&least, granule as usize + 1).is_err());
    });
}

#[test]
fn settings_that_cannot_be_had_are_refused() {
    on_every_device(|on| {
        let refused = |config: PoolConfig| match on.device.pool(config).unwrap_err().invalid() {
            Some(Invalid::Setting { setting, .. }) => *setting,
            other => panic!("{other:?}"),
        };
        let slack = |part| PoolConfig::default().slack(millpond::config::Slack::Fixed(part));
        assert_eq!(refused(slack(-0.1)), "slack");
        assert_eq!(refused(slack(f64::NAN)), "slack");
        assert_eq!(refused(slack(f64::INFINITY)), "slack");
        assert_eq!(refused(PoolConfig::default().chunk_bytes_max(KIB)), "chunk_bytes_max");
        assert_eq!(refused(PoolConfig::default().max_bytes(u64::MAX)), "max_bytes");
        assert_eq!(refused(PoolConfig::default().max_bytes(0)), "max_bytes");
        let said = on.device.pool(PoolConfig::default().max_bytes(0)).unwrap_err().to_string();
        assert!(said.contains("for no limit leave it out"), "{said}");
        let plain = on.pool(PoolConfig::default());
        assert_eq!(plain.config(), PoolConfig::default(), "what is in force is what was asked for");
    });
}

/// Half of the pool's memory is idle, in pieces that are too small for the next request. While the device has room, the
/// request gets new memory. Once another pool has taken the room, the pieces are moved.
#[test]
fn slack_follows_the_room_of_the_device() {
    let config = HostConfig::default().memory(false).total_bytes(256 * MIB);
    for (taken, moves) in [(0, 0), (64, 0), (120, 7)] {
        let device = Device::host(config.clone()).unwrap();
        let (stream, other) = (device.stream().unwrap(), device.pool(PoolConfig::default()).unwrap());
        let pool = device.pool(PoolConfig::default().slack(Slack::Pressure).chunk_bytes_max(2 * MIB)).unwrap();
        let taken = (taken > 0).then(|| stream.alloc::<u8>(&other, taken * MIB as usize).unwrap());
        let buffers: Vec<_> = (0..16).map(|_| stream.alloc::<u8>(&pool, 2 * MIB as usize).unwrap()).collect();
        let (freed, kept): (Vec<_>, Vec<_>) = buffers.into_iter().enumerate().partition(|(number, _)| number % 2 == 0);
        freed.into_iter().for_each(|(_, buffer)| stream.free(buffer).unwrap());
        let x = stream.alloc::<u8>(&pool, 16 * MIB as usize).unwrap();
        assert_eq!(device.driver_calls()[CallKind::Unmap], moves, "{taken:?}");
        drop((x, kept, taken));
    }
}

/// What fits only once everything that is idle was moved is served, also where the pool grew loosely before.
#[test]
fn a_full_device_serves_what_can_be_moved_together() {
    let device = Device::host(HostConfig::default().memory(false).total_bytes(64 * MIB)).unwrap();
    let (stream, mut kept) = (device.stream().unwrap(), Vec::new());
    let pool = device.pool(PoolConfig::default().slack(Slack::Pressure).chunk_bytes_max(2 * MIB)).unwrap();
    let buffers: Vec<_> = (0..32).map(|_| stream.alloc::<u8>(&pool, 2 * MIB as usize).unwrap()).collect();
    for (number, buffer) in buffers.into_iter().enumerate() {
        match number % 2 {
            0 => stream.free(buffer).unwrap(),
            _ => kept.push(buffer),
        }
    }
    let x = stream.alloc::<u8>(&pool, 32 * MIB as usize).unwrap();
    assert!(matches!(stream.alloc::<u8>(&pool, 2 * MIB as usize), Err(Error::OutOfMemory(_))));
    drop((x, kept));
}

#[test]
fn the_current_pool_can_be_exchanged() {
    on_every_device(|on| {
        let (stream, default) = (on.stream(), on.device.default_pool());
        assert_eq!(on.device.current_pool().id(), default.id());
        let pool = on.pool(PoolConfig::default());
        assert_eq!(on.device.set_current_pool(&pool).unwrap().id(), default.id());
        std::thread::scope(|scope| {
            // It is set for the device, not for the thread.
            scope.spawn(|| assert_eq!(on.device.current_pool().id(), pool.id()));
        });
        let x = stream.alloc::<u8>(&on.device.current_pool(), 4096).unwrap();
        assert_eq!((used(&pool).0, used(&default).0), (4096, 0));
        // The current pool is kept alive, so that its id always names a pool.
        let id = pool.id();
        drop(pool);
        assert_eq!(on.device.current_pool().id(), id);
        assert_eq!(on.device.set_current_pool(&default).unwrap().id(), id);
        assert_eq!(on.device.current_pool().id(), default.id());
        // The pool has ended now, but its allocations have not.
        touch(&stream, &x);
        stream.free(x).unwrap();
        let y = stream.alloc::<u8>(&on.device.current_pool(), 4096).unwrap();
        assert_eq!(used(&default).0, 4096);
        drop(y);
    });
}

/// CUDA: live allocations of a destroyed pool can be used and freed. Its memory is given back with the last one.
#[test]
fn allocations_outlive_their_pool() {
    on_every_device(|on| {
        let (stream, other, pool) = (on.stream(), on.stream(), on.pool(PoolConfig::default()));
        let before = on.device.driver_calls();
        let since = |kind| on.device.driver_calls()[kind] - before[kind];
        let x = stream.alloc::<u8>(&pool, 3 * MIB as usize).unwrap();
        let y = stream.alloc::<u8>(&pool, 100).unwrap();
        let cached = other.alloc::<u8>(&pool, 4096).unwrap();
        stream.memset(x.write(), 9).unwrap();
        other.free(cached).unwrap();
        drop(pool);
        if on.has_memory {
            assert_eq!(stream.copy_to_host(x.read()).unwrap(), vec![9; 3 * MIB as usize]);
        }
        assert!(since(CallKind::Create) > since(CallKind::Destroy), "memory in use stays");
        stream.free(y).unwrap();
        stream.free(x).unwrap();
        on.device.synchronize().unwrap();
        assert_eq!(since(CallKind::Create), since(CallKind::Destroy), "all memory is given back");
        assert_eq!(since(CallKind::Map), since(CallKind::Unmap));
        assert_eq!(since(CallKind::Unreserve), 1, "and the addresses");
    });
}

#[test]
fn a_pool_without_allocations_goes_at_once() {
    on_every_device(|on| {
        let before = on.device.driver_calls();
        let (stream, pool) = (on.stream(), on.pool(PoolConfig::default().release_threshold(u64::MAX)));
        let x = stream.alloc::<u8>(&pool, MIB as usize).unwrap();
        stream.free(x).unwrap();
        stream.synchronize().unwrap();
        let again = pool.clone();
        drop(pool);
        stream.alloc::<u8>(&again, 100).unwrap();
        stream.synchronize().unwrap();
        drop(again);
        on.device.synchronize().unwrap();
        let calls = on.device.driver_calls() - before;
        assert_eq!(calls[CallKind::Create], calls[CallKind::Destroy]);
        assert_eq!(calls[CallKind::Reserve], calls[CallKind::Unreserve]);
    });
}

/// Memory of a destroyed stream is freed on any other stream that comes after it.
#[test]
fn an_allocation_outlives_its_stream() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.pool(PoolConfig::default()));
        let x = stream.alloc::<u8>(&pool, 4096).unwrap();
        touch(&stream, &x);
        let event = stream.record().unwrap();
        drop(stream);
        let other = on.stream();
        let x = other.free(x).unwrap_err().buffer;
        other.wait(&event).unwrap();
        touch(&other, &x);
        other.free(x).unwrap();
        on.device.synchronize().unwrap();
        assert_eq!((used(&pool).0, reserved(&pool)), (0, 0));

        let stream = on.stream();
        let x = stream.alloc::<u8>(&pool, 4096).unwrap();
        touch(&stream, &x);
        drop(stream);
        drop(x);
        on.device.synchronize().unwrap();
        assert_eq!((used(&pool).0, reserved(&pool)), (0, 0));
    });
}

/// 70 % of the memory, once freed, can be used at once for 30 %.
#[test]
fn freed_memory_serves_before_it_is_missed() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.device.default_pool());
        let part = |percent: u64| (on.device.properties().total_bytes / 100 * percent) as usize;
        let x = stream.alloc::<u8>(&pool, part(70)).unwrap();
        touch(&stream, &x);
        stream.free(x).unwrap();
        let y = stream.alloc::<u8>(&pool, part(35)).unwrap();
        // By another stream, too: the free has completed, or the stream is made to wait for it.
        let other = on.stream();
        let z = other.alloc::<u8>(&pool, part(35)).unwrap();
        touch(&other, &z);
        assert!(stream.alloc::<u8>(&pool, part(40)).is_err());
        drop((y, z));
    });
}

/// Reserved memory costs nothing until it is used.
#[test]
fn contents_are_ones_own() {
    on_devices_with_memory(|on| {
        let (stream, pool) = (on.stream(), on.device.default_pool());
        let buffers: Vec<_> = (0..64).map(|i| stream.alloc::<u32>(&pool, 1 + i * 300).unwrap()).collect();
        for (i, x) in buffers.iter().enumerate() {
            stream.copy_from_host(x.write(), &vec![i as u32; x.len()]).unwrap();
        }
        for (i, x) in buffers.iter().enumerate() {
            assert!(stream.copy_to_host(x.read()).unwrap().iter().all(|&v| v == i as u32));
        }
    });
}

/// A device cannot be made if no pool can be made of its memory. Extreme settings that are possible work.
#[test]
fn memory_that_cannot_be_had_is_refused() {
    let refused = |device: millpond::Result<Device>| match device.unwrap_err().invalid() {
        Some(Invalid::Setting { setting, .. }) => *setting,
        other => panic!("{other:?}"),
    };
    let setting = |config| refused(Device::host(config));
    assert_eq!(setting(HostConfig::default().schedule(Schedule::AtOnce)), "schedule");
    let usual = HostConfig::default().memory(false);
    // The host device's pages are no smaller than the system's.
    for granularity in [0, 1, 512, 4097, 1 << 63, u64::MAX] {
        assert_eq!(refused(Device::host(HostConfig::default().granularity(granularity))), "granularity");
    }
    for granularity in [0, 1, 256, 511, 4097, (2 << 20) + 1, 1 << 63, u64::MAX] {
        assert_eq!(setting(usual.clone().granularity(granularity)), "granularity");
    }
    for total_bytes in [(1 << 56) + 1, 1 << 63, u64::MAX] {
        assert_eq!(setting(usual.clone().total_bytes(total_bytes)), "total_bytes");
    }
    for (granularity, total_bytes) in [(512, 1 << 20), (2 << 20, 1 << 56), (1 << 29, 1 << 56)] {
        let device = Device::host(usual.clone().granularity(granularity).total_bytes(total_bytes)).unwrap();
        let stream = device.stream().unwrap();
        for slack in [0.0, 1e-300, 1e308] {
            let pool = device.pool(PoolConfig::default().slack(Slack::Fixed(slack)).chunk_bytes_max(1 << 50));
            let pool = pool.unwrap();
            for bytes in [1usize, 1 << 20, 12 << 20] {
                if let Ok(buffer) = stream.alloc::<u8>(&pool, bytes) {
                    stream.free(buffer).unwrap();
                }
            }
            pool.audit().unwrap();
        }
    }
}
