//! A stream has a cache for each pool that it frees to, in any order, and continues with the others when a pool is
//! dropped. Nothing of a destroyed pool stays in a cache.

use millpond::{Buffer, Device, HostConfig, Pool, PoolConfig, Stream};

/// Allocates and frees from all pools in turn. Returns how often each pool's heap was used meanwhile.
fn asked(stream: &Stream, pools: &[Pool]) -> millpond::Result<Vec<u64>> {
    let locks = || pools.iter().map(|pool| pool.statistics().shared_locks).collect::<Vec<_>>();
    let pairs = |count: usize| {
        (0..count).flat_map(|_| pools).try_for_each(|pool| {
            let buffer: Buffer<u8> = stream.alloc(pool, 1000)?;
            stream.free(buffer).map_err(|refused| refused.error)
        })
    };
    // The first allocation of each pool uses its heap, and reading the statistics costs the same in both cases.
    pairs(1)?;
    let (before, between) = (locks(), locks());
    pairs(50)?;
    let after = locks();
    Ok((0..pools.len()).map(|at| (after[at] - between[at]) - (between[at] - before[at])).collect())
}

#[test]
fn each_pool_has_a_cache_of_a_stream_and_goes_without_the_others() -> millpond::Result<()> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    let pool = || device.pool(PoolConfig::default());
    let mut pools = vec![pool()?, pool()?, pool()?];
    assert_eq!(asked(&stream, &pools)?, [0; 3]);
    // The pool with the first cache is dropped, and another one is made.
    drop(pools.remove(0));
    assert_eq!(asked(&stream, &pools)?, [0; 2]);
    pools.push(pool()?);
    assert_eq!(asked(&stream, &pools)?, [0; 3]);
    drop(pools.remove(0));
    pools.push(pool()?);
    assert_eq!(asked(&stream, &pools)?, [0; 3]);
    assert!(pools.iter().all(|pool| pool.statistics().used_bytes == 0));
    Ok(())
}

#[test]
fn another_threads_pairs_are_served_from_the_same_caches() -> millpond::Result<()> {
    let device = Device::host(HostConfig::default())?;
    let (stream, pools) = (device.stream()?, [device.pool(PoolConfig::default())?]);
    // Often enough that this thread owns the locks.
    for _ in 0..100 {
        assert_eq!(asked(&stream, &pools)?, [0]);
    }
    let theirs = std::thread::scope(|scope| scope.spawn(|| asked(&stream, &pools)).join()).expect("no panic")?;
    assert_eq!(theirs, [0], "its locks are another thread's");
    assert_eq!(asked(&stream, &pools)?, [0]);
    Ok(())
}

#[test]
fn a_pool_that_is_destroyed_while_a_stream_is_busy_goes_with_the_next_synchronisation() -> millpond::Result<()> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    let (kept, destroyed) =
        (device.pool(PoolConfig::default())?, device.pool(PoolConfig::default().release_threshold(u64::MAX))?);
    let before = device.picture().len() - 1;
    let pair = |pool: &Pool| {
        let buffer: Buffer<u8> = stream.alloc(pool, 1000)?;
        stream.free(buffer).map_err(|refused| refused.error)
    };
    pair(&kept)?;
    pair(&destroyed)?;
    let mut buffer = stream.alloc::<u8>(&kept, 1000)?;
    // The stream is locked, so the thread that destroys the pool cannot use its caches.
    let mut freeing = stream.freeing()?;
    std::thread::scope(|scope| scope.spawn(|| drop(destroyed)).join()).expect("no panic");
    assert!(freeing.try_free(&mut buffer));
    drop(freeing);
    assert_eq!(device.picture().len(), before + 1, "a block of it rests on the stream's cache");
    device.synchronize()?;
    assert_eq!(device.picture().len(), before, "its memory and its addresses are given back");
    pair(&kept)
}
