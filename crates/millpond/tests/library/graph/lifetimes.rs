//! The memory and handles that launches need exist until the launches have completed, also after the last handle of the
//! device is dropped. Nothing of a device stays behind, whatever its kernels own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use millpond::graph::Instantiate;
use millpond::{Buffer, Device, DeviceConfig, HostConfig, Result, Stream};
use millpond_driver::{HostConfig as HostDriverConfig, HostDriver};

use crate::common::watchdog::ends;

/// Launches a kernel that runs until the sender is dropped, and for a moment longer: what is dropped too early is gone
/// by then.
fn hold(stream: &Stream) -> Result<Sender<()>> {
    let (go, gate) = channel::<()>();
    stream.launch((), move |()| {
        let _ = gate.recv();
        std::thread::sleep(Duration::from_millis(200));
    })?;
    Ok(go)
}

/// Makes a kernel that checks if all bytes of a buffer are `value`.
fn check(seen: &Sender<bool>, value: u8) -> impl FnMut(&[u8]) + Send + 'static {
    let seen = seen.clone();
    move |x| {
        let _ = seen.send(x.iter().all(|byte| *byte == value));
    }
}

fn assert_all_right(seen: &Receiver<bool>, count: usize) {
    for _ in 0..count {
        assert_eq!(seen.recv_timeout(Duration::from_secs(30)), Ok(true), "a kernel sees what was uploaded");
    }
}

/// Sizes whose freed host memory is reused at once, and given back to the system at once.
const LENS: [usize; 2] = [4096, 4 << 20];

/// Checks that the work of `upload`, and the kernels behind it, run right after the last handles were dropped.
fn outlives_all_handles(upload: impl Fn(&Device, &Stream, Buffer<u8>, u8, &Sender<bool>) -> Result<()>) {
    for len in LENS {
        let (seen, results) = channel();
        {
            let device = Device::host(HostConfig::default()).unwrap();
            let (stream, pool) = (device.stream().unwrap(), device.default_pool());
            let go = hold(&stream).unwrap();
            for value in 0..4u8 {
                let buffer = stream.alloc::<u8>(&pool, len).unwrap();
                upload(&device, &stream, buffer, value, &seen).unwrap();
            }
            // The last handles are dropped before any of this has begun: the device waits for it.
            drop(go);
        }
        ends(|| assert_all_right(&results, 4));
    }
}

#[test]
fn uploads_of_graphs_outlive_all_handles() {
    outlives_all_handles(|device, stream, buffer, value, seen| {
        let mut graph = device.graph()?;
        let up = graph.add_copy_from_host(&[], buffer.write(), &vec![0x40 + value; buffer.len()])?;
        graph.add_kernel(&[up], buffer.read(), check(seen, 0x40 + value))?;
        graph.instantiate(Instantiate::default())?.launch(stream).map(drop)
    });
}

#[test]
fn staged_copies_outlive_all_handles() {
    outlives_all_handles(|_, stream, buffer, value, seen| {
        stream.copy_from_host(buffer.write(), &vec![0x50 + value; buffer.len()])?;
        stream.launch(buffer.read(), check(seen, 0x50 + value))
    });
}

/// Returns a host device, and a weak pointer to its driver.
fn device() -> (Device, Weak<HostDriver>) {
    let driver = Arc::new(HostDriver::new(HostDriverConfig::default()).unwrap());
    let watch = Arc::downgrade(&driver);
    (Device::with_driver(driver, DeviceConfig::default()).unwrap(), watch)
}

#[track_caller]
fn assert_goes(what: &str, driver: &Weak<HostDriver>) {
    let start = Instant::now();
    while driver.strong_count() > 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}: the device stays for ever");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Makes a kernel that owns a buffer of its device, and uses it.
fn owning(buffer: Buffer<u8>) -> impl FnMut(&[u8]) + Send + 'static {
    move |_| {
        let _ = &buffer;
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_device_ends_although_kernels_of_dropped_instances_own_its_buffers() {
    for is_over in [true, false] {
        let (device, driver) = device();
        let stream = device.stream().unwrap();
        let buffer = stream.alloc::<u8>(&device.default_pool(), 4096).unwrap();
        let view = buffer.view();
        let mut graph = device.graph().unwrap();
        graph.add_kernel(&[], view.read(), owning(buffer)).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        let _ = exec.launch(&stream).unwrap();
        if is_over {
            stream.synchronize().unwrap();
        }
        drop((exec, graph, stream, device));
        assert_goes("an instance in flight", &driver);
    }
}

#[test]
fn a_device_ends_although_a_capture_that_nobody_ends_owns_its_buffers() {
    let (device, driver) = device();
    let stream = device.stream().unwrap();
    let buffer = stream.alloc::<u8>(&device.default_pool(), 4096).unwrap();
    let view = buffer.view();
    stream.begin_capture().unwrap();
    stream.launch(view.read(), owning(buffer)).unwrap();
    drop((stream, device));
    assert_goes("a capture", &driver);
}

#[test]
fn a_device_ends_although_outputs_of_launches_are_freed_by_nobody() {
    for exec_goes_last in [false, true] {
        let (device, driver) = device();
        let stream = device.stream().unwrap();
        let mut graph = device.graph().unwrap();
        graph.add_alloc::<u8>(&[], 4096).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        let _ = exec.launch(&stream).unwrap();
        match exec_goes_last {
            true => drop((device, graph, stream, exec)),
            false => drop((exec, graph, stream, device)),
        }
        assert_goes("an output", &driver);
    }
}

/// A kernel's value is dropped with the last of its graph, its instances and its launches, and not later.
#[test]
fn what_a_kernel_owns_goes_with_its_last_launch() {
    let device = Device::host(HostConfig::default()).unwrap();
    let stream = device.stream().unwrap();
    let go = hold(&stream).unwrap();
    let owned = Arc::new(AtomicUsize::new(0));
    let mut graph = device.graph().unwrap();
    let counter = Arc::clone(&owned);
    let count = move |()| {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    graph.add_kernel(&[], (), count).unwrap();
    let exec = graph.instantiate(Instantiate::default()).unwrap();
    let _ = exec.launch(&stream).unwrap();
    drop((graph, exec));
    assert_eq!(Arc::strong_count(&owned), 2, "the launch in flight needs it");
    drop(go);
    ends(|| stream.synchronize()).unwrap();
    let start = Instant::now();
    while Arc::strong_count(&owned) > 1 {
        assert!(start.elapsed() < Duration::from_secs(30), "nobody needs it any more");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(owned.load(Ordering::Relaxed), 1);
}
