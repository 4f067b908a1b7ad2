//! Streams made by others, default streams, events that are used again, and contexts of other users.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use millpond_driver::cuda::abi::{Code, Context, Stream};
use millpond_driver::{CudaDriver, Driver, Peer, RawStream, StreamFlags, Tie, Work};

use crate::{config, driver, finish, run, stream};

/// The library as another user of it in the process.
pub(crate) struct Foreign(libloading::Library);

impl Foreign {
    pub(crate) fn new() -> Self {
        // SAFETY: the test's own library.
        Self(unsafe { libloading::Library::new(fakecuda::library()) }.unwrap())
    }

    fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the callers below give the signatures of the header.
        *unsafe { self.0.get::<F>(name) }.unwrap()
    }

    /// Makes the primary context of a driver's device current.
    pub(crate) fn enter(&self, driver: &CudaDriver) {
        let Some(Peer::Cuda(ordinal)) = driver.peer() else { panic!("it is a CUDA device") };
        let mut context = Context::default();
        let retain = self.function::<unsafe extern "C" fn(*mut Context, i32) -> Code>("cuDevicePrimaryCtxRetain");
        // SAFETY: a place for a context.
        assert_eq!(unsafe { retain(&raw mut context, ordinal) }, Code::SUCCESS);
        let set = self.function::<unsafe extern "C" fn(Context) -> Code>("cuCtxSetCurrent");
        // SAFETY: it is retained.
        assert_eq!(unsafe { set(context) }, Code::SUCCESS);
        let release = self.function::<unsafe extern "C" fn(i32) -> Code>("cuDevicePrimaryCtxRelease_v2");
        // SAFETY: retained above; the driver holds it, too.
        assert_eq!(unsafe { release(ordinal) }, Code::SUCCESS);
    }

    fn open_stream(&self) -> u64 {
        let mut stream = Stream::default();
        let open = self.function::<unsafe extern "C" fn(*mut Stream, u32) -> Code>("cuStreamCreate");
        // SAFETY: a place for a stream.
        assert_eq!(unsafe { open(&raw mut stream, 0) }, Code::SUCCESS);
        stream.0 as u64
    }

    fn priority(&self, stream: u64) -> i32 {
        let mut priority = i32::MAX;
        let ask = self.function::<unsafe extern "C" fn(Stream, *mut i32) -> Code>("cuStreamGetPriority");
        // SAFETY: a stream of the driver's, and a place for a number.
        assert_eq!(unsafe { ask(Stream(stream as usize), &raw mut priority) }, Code::SUCCESS);
        priority
    }

    fn close_stream(&self, stream: u64) -> Code {
        let close = self.function::<unsafe extern "C" fn(Stream) -> Code>("cuStreamDestroy_v2");
        // SAFETY: a handle; stale ones are refused.
        unsafe { close(Stream(stream as usize)) }
    }

    /// Creates a context and makes it current.
    fn create_context(&self, device: i32) -> Context {
        let mut context = Context::default();
        let create = self.function::<unsafe extern "C" fn(*mut Context, u32, i32) -> Code>("cuCtxCreate_v2");
        // SAFETY: a place for a context.
        assert_eq!(unsafe { create(&raw mut context, 0, device) }, Code::SUCCESS);
        context
    }

    fn synchronize(&self) {
        let synchronize = self.function::<unsafe extern "C" fn() -> Code>("cuCtxSynchronize");
        // SAFETY: no argument that could be wrong.
        assert_eq!(unsafe { synchronize() }, Code::SUCCESS);
    }

    fn destroy_context(&self, context: Context) {
        let destroy = self.function::<unsafe extern "C" fn(Context) -> Code>("cuCtxDestroy_v2");
        // SAFETY: a context of a test's own.
        assert_eq!(unsafe { destroy(context) }, Code::SUCCESS);
    }

    fn current(&self) -> Context {
        let mut context = Context::default();
        let current = self.function::<unsafe extern "C" fn(*mut Context) -> Code>("cuCtxGetCurrent");
        // SAFETY: a place for a context.
        assert_eq!(unsafe { current(&raw mut context) }, Code::SUCCESS);
        context
    }
}

fn adopt(driver: &CudaDriver, native: u64) -> RawStream {
    // SAFETY: the tests adopt open streams, and default ones.
    unsafe { driver.adopt_stream(native) }.expect("a stream of the device")
}

fn tied(driver: &CudaDriver, tie: Tie) -> RawStream {
    driver.open_stream(StreamFlags { tie, ..Default::default() }).unwrap()
}

/// A priority that the device does not have becomes the nearest one that it has.
#[test]
fn streams_have_priorities() {
    let (driver, foreign) = (driver(), Foreign::new());
    foreign.enter(&driver);
    let priority = |tie, priority| {
        let stream = driver.open_stream(StreamFlags { tie, priority, ..Default::default() }).unwrap();
        let found = foreign.priority(driver.native_stream(stream).unwrap());
        driver.close_stream(stream).unwrap();
        found
    };
    assert_eq!([0, -2, -9, 3].map(|wish| priority(Tie::Free, wish)), [0, -2, -5, 0]);
    assert_eq!(priority(Tie::Blocking, -1), -1);
}

#[test]
fn a_foreign_stream_is_used_and_left_open() {
    let (driver, foreign) = (driver(), Foreign::new());
    driver.properties();
    let own = stream(&driver);
    foreign.enter(&driver);
    let native = foreign.open_stream();
    let adopted = adopt(&driver, native);
    assert_eq!(driver.native_stream(adopted), Some(native));
    assert!(driver.native_stream(own).is_some_and(|it| it != native));
    let (ran, has_run) = channel();
    run(&driver, adopted, move || ran.send(1).unwrap());
    finish(&driver, adopted);
    assert_eq!(has_run.try_recv(), Ok(1));
    driver.close_stream(adopted).unwrap();
    assert!(driver.record(adopted).is_err() && driver.native_stream(adopted).is_none());
    assert_eq!(foreign.close_stream(native), Code::SUCCESS, "it was open");
    driver.close_stream(own).unwrap();
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let (here, there, foreign) = (driver(), driver(), Foreign::new());
    foreign.enter(&here);
    let native = foreign.open_stream();
    drop((here, stream(&there)));
    // SAFETY: it is open, and not of this device.
    assert!(unsafe { there.adopt_stream(native + 8) }.is_err());
}

/// The real legacy stream: after everything in blocking streams, and unordered with others.
#[test]
fn the_legacy_stream_is_the_systems() {
    let driver = driver();
    let (blocking, free, legacy) = (tied(&driver, Tie::Blocking), tied(&driver, Tie::Free), tied(&driver, Tie::Legacy));
    assert_eq!(driver.native_stream(legacy), Some(1));
    let log = Arc::new(Mutex::new(Vec::new()));
    let (go, gate) = channel::<()>();
    run(&driver, blocking, move || gate.recv().unwrap_or_default());
    for (stream, what) in [(blocking, 1), (legacy, 2)] {
        let log = log.clone();
        run(&driver, stream, move || log.lock().unwrap().push(what));
    }
    let (event, other) = (driver.record(legacy).unwrap(), driver.record(free).unwrap());
    assert_eq!(driver.is_over(event), Ok(false));
    assert_eq!(driver.is_over(other), Ok(true));
    drop(go);
    driver.block_on(event).unwrap();
    assert_eq!(*log.lock().unwrap(), [1, 2]);
    // Closing it only forgets it.
    driver.close_stream(legacy).unwrap();
    finish(&driver, adopt(&driver, 0));
}

/// The handle names another stream on each thread, so only its own thread can submit work. Any thread can use its
/// events.
#[test]
fn a_threads_default_stream_is_its_own() {
    let driver = driver();
    let own = tied(&driver, Tie::PerThread);
    assert_eq!(driver.native_stream(own), Some(2));
    let (go, gate) = channel::<()>();
    run(&driver, own, move || gate.recv().unwrap_or_default());
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let event = driver.record(own).unwrap();
            assert_eq!(driver.is_over(event), Ok(false), "it covers the other thread's work");
            assert!(driver.wait(own, event).unwrap_err().to_string().contains("of another thread"));
            assert_eq!(driver.native_stream(own), None);
            event
        });
        let event = there.join().unwrap();
        drop(go);
        driver.block_on(event).unwrap();
    });
    finish(&driver, own);
    driver.close_stream(own).unwrap();
}

/// The `CUevent` of a forgotten event is recorded again. Waits for the earlier record stay right.
#[test]
fn events_are_used_again() {
    let driver = driver();
    let (first, second) = (tied(&driver, Tie::Blocking), tied(&driver, Tie::Blocking));
    let mut events = Vec::new();
    for _ in 0..1000 {
        let event = driver.record(first).unwrap();
        driver.forget(event);
        assert!(driver.is_over(event).is_err(), "a forgotten event is known");
        driver.forget(event);
        events.push(event.0 as u32);
    }
    events.dedup();
    assert_eq!(events.len(), 1, "one `CUevent` served them all");
    let (go, gate) = channel::<()>();
    run(&driver, first, move || gate.recv().unwrap_or_default());
    let event = driver.record(first).unwrap();
    driver.wait(second, event).unwrap();
    driver.forget(event);
    let idle = tied(&driver, Tie::Blocking);
    let again = driver.record(idle).unwrap();
    assert_eq!((again.0 as u32, driver.is_over(again)), (event.0 as u32, Ok(true)));
    let waits = driver.record(second).unwrap();
    assert_eq!(driver.is_over(waits), Ok(false), "it waits for the first record");
    drop(go);
    driver.block_on(waits).unwrap();
}

/// In a stream to which only the driver submits, one event is recorded until new work is submitted. A wait for
/// something that the stream already comes after adds nothing.
#[test]
fn the_end_of_a_stream_is_recorded_once() {
    let driver = driver();
    let (own, other) = (stream(&driver), stream(&driver));
    let (end, again) = (driver.record(own).unwrap(), driver.record(own).unwrap());
    assert_eq!(end, again);
    driver.wait(other, end).unwrap();
    let waits = driver.record(other).unwrap();
    driver.wait(other, again).unwrap();
    assert_eq!(driver.record(other), Ok(waits), "nothing came to it");
    driver.forget(end);
    assert_eq!(driver.is_over(again), Ok(true), "somebody holds it yet");
    let (go, gate) = channel::<()>();
    run(&driver, own, move || gate.recv().unwrap_or_default());
    let later = driver.record(own).unwrap();
    assert_ne!(later, again);
    assert_eq!((driver.is_over(again), driver.is_over(later)), (Ok(true), Ok(false)));
    driver.forget(again);
    driver.wait(other, later).unwrap();
    let waits = driver.record(other).unwrap();
    assert_eq!(driver.is_over(waits), Ok(false));
    drop(go);
    driver.block_on(waits).unwrap();
    // Other code that has the handle may submit work. A blocking stream comes after the legacy stream's work.
    assert_eq!(driver.record(own), driver.record(own));
    driver.native_stream(own).unwrap();
    assert_ne!(driver.record(own), driver.record(own));
    let blocking = tied(&driver, Tie::Blocking);
    assert_ne!(driver.record(blocking), driver.record(blocking));
}

/// A capture has an end of its own. Before and after the capture, the stream's end is the same.
#[test]
fn a_capture_is_not_what_came_to_the_stream() {
    let driver = driver();
    let own = stream(&driver);
    let (go, gate) = channel::<()>();
    run(&driver, own, move || gate.recv().unwrap_or_default());
    let before = driver.record(own).unwrap();
    driver.begin_capture(own).unwrap();
    let meanwhile = driver.record(own).unwrap();
    assert_ne!(meanwhile, before);
    assert_eq!(driver.is_over(meanwhile), Ok(false), "it covers what the stream had before");
    assert!(driver.end_capture(own).unwrap().is_none());
    let after = driver.record(own).unwrap();
    assert_eq!((after, driver.is_over(after)), (before, Ok(false)));
    drop(go);
    // The event is of another stream, which waits for the stream's work before: it completes later than that.
    driver.block_on(meanwhile).unwrap();
    assert_eq!((driver.is_over(after), driver.is_over(meanwhile)), (Ok(true), Ok(true)));
}

/// An event that is known to have completed is not waited for, and not queried again.
#[test]
fn what_is_over_is_known() {
    let (driver, hooks) = (driver(), fakecuda::Hooks::load());
    let (own, other) = (tied(&driver, Tie::Blocking), stream(&driver));
    let calls = || (hooks.calls("cuEventQuery"), hooks.calls("cuStreamWaitEvent"));
    let event = driver.record(own).unwrap();
    let start = calls();
    driver.wait(other, event).unwrap();
    assert_eq!(driver.is_over(event), Ok(true));
    assert_eq!(calls(), (start.0 + 1, start.1 + 1));
    driver.wait(own, event).unwrap();
    assert_eq!((driver.is_over(event), calls()), (Ok(true), (start.0 + 1, start.1 + 1)));
    // Its `CUevent` is used for another event, of which nothing is known.
    driver.forget(event);
    driver.close_stream(other).unwrap();
    let (go, gate) = channel::<()>();
    run(&driver, own, move || gate.recv().unwrap_or_default());
    let later = driver.record(own).unwrap();
    assert_eq!((later.0 as u32, driver.is_over(later)), (event.0 as u32, Ok(false)));
    drop(go);
    driver.block_on(later).unwrap();
}

/// A call that the library refuses records no event and no wait: the next attempt does.
#[test]
fn an_end_that_could_not_be_recorded_is_recorded_again() {
    let (driver, wishes) = (driver(), crate::Wishes::new());
    let (own, other) = (stream(&driver), stream(&driver));
    wishes.fail("cuEventRecord", 999);
    assert!(driver.record(own).is_err());
    let (go, gate) = channel::<()>();
    run(&driver, own, move || gate.recv().unwrap_or_default());
    let end = driver.record(own).unwrap();
    wishes.fail("cuStreamWaitEvent", 999);
    assert!(driver.wait(other, end).is_err());
    driver.wait(other, end).unwrap();
    let waits = driver.record(other).unwrap();
    assert_eq!(driver.is_over(waits), Ok(false));
    drop(go);
    driver.block_on(waits).unwrap();
}

/// A thread's own context is current again after each call, and a thread without one has none afterwards. But the
/// thread keeps the context of device 0, which the runtime library would use there.
#[test]
fn contexts_of_others_are_left_as_they_were() {
    let at = |ordinal| CudaDriver::new(config().ordinal(ordinal)).unwrap();
    let (here, first, foreign) = (at(63), at(0), Foreign::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            finish(&here, stream(&here));
            assert_eq!(foreign.current(), Context::default());
            finish(&first, stream(&first));
            let context = foreign.current();
            assert_ne!(context, Context::default());
            finish(&here, stream(&here));
            assert_eq!(foreign.current(), context);
        });
    });
}

/// A stream of another context works, records events and waits like any other. Its events answer after the context is
/// destroyed.
#[test]
fn a_stream_of_another_context_is_one_of_the_device() {
    let (driver, foreign) = (driver(), Foreign::new());
    let Some(Peer::Cuda(ordinal)) = driver.peer() else { panic!("it is a CUDA device") };
    let own = stream(&driver);
    let context = foreign.create_context(ordinal);
    let native = foreign.open_stream();
    let adopted = adopt(&driver, native);
    let at = crate::memory(&driver);
    let log = Arc::new(Mutex::new(Vec::new()));
    let (go, gate) = channel::<()>();
    run(&driver, own, move || gate.recv().unwrap_or_default());
    let note = |what| {
        let log = log.clone();
        move || log.lock().unwrap().push(what)
    };
    run(&driver, own, note(1));
    let first = driver.record(own).unwrap();
    driver.wait(adopted, first).unwrap();
    crate::submit(&driver, adopted, Work::Fill { at, bytes: 4096, value: 3 }).unwrap();
    run(&driver, adopted, note(2));
    let second = driver.record(adopted).unwrap();
    driver.wait(own, second).unwrap();
    run(&driver, own, note(3));
    let third = driver.record(own).unwrap();
    assert_eq!((driver.is_over(second), driver.is_over(third)), (Ok(false), Ok(false)));
    drop(go);
    driver.block_on(third).unwrap();
    assert_eq!(*log.lock().unwrap(), [1, 2, 3]);
    assert!(driver.begin_capture(adopted).unwrap_err().to_string().contains("cannot capture"));
    assert_eq!(foreign.current(), context);
    driver.close_stream(adopted).unwrap();
    assert_eq!(foreign.close_stream(native), Code::SUCCESS, "it was open");
    foreign.destroy_context(context);
    assert_eq!((driver.is_over(second), driver.block_on(second)), (Ok(true), Ok(())));
    finish(&driver, own);
}

/// If the library refuses a call when such a stream is adopted or used, the next attempt succeeds.
#[test]
fn a_stream_of_another_context_that_fails_once() {
    let (driver, foreign, wishes) = (driver(), Foreign::new(), crate::Wishes::new());
    let Some(Peer::Cuda(ordinal)) = driver.peer() else { panic!("it is a CUDA device") };
    let context = foreign.create_context(ordinal);
    let native = foreign.open_stream();
    for call in ["cuStreamGetCtx", "cuCtxPushCurrent", "cuCtxGetDevice", "cuStreamCreate", "cuEventCreate"] {
        wishes.fail(call, 999);
        // SAFETY: an open stream.
        assert!(unsafe { driver.adopt_stream(native) }.is_err(), "{call}");
        assert_eq!(foreign.current(), context, "{call}");
    }
    let adopted = adopt(&driver, native);
    for call in ["cuEventRecord", "cuStreamWaitEvent", "cuCtxPushCurrent"] {
        wishes.fail(call, 999);
        assert!(driver.record(adopted).is_err(), "{call}");
        assert_eq!(foreign.current(), context, "{call}");
        finish(&driver, adopted);
    }
    driver.close_stream(adopted).unwrap();
    foreign.close_stream(native);
    foreign.destroy_context(context);
}

#[test]
fn who_waits_for_the_device_has_waited_for_the_event_of_all_its_work() {
    let (driver, foreign) = (driver(), Foreign::new());
    foreign.enter(&driver);
    let streams: Vec<_> = (0..8).map(|_| stream(&driver)).collect();
    for round in 0..400 {
        streams.iter().for_each(|&stream| run(&driver, stream, || ()));
        let event = driver.record_all().unwrap().expect("CUDA has one");
        foreign.synchronize();
        assert_eq!(driver.is_over(event), Ok(true), "round {round}");
    }
}
