//! Physical memory really goes back to the system: the process's own figures say so.

use std::os::unix::fs::MetadataExt;

use millpond::{Device, HostConfig, MIB, PoolConfig};

/// Bytes that this process's memory files have, as the system counts them.
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
    let before = resident();
    let device = Device::host(HostConfig::default()).unwrap();
    let stream = device.stream().unwrap();

    // Release threshold 0: at the synchronisation after the free.
    let pool = device.pool(PoolConfig::default()).unwrap();
    let buffer = stream.alloc::<u8>(&pool, TOUCHED as usize).unwrap();
    assert!(resident() < before + MIB, "memory that is not touched costs nothing");
    stream.memset(buffer.write(), 1).unwrap();
    stream.synchronize().unwrap();
    assert!(resident() >= before + TOUCHED);
    stream.free(buffer).unwrap();
    stream.synchronize().unwrap();
    assert!(resident() < before + MIB, "{} B are left", resident() - before);

    // A threshold keeps it; trimming gives it back.
    pool.set_release_threshold(u64::MAX);
    let buffer = stream.alloc::<u8>(&pool, TOUCHED as usize).unwrap();
    stream.memset(buffer.write(), 1).unwrap();
    stream.free(buffer).unwrap();
    stream.synchronize().unwrap();
    assert!(resident() >= before + TOUCHED);
    pool.trim_to(0).unwrap();
    assert!(resident() < before + MIB);
    assert_eq!(pool.statistics().reserved_bytes, 0);

    // And with the device, whatever is still live.
    let buffer = stream.alloc::<u8>(&pool, TOUCHED as usize).unwrap();
    stream.memset(buffer.write(), 1).unwrap();
    stream.synchronize().unwrap();
    drop((buffer, stream, pool, device));
    assert!(resident() <= before);
}
