//! Calls that fail: out of memory, unknown error codes, and faults after which nothing runs any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millpond_driver::cuda::abi::Code;
use millpond_driver::{CopyKind, CudaDriver, Driver, DriverError, MemoryInfo, StreamFlags, Tie, Work};

use crate::{Wishes, driver, finish, memory, run, stream, submit};

/// Out of memory is reported as such, by any call.
#[test]
fn out_of_memory_is_told_from_the_rest() {
    let (driver, wishes) = (driver(), Wishes::new());
    let granule = driver.properties().granularity;
    let at = driver.reserve(granule).unwrap();
    wishes.fail("cuMemCreate", 2);
    assert_eq!(driver.create(granule), Err(DriverError::OutOfMemory { call: "create", bytes: granule }));
    let chunk = driver.create(granule).expect("the next one is had");
    for call in ["cuMemMap", "cuMemSetAccess"] {
        wishes.fail(call, 2);
        // SAFETY: the range is ours and free.
        let refused = unsafe { driver.map(chunk, at, granule) };
        assert_eq!(refused, Err(DriverError::OutOfMemory { call: "map", bytes: granule }));
    }
    // SAFETY: as above; nothing was left mapped by the refusals.
    unsafe { driver.map(chunk, at, granule) }.expect("nothing is in the way");
    assert_eq!(driver.used_bytes(), granule);
}

#[test]
fn a_limit_is_kept() {
    let config = crate::config().limit_bytes(8 << 20);
    let driver = CudaDriver::new(config).unwrap();
    assert_eq!(driver.properties().total_bytes, 8 << 20);
    let chunks = [driver.create(6 << 20).unwrap(), driver.create(2 << 20).unwrap()];
    assert!(matches!(driver.create(2 << 20), Err(DriverError::OutOfMemory { .. })));
    assert_eq!(driver.memory_info(), Some(MemoryInfo { free_bytes: 0, total_bytes: 8 << 20 }));
    driver.destroy(chunks[0]).unwrap();
    assert_eq!(driver.memory_info().map(|info| info.free_bytes), Some(6 << 20));
    driver.create(4 << 20).unwrap();
}

/// A device that does not say how full it is does not fail for it.
#[test]
fn how_full_it_is_may_be_unknown() {
    let (driver, wishes) = (driver(), Wishes::new());
    for code in [999, 31_415] {
        wishes.fail("cuMemGetInfo", code);
        assert_eq!(driver.memory_info(), None);
    }
    assert!(driver.memory_info().is_some());
}

/// Every call returns a code that no header has: an error, and the same call succeeds right after.
#[test]
fn unknown_codes_are_errors_and_change_nothing() {
    let (driver, wishes) = (driver(), Wishes::new());
    let granule = driver.properties().granularity;
    let refused = |function, act: &dyn Fn() -> millpond_driver::Result<()>| wishes.refuse(function, act);
    refused("cuMemAddressReserve", &|| driver.reserve(granule).map(drop));
    let at = driver.reserve(granule).unwrap();
    refused("cuMemCreate", &|| driver.create(granule).map(drop));
    let chunk = driver.create(granule).unwrap();
    // SAFETY: the range is ours and free.
    let map = || unsafe { driver.map(chunk, at, granule) };
    refused("cuMemMap", &map);
    refused("cuMemSetAccess", &map);
    map().unwrap();
    refused("cuStreamCreate", &|| driver.open_stream(StreamFlags::default()).map(drop));
    let stream = stream(&driver);
    let mut host = [0u8; 64];
    let to = host.as_mut_ptr().expose_provenance() as u64;
    let fill = || submit(&driver, stream, Work::Fill { at, bytes: 64, value: 3 });
    let copy =
        |kind, to, from| move |driver: &CudaDriver| submit(driver, stream, Work::Copy { to, from, bytes: 64, kind });
    let (copy_in, copy_out) = (copy(CopyKind::HostToDevice, at, to), copy(CopyKind::DeviceToHost, to, at));
    refused("cuMemsetD8Async", &fill);
    fill().unwrap();
    refused("cuMemcpyDtoHAsync", &|| copy_out(&driver));
    copy_out(&driver).unwrap();
    refused("cuMemcpyHtoDAsync", &|| copy_in(&driver));
    copy_in(&driver).unwrap();
    refused("cuEventCreate", &|| driver.record(stream).map(drop));
    refused("cuEventRecord", &|| driver.record(stream).map(drop));
    let event = driver.record(stream).unwrap();
    refused("cuStreamWaitEvent", &|| driver.wait(stream, event));
    refused("cuEventQuery", &|| driver.is_over(event).map(drop));
    refused("cuEventSynchronize", &|| driver.block_on(event));
    driver.block_on(event).unwrap();
    assert_eq!(host, [3; 64]);
    refused("cuStreamDestroy", &|| driver.close_stream(stream));
    driver.close_stream(stream).unwrap();
    // SAFETY: all work has completed.
    let unmap = || unsafe { driver.unmap(at, granule) };
    refused("cuMemUnmap", &unmap);
    unmap().unwrap();
    refused("cuMemRelease", &|| driver.destroy(chunk));
    driver.destroy(chunk).unwrap();
    // SAFETY: nothing is mapped there.
    let unreserve = || unsafe { driver.unreserve(at, granule) };
    refused("cuMemAddressFree", &unreserve);
    unreserve().unwrap();
    assert_eq!(driver.used_bytes(), 0);
}

/// The same for host memory and times.
#[test]
fn host_memory_and_times_that_are_refused_change_nothing() {
    let (driver, wishes) = (driver(), Wishes::new());
    let stream = stream(&driver);
    let failed = |act: millpond_driver::Result<()>| match act {
        Err(DriverError::Failed { reason, .. }) => assert!(reason.contains("7777"), "{reason}"),
        other => panic!("{other:?}"),
    };
    wishes.fail("cuMemHostAlloc", Code::OUT_OF_MEMORY.0);
    let none = driver.alloc_host(4096);
    assert!(matches!(none, Err(DriverError::OutOfHostMemory { bytes: 4096, .. })), "{none:?}");
    wishes.fail("cuMemHostAlloc", 7777);
    failed(driver.alloc_host(4096).map(drop));
    let at = driver.alloc_host(4096).unwrap();
    // SAFETY: nothing uses it; it is refused, and then given back once.
    let free = || unsafe { driver.free_host(at) };
    wishes.fail("cuMemFreeHost", 7777);
    failed(free());
    free().unwrap();
    assert!(matches!(free(), Err(DriverError::UnknownHandle { .. })));

    for function in ["cuEventCreate", "cuEventRecord"] {
        wishes.fail(function, 7777);
        failed(driver.record_time(stream).map(drop));
    }
    let (from, to) = (driver.record_time(stream).unwrap(), driver.record_time(stream).unwrap());
    finish(&driver, stream);
    wishes.fail("cuEventElapsedTime", 7777);
    failed(driver.elapsed(from, to).map(drop));
    driver.elapsed(from, to).unwrap();
    // The events of forgotten times are used again.
    driver.forget_time(from);
    driver.forget_time(to);
    assert!(driver.elapsed(from, to).is_err());
    let before = wishes.0.calls("cuEventCreate");
    driver.record_time(stream).unwrap();
    assert_eq!(wishes.0.calls("cuEventCreate"), before);
}

/// A refused closure is returned, so that its owner can drop it or try again.
#[test]
fn refused_work_stays_with_its_owner() {
    let (driver, wishes, ran) = (driver(), Wishes::new(), Arc::new(AtomicU32::new(0)));
    let (stream, count) = (stream(&driver), ran.clone());
    let mut work = Some(Work::Run(Box::new(move || count.store(1, Ordering::Relaxed))));
    wishes.fail("cuLaunchHostFunc", 1);
    // SAFETY: the closure uses no memory of the device.
    assert!(unsafe { driver.submit(stream, &mut work) }.is_err());
    assert!(matches!(work, Some(Work::Run(_))));
    // SAFETY: as above.
    unsafe { driver.submit(stream, &mut work) }.unwrap();
    assert!(work.is_none());
    finish(&driver, stream);
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    let mut other = Some(Work::Protect { at: 0, bytes: 4096, access: millpond_driver::Access::None });
    // SAFETY: it is refused.
    assert!(unsafe { driver.submit(stream, &mut other) }.is_err());
    assert!(other.is_some());
}

fn is_lost<T: std::fmt::Debug>(result: millpond_driver::Result<T>) -> bool {
    matches!(result, Err(DriverError::Lost { reason }) if reason.contains("CUDA_ERROR_ILLEGAL_ADDRESS"))
}

/// A sticky error loses the device for good. What is left can be dropped.
#[test]
fn a_fault_loses_the_device() {
    let (driver, wishes) = (driver(), Wishes::new());
    let (at, stream) = (memory(&driver), stream(&driver));
    let event = driver.record(stream).unwrap();
    wishes.fail("cuEventQuery", 700);
    assert!(is_lost(driver.is_over(event)));
    assert!(is_lost(submit(&driver, stream, Work::Fill { at, bytes: 8, value: 1 })));
    assert!(is_lost(driver.open_stream(StreamFlags { tie: Tie::Blocking, ..Default::default() })));
    assert!(is_lost(driver.wait(stream, event)));
    assert!(is_lost(driver.block_on(event)));
    drop(driver);
}

/// Callers promise never to unmap memory under work. Over `fakecuda` it is a fault, as on a GPU.
#[test]
fn memory_unmapped_under_work_is_noticed() {
    let driver = driver();
    let (at, stream, granule) = (memory(&driver), stream(&driver), driver.properties().granularity);
    let (go, gate) = std::sync::mpsc::channel::<()>();
    run(&driver, stream, move || gate.recv().unwrap_or_default());
    submit(&driver, stream, Work::Fill { at, bytes: 8, value: 1 }).unwrap();
    // SAFETY: none, deliberately: this breaks the promise. Nothing is unmapped.
    let breach = unsafe { driver.unmap(at, granule) };
    drop(go);
    assert!(is_lost(breach));
    assert!(is_lost(driver.record(stream)));
}

#[test]
fn a_host_function_that_panics_loses_the_device() {
    let driver = driver();
    let (stream, ran) = (stream(&driver), Arc::new(AtomicU32::new(0)));
    let count = ran.clone();
    run(&driver, stream, || panic!("planted"));
    run(&driver, stream, move || count.store(1, Ordering::Relaxed));
    let event = driver.record(stream).unwrap();
    let lost = Err(DriverError::Lost { reason: "planted".into() });
    assert_eq!(driver.block_on(event), lost);
    assert_eq!((ran.load(Ordering::Relaxed), Arc::strong_count(&ran)), (0, 1), "dropped, and not run");
    assert_eq!(submit(&driver, stream, Work::Run(Box::new(|| ()))), lost);
    // Nothing runs any more, so memory can be unmapped.
    let at = memory(&driver);
    // SAFETY: no work uses it.
    unsafe { driver.unmap(at, driver.properties().granularity) }.unwrap();
}

/// Memory that is left mapped is given back when the driver is dropped, after the work that uses it.
#[test]
fn a_driver_that_goes_gives_all_back() {
    let config = crate::config();
    let driver = CudaDriver::new(config.clone()).unwrap();
    // The device stays in use by another driver, so that leftovers would be visible.
    let other = CudaDriver::new(config).unwrap();
    let (at, stream, total) = (memory(&driver), stream(&driver), driver.properties().total_bytes);
    run(&driver, stream, || std::thread::sleep(std::time::Duration::from_millis(20)));
    submit(&driver, stream, Work::Fill { at, bytes: 8, value: 1 }).unwrap();
    assert!(other.create(total).is_err(), "some of it is taken");
    drop(driver);
    let all = other.create(total).expect("all of it is there");
    other.destroy(all).unwrap();
}
