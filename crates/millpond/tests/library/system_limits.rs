//! A process with few resources: devices and pools work with what the system grants, and errors name what it refuses.
//!
//! A limit holds for a whole process, so each case runs in its own process.

use millpond::{Device, Error, GIB, HostConfig, MIB, Pool, PoolConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::process::alone;

fn limit(resource: Resource, current: u64) {
    setrlimit(resource, Rlimit { current: Some(current), maximum: getrlimit(resource).maximum }).unwrap();
}

/// Returns the bytes of addresses that the process uses.
fn addresses() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

fn device(total_bytes: u64) -> Device {
    Device::host(HostConfig::default().total_bytes(total_bytes)).unwrap()
}

/// Writes and reads back memory of the pool.
#[track_caller]
fn check_use(device: &Device, pool: &Pool, bytes: u64) {
    let stream = device.stream().unwrap();
    let buffer = stream.alloc::<u8>(pool, bytes as usize).unwrap();
    stream.launch(buffer.write(), |bytes| bytes.fill(7)).unwrap();
    let read = stream.copy_to_host(buffer.read()).unwrap();
    assert!(read.iter().all(|byte| *byte == 7));
    stream.free(buffer).unwrap();
    stream.synchronize().unwrap();
}

/// Makes pools until one is refused.
fn fill(device: &Device, config: &PoolConfig) -> (Vec<Pool>, Error) {
    let mut pools = Vec::new();
    loop {
        match device.pool(config.clone()) {
            Ok(pool) => pools.push(pool),
            Err(error) => return (pools, error),
        }
        assert!(pools.len() < 100_000, "addresses have no end here");
    }
}

#[test]
fn pools_make_do_with_few_addresses() {
    alone(|| {
        limit(Resource::As, addresses() + 4 * GIB);
        // 64 GiB of addresses would not fit even once.
        let large = device(64 * GIB);
        check_use(&large, &large.default_pool(), 64 * MIB);
        let before = addresses();
        let small = device(16 * MIB);
        assert!(addresses() - before <= GIB + 64 * MIB, "{} B of addresses", addresses() - before);
        check_use(&small, &small.default_pool(), 8 * MIB);
        let (pools, error) = fill(&large, &PoolConfig::default());
        let text = error.report().to_string();
        for word in ["reserve", "addresses", "RLIMIT_AS", "ulimit -v", "max_bytes"] {
            assert!(text.contains(word), "{text}");
        }
        assert!(!pools.is_empty());
        check_use(&large, pools.last().unwrap(), MIB);
        // A request for which no addresses are left names the limit, too.
        let stream = large.stream().unwrap();
        let text = stream.alloc::<u8>(&large.default_pool(), 8 << 30).unwrap_err().report().to_string();
        assert!(text.contains("of addresses: raise the limit (RLIMIT_AS"), "{text}");
        std::thread::spawn(|| vec![1u8; MIB as usize]).join().expect("there is room for a thread");
        // Graphs reserve addresses of their own.
        drop(pools);
        let mut graph = large.graph().unwrap();
        graph.add_alloc::<u8>(&[], MIB as usize).unwrap();
        drop(graph);
        let again = large.pool(PoolConfig::default()).unwrap();
        check_use(&large, &again, MIB);
    });
}

#[test]
fn a_device_has_a_thousand_pools() {
    alone(|| {
        let device = device(64 * GIB);
        let (pools, error) = fill(&device, &PoolConfig::default());
        assert!(pools.len() > 1000, "{} pools", pools.len());
        assert!(error.report().to_string().contains("max_bytes"), "{error}");
        check_use(&device, &pools[0], 32 * MIB);
        check_use(&device, pools.last().unwrap(), 32 * MIB);
        drop(pools);
        let small = PoolConfig::default().max_bytes(64 * MIB);
        let pools: Vec<Pool> = (0..5000).map(|_| device.pool(small.clone()).unwrap()).collect();
        check_use(&device, pools.last().unwrap(), 32 * MIB);
    });
}

#[test]
fn a_limit_on_file_sizes_is_an_error() {
    alone(|| {
        let device = device(64 * GIB);
        let pool = device.default_pool();
        limit(Resource::Fsize, 32 * MIB);
        check_use(&device, &pool, 16 * MIB);
        let stream = device.stream().unwrap();
        let held = stream.alloc::<u8>(&pool, 24 * MIB as usize).unwrap();
        let text = stream.alloc::<u8>(&pool, 64 * MIB as usize).unwrap_err().report().to_string();
        assert!(text.contains("RLIMIT_FSIZE") && text.contains("ulimit -f"), "{text}");
        stream.free(held).unwrap();
        check_use(&device, &pool, 24 * MIB);
        limit(Resource::Fsize, GIB);
        check_use(&device, &pool, 64 * MIB);
    });
}
