//! Streams to which the program submits work as well: Millpond assumes nothing about them, and leaves the program's own
//! captures alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use millpond::config::StreamKind;
use millpond::config::Violations;
use millpond::device::CallKind;
use millpond::{Device, DeviceConfig, Event, PoolConfig, Result, Stream};
use millpond_driver::cuda::abi::{Code, Stream as Native};
use millpond_driver::{CudaDriver, Driver, DriverError, Failing, Peer, RawStream};

use super::{Foreign, Library, Subject, config, library, subject};
use crate::common::watchdog::ends;

/// A stream of the program's own.
struct Theirs {
    library: Library,
    ordinal: i32,
    native: u64,
}

const NON_BLOCKING: u32 = 1;
const RELAXED: i32 = 2;

impl Theirs {
    fn new(foreign: &Foreign) -> Theirs {
        let Some(Peer::Cuda(ordinal)) = foreign.0.peer() else { panic!("it is a CUDA device") };
        let (library, mut native) = (library(), Native::default());
        let open = library.function::<unsafe extern "C" fn(*mut Native, u32) -> Code>("cuStreamCreate");
        // SAFETY: a place for a stream.
        let opened = library.in_primary(ordinal, || unsafe { open(&raw mut native, NON_BLOCKING) });
        assert_eq!(opened, Code::SUCCESS);
        Theirs { library, ordinal, native: native.0 as u64 }
    }

    /// Adopts the stream. The result must be dropped before this.
    fn adopt(&self, device: &Device) -> Stream {
        // SAFETY: it is open until this is dropped.
        unsafe { device.adopt_stream(self.native, StreamKind::NonBlocking) }.expect("an open stream")
    }

    /// Keeps it busy until the returned sender is dropped.
    fn hold(&self) -> Sender<()> {
        let (go, gate) = channel::<()>();
        let data = Box::into_raw(Box::new(gate));
        unsafe extern "C" fn wait(data: *mut std::ffi::c_void) {
            // SAFETY: it is made below, and the function is called once.
            let gate = unsafe { Box::from_raw(data.cast::<std::sync::mpsc::Receiver<()>>()) };
            let _ = gate.recv();
        }
        type Call = unsafe extern "C" fn(*mut std::ffi::c_void);
        type Launch = unsafe extern "C" fn(Native, Call, *mut std::ffi::c_void) -> Code;
        let launch = self.library.function::<Launch>("cuLaunchHostFunc");
        let stream = Native(self.native as usize);
        // SAFETY: an open stream; the function takes ownership of the pointer's value.
        let launched = self.library.in_primary(self.ordinal, || unsafe { launch(stream, wait, data.cast()) });
        assert_eq!(launched, Code::SUCCESS);
        go
    }

    fn begin_capture(&self) {
        let begin = self.library.function::<unsafe extern "C" fn(Native, i32) -> Code>("cuStreamBeginCapture_v2");
        let stream = Native(self.native as usize);
        // SAFETY: an open stream.
        let begun = self.library.in_primary(self.ordinal, || unsafe { begin(stream, RELAXED) });
        assert_eq!(begun, Code::SUCCESS);
    }

    fn end_capture(&self) -> Code {
        let end = self.library.function::<unsafe extern "C" fn(Native, *mut usize) -> Code>("cuStreamEndCapture");
        let (stream, mut graph) = (Native(self.native as usize), 0);
        // SAFETY: an open stream, and a place for a graph.
        self.library.in_primary(self.ordinal, || unsafe { end(stream, &raw mut graph) })
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let close = self.library.function::<unsafe extern "C" fn(Native) -> Code>("cuStreamDestroy_v2");
        // SAFETY: a stream of this test's own.
        let _ = self.library.in_primary(self.ordinal, || unsafe { close(Native(self.native as usize)) });
    }
}

/// Returns `true` if a stream is idle after some time.
fn rests(stream: &Stream) -> bool {
    (0..30).any(|_| {
        std::thread::sleep(Duration::from_millis(2));
        stream.is_idle().expect("a device in order")
    })
}

/// Asserts that a wait for `event`, which `go` holds back, is made on the device.
fn expect_waited(waiting: &Stream, event: &Event, go: Sender<()>) -> Result<()> {
    waiting.wait(event)?;
    assert!(!rests(waiting), "it waits for the program's work");
    assert!(!event.is_over()?);
    drop(go);
    waiting.synchronize()
}

/// The program submits work between two records of one stream, without Millpond.
#[test]
fn each_record_of_a_shared_stream_is_new() -> Result<()> {
    let Some(Subject { device, foreign }) = subject() else { return Ok(()) };
    let (theirs, right) = (Theirs::new(&foreign), device.non_blocking_stream()?);
    let left = theirs.adopt(&device);
    right.wait(&left.record()?)?;
    let go = theirs.hold();
    expect_waited(&right, &left.record()?, go)?;
    // The host has waited for everything on the stream.
    left.synchronize()?;
    device.synchronize()?;
    let go = theirs.hold();
    expect_waited(&right, &left.record()?, go)
}

#[test]
fn a_stream_whose_handle_is_out_is_shared() -> Result<()> {
    let Some(Subject { device, foreign }) = subject() else { return Ok(()) };
    let (left, right) = (device.non_blocking_stream()?, device.non_blocking_stream()?);
    // SAFETY: nothing is submitted to it.
    let RawStream(native) = unsafe { left.enqueue((), |queue, ()| Ok(queue.raw_stream())) }?;
    right.wait(&left.record()?)?;
    let mut theirs = Theirs::new(&foreign);
    let own = std::mem::replace(&mut theirs.native, native);
    let go = theirs.hold();
    expect_waited(&right, &left.record()?, go)?;
    theirs.native = own;
    Ok(())
}

/// Every record of a blocking stream covers the legacy default stream's work.
#[test]
fn the_legacy_streams_work_is_in_the_streams_that_it_ties() -> Result<()> {
    let Some(Subject { device, foreign }) = subject() else { return Ok(()) };
    // SAFETY: the default stream is always there.
    let legacy = unsafe { device.adopt_stream(0, StreamKind::Blocking) }?;
    let (tied, right) = (device.stream()?, device.non_blocking_stream()?);
    right.wait(&tied.record()?)?;
    let mut theirs = Theirs::new(&foreign);
    let own = std::mem::replace(&mut theirs.native, 1);
    let go = theirs.hold();
    expect_waited(&right, &tied.record()?, go)?;
    theirs.native = own;
    drop(legacy);
    Ok(())
}

/// Work that is submitted only after its declaration does not count as completed before it begins, even if another
/// request queries the stream in between.
#[test]
fn declared_work_is_not_over_before_it_is_submitted() -> Result<()> {
    let Some(Subject { device, foreign }) = subject() else { return Ok(()) };
    let reuse = millpond::config::ReusePolicy { allow_internal_dependencies: false, ..Default::default() };
    let pool = device.pool(PoolConfig::default().reuse(reuse))?;
    let (theirs, right) = (Theirs::new(&foreign), device.non_blocking_stream()?);
    let left = theirs.adopt(&device);
    let x = right.alloc::<u8>(&pool, 1 << 20)?;
    let address = x.address();
    left.wait(&right.record()?)?;
    left.declare(x.write())?;
    // Another request queries the progress of the streams.
    let (rest, more) = (right.alloc::<u8>(&pool, 1 << 20)?, right.alloc::<u8>(&pool, 8 << 20)?);
    let go = theirs.hold();
    foreign.fill(theirs.native, address, 1 << 20, 7);
    drop(x);
    let others: Vec<_> = (0..8).map(|_| right.alloc::<u8>(&pool, 1 << 20)).collect::<Result<_>>()?;
    assert!(others.iter().all(|other| other.address() != address), "the program still fills it");
    drop(go);
    left.synchronize()?;
    drop((rest, more, others));
    Ok(())
}

/// Nothing that Millpond does meanwhile invalidates or joins a capture of the program's own. Calls that would have to
/// are refused.
#[test]
fn captures_of_the_program_are_left_alone() -> Result<()> {
    let Some(Subject { device, foreign }) = subject() else { return Ok(()) };
    let pool = device.pool(PoolConfig::default())?;
    let (theirs, other) = (Theirs::new(&foreign), device.stream()?);
    let stream = theirs.adopt(&device);
    let x = stream.alloc::<u8>(&pool, 8 << 20)?;
    stream.memset(x.write(), 3)?;
    let kept = other.alloc::<u8>(&pool, 4096)?;
    stream.wait(&other.record()?)?;
    stream.free(x)?;
    theirs.begin_capture();
    foreign.fill(theirs.native, kept.address(), 4096, 9);
    let refused =
        |error: millpond::Error| assert!(error.report().to_string().contains("capturing this stream"), "{error}");
    refused(stream.record().expect_err("it captures"));
    refused(stream.synchronize().expect_err("it captures"));
    refused(stream.is_idle().expect_err("it captures"));
    refused(stream.wait(&other.record()?).err().unwrap_or_else(|| stream.record().expect_err("known already")));
    refused(stream.memset(kept.write(), 1).expect_err("it captures"));
    refused(device.synchronize().expect_err("one captures"));
    refused(device.all_work().map(drop).expect_err("one captures"));
    // Memory is allocated, statistics are read, pools are made and dropped.
    let y = other.alloc::<u8>(&pool, 16 << 20)?;
    other.memset(y.write(), 4)?;
    other.synchronize()?;
    pool.trim_to(0)?;
    drop(device.pool(PoolConfig::default())?);
    other.free(y)?;
    assert_eq!(theirs.end_capture(), Code::SUCCESS);
    device.synchronize()?;
    stream.synchronize()
}

/// A violation that is reported but cannot be repaired does not hang.
#[test]
fn reports_of_shared_streams_end() -> Result<()> {
    let Some(config) = config() else { return Ok(()) };
    let foreign = Foreign(std::sync::Arc::new(millpond_driver::CudaDriver::new(config.clone()).expect("a device")));
    let violations = Violations::Report(millpond::config::Reporter::new(|_| ()));
    let device = Device::cuda_with(config, DeviceConfig::default().violations(violations))?;
    let (theirs, other) = (Theirs::new(&foreign), Theirs::new(&foreign));
    let (left, right) = (theirs.adopt(&device), other.adopt(&device));
    for _ in 0..3 {
        let x = left.alloc::<u8>(&device.default_pool(), 4096)?;
        left.memset(x.write(), 1)?;
        right.memset(x.write(), 2)?;
        left.free(x).map_err(|refused| refused.error)?;
    }
    device.synchronize()
}

/// A context that the program destroys is not the device's. Using its stream then breaks the promise of the adopting
/// code, and the real library need not survive that. This test is for a library that returns an error.
#[test]
fn a_destroyed_context_does_not_lose_the_device() -> Result<()> {
    let Some(Subject { device, foreign }) = subject() else { return Ok(()) };
    if super::is_real() {
        eprintln!("skipped: a library that answers for a context that is gone");
        return Ok(());
    }
    let Some(Peer::Cuda(ordinal)) = foreign.0.peer() else { panic!("it is a CUDA device") };
    let library = library();
    let own = device.stream()?;
    let (mut context, mut native) = (millpond_driver::cuda::abi::Context::default(), Native::default());
    type Create = unsafe extern "C" fn(*mut millpond_driver::cuda::abi::Context, u32, i32) -> Code;
    let create = library.function::<Create>("cuCtxCreate_v2");
    // SAFETY: a place for a context.
    assert_eq!(unsafe { create(&raw mut context, 0, ordinal) }, Code::SUCCESS);
    let open = library.function::<unsafe extern "C" fn(*mut Native, u32) -> Code>("cuStreamCreate");
    // SAFETY: a place for a stream.
    assert_eq!(unsafe { open(&raw mut native, NON_BLOCKING) }, Code::SUCCESS);
    // SAFETY: it is open, and after its end it is used only to be refused.
    let theirs = unsafe { device.adopt_stream(native.0 as u64, StreamKind::NonBlocking) }?;
    theirs.record()?.synchronize()?;
    let destroy = library.function::<super::ByContext>("cuCtxDestroy_v2");
    // SAFETY: a context of this test's own.
    assert_eq!(unsafe { destroy(context) }, Code::SUCCESS);
    let gone = theirs.record().expect_err("its context is gone");
    assert!(!matches!(gone, millpond::Error::DeviceLost { .. }), "{gone}");
    let x = own.alloc::<u8>(&device.default_pool(), 4096)?;
    own.memset(x.write(), 1)?;
    own.synchronize()
}

/// Uses a stream when it is dropped.
struct Asks(Stream, Arc<AtomicBool>);

impl Drop for Asks {
    fn drop(&mut self) {
        self.1.store(self.0.is_capturing().is_ok(), Ordering::Release);
    }
}

/// The program's value that keeps a stream open is dropped outside of all locks, even if the device closes the stream
/// late.
#[test]
fn what_kept_a_stream_open_may_use_the_stream_that_closes_it() -> Result<()> {
    let Some(config) = config() else { return Ok(()) };
    let foreign = Foreign(Arc::new(CudaDriver::new(config.clone()).expect("a CUDA device")));
    let driver: Arc<dyn Driver> = Arc::new(CudaDriver::new(config).expect("a CUDA device"));
    let driver = Arc::new(Failing::new(driver));
    let device = Device::with_driver(driver.clone(), DeviceConfig::default())?;
    let legacy = device.legacy_stream();
    let x = legacy.alloc::<u8>(&device.default_pool(), 4096)?;
    for closes_by_synchronize in [false, true] {
        let theirs = Theirs::new(&foreign);
        let dropped = Arc::new(AtomicBool::new(false));
        let keep = Arc::new(Asks(legacy.clone(), Arc::clone(&dropped)));
        // SAFETY: it is closed when `theirs` is dropped, after the device has released it.
        let stream = unsafe { device.adopt_stream_keeping(theirs.native, StreamKind::NonBlocking, keep) }?;
        driver.fail_next(CallKind::CloseStream, DriverError::Failed { call: "close_stream", reason: "planted".into() });
        drop(stream);
        assert!(!dropped.load(Ordering::Acquire), "it is open");
        if !closes_by_synchronize {
            ends(|| legacy.memset(x.write(), 1))?;
        }
        ends(|| device.synchronize())?;
        assert!(dropped.load(Ordering::Acquire));
    }
    Ok(())
}
