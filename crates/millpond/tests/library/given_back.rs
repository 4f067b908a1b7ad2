//! Physical memory is really given back to the system, by the system's own counts. Chain numbers are given back, too.

use std::os::unix::fs::MetadataExt;

use millpond::pool::PeerAccess;
use millpond::{Device, HostConfig, MIB, PoolConfig};

use crate::common::process::alone;

/// Returns the bytes of this process's memory files, as the system counts them.
fn resident() -> u64 {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let files = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let name = std::fs::read_link(&path).ok()?;
        name.to_string_lossy().contains("memfd:").then_some(path)
    });
    files.filter_map(|path| Some(std::fs::metadata(path).ok()?.blocks() * 512)).sum()
}

const TOUCHED: u64 = 64 * MIB;

#[test]
fn memory_goes_back_with_the_threshold_by_trimming_and_with_its_device() {
    alone(|| {
        let before = resident();
        let device = Device::host(HostConfig::default()).unwrap();
        let stream = device.stream().unwrap();

        // With release threshold 0, at the synchronisation after the free.
        let pool = device.pool(PoolConfig::default()).unwrap();
        let buffer = stream.alloc::<u8>(&pool, TOUCHED as usize).unwrap();
        assert!(resident() < before + MIB, "memory that is not touched costs nothing");
        stream.memset(buffer.write(), 1).unwrap();
        stream.synchronize().unwrap();
        assert!(resident() >= before + TOUCHED);
        stream.free(buffer).unwrap();
        stream.synchronize().unwrap();
        assert!(resident() < before + MIB, "{} B are left", resident() - before);

        // A threshold keeps it; a trim gives it back.
        pool.set_release_threshold(u64::MAX);
        let buffer = stream.alloc::<u8>(&pool, TOUCHED as usize).unwrap();
        stream.memset(buffer.write(), 1).unwrap();
        stream.free(buffer).unwrap();
        stream.synchronize().unwrap();
        assert!(resident() >= before + TOUCHED);
        pool.trim_to(0).unwrap();
        assert!(resident() < before + MIB);
        assert_eq!(pool.statistics().reserved_bytes, 0);

        // And with the device, even if memory is still live.
        let buffer = stream.alloc::<u8>(&pool, TOUCHED as usize).unwrap();
        stream.memset(buffer.write(), 1).unwrap();
        stream.synchronize().unwrap();
        drop((buffer, stream, pool, device));
        assert!(resident() <= before);
    });
}

/// Chain numbers of devices that used each other's memory are reused once the program has waited for them. The program
/// keeps the order that it knew of a dropped device.
#[test]
fn devices_that_met_and_went_leave_nothing() {
    alone(|| {
        let keep = Device::host(HostConfig::default()).unwrap();
        let (stream, pool) = (keep.stream().unwrap(), keep.default_pool());
        let (rounds, streams) = (300, 8);
        let number = |text: String| -> usize {
            let at = text.find("chain ").expect("an event names its chain") + 6;
            text[at..].split(',').next().unwrap().parse().unwrap()
        };
        let mut seen = Vec::new();
        for _ in 0..rounds {
            let device = Device::host(HostConfig::default()).unwrap();
            pool.grant(&device, PeerAccess::ReadWrite).unwrap();
            let x = stream.alloc::<u8>(&pool, 64).unwrap();
            let start = stream.record().unwrap();
            for _ in 0..streams {
                let other = device.stream().unwrap();
                other.wait(&start).unwrap();
                other.launch(x.read(), |_| ()).unwrap();
                seen.push(number(format!("{:?}", other.record().unwrap())));
            }
            device.synchronize().unwrap();
            drop(device);
            stream.free(x).unwrap_or_else(|refused| panic!("{}", refused.error));
        }
        let (first, last) = (seen[0], *seen.iter().max().unwrap());
        assert!(last < first + rounds * streams / 2, "{last} chains, at first {first}");
    });
}
