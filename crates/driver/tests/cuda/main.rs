//! The CUDA driver's own properties, over `fakecuda`: missing functions, failing calls, contexts and streams of others.
//! The conformance suite has the properties that it shares with other devices.

mod failing;
mod graphs;
mod ipc;
mod missing;
mod peers;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fakecuda::{Code, Hooks};
use millpond_driver::{CudaConfig, CudaDriver, Driver, DriverError, RawStream, StreamFlags, Work};

/// Instructions for calls of this thread; removed at the end.
struct Wishes(Hooks);

impl Wishes {
    fn new() -> Self {
        Self(Hooks::load())
    }

    fn fail(&self, function: &str, code: u32) {
        self.0.fail(function, 0, Code(code));
    }

    /// Makes a call of the function return a code that no header has: that is an error.
    #[track_caller]
    fn refuse(&self, function: &str, act: &dyn Fn() -> millpond_driver::Result<()>) {
        self.fail(function, 7777);
        match act() {
            Err(DriverError::Failed { reason, .. }) => assert!(reason.contains("7777"), "{function}: {reason}"),
            other => panic!("{function}: {other:?}"),
        }
    }
}

impl Drop for Wishes {
    fn drop(&mut self) {
        self.0.reset();
    }
}

fn config() -> CudaConfig {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let ordinal = NEXT.fetch_add(1, Ordering::Relaxed) % 64;
    CudaConfig::default().ordinal(ordinal).library(fakecuda::library())
}

/// Makes a driver for a device that no other test uses.
fn driver() -> Arc<CudaDriver> {
    Arc::new(CudaDriver::new(config()).expect("a device"))
}

fn stream(driver: &CudaDriver) -> RawStream {
    driver.open_stream(StreamFlags::default()).expect("a stream")
}

fn submit(driver: &CudaDriver, stream: RawStream, work: Work) -> millpond_driver::Result<()> {
    // SAFETY: the tests map what their work uses, and wait for it before they unmap.
    unsafe { driver.submit(stream, &mut Some(work)) }
}

fn run(driver: &CudaDriver, stream: RawStream, task: impl FnOnce() + Send + 'static) {
    submit(driver, stream, Work::Run(Box::new(task))).expect("a submission");
}

fn finish(driver: &CudaDriver, stream: RawStream) {
    let event = driver.record(stream).expect("an event");
    driver.block_on(event).expect("the work gets done");
    driver.forget(event);
}

/// Returns the address of a granule of mapped memory.
fn memory(driver: &CudaDriver) -> u64 {
    let granule = driver.properties().granularity;
    let (at, chunk) = (driver.reserve(granule).unwrap(), driver.create(granule).unwrap());
    // SAFETY: the range is fresh.
    unsafe { driver.map(chunk, at, granule) }.unwrap();
    driver.destroy(chunk).unwrap();
    at
}
