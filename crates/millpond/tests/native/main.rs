//! Graphs as graphs of the device's own, foreign code in captures, contexts: CUDA only, over `fakecuda` or on a GPU.
//!
//! `MILLPOND_TEST_DEVICE` picks one as elsewhere: `cuda` a GPU, `fake` or nothing `fakecuda`. The foreign code is a
//! second driver over the same context, which takes over the stream that it is handed.

#[path = "../common/again.rs"]
mod again;
mod capture;
mod contexts;
mod counted;
mod failing;
#[path = "../common/gpus.rs"]
mod gpus;
mod joined;
mod launches;
#[path = "../common/numbers.rs"]
mod numbers;
mod peers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millpond::driver::{CudaDriver, Driver, RawStream, Work};
use millpond::{CudaConfig, Device, DeviceConfig, Queue, Result, Stream};

/// A device, and foreign code on it.
struct Subject {
    device: Device,
    foreign: Foreign,
}

/// Work that Millpond knows nothing of.
#[derive(Clone)]
struct Foreign(Arc<CudaDriver>);

impl Foreign {
    /// A fill of device memory.
    fn fill(&self, native: u64, at: u64, bytes: u64, value: u8) {
        // SAFETY: an open stream of the primary context, for the length of this call.
        let stream = unsafe { self.0.adopt_stream(native) }.expect("an open stream");
        // SAFETY: the tests declare the memory to Millpond.
        unsafe { self.0.submit(stream, &mut Some(Work::Fill { at, bytes, value })) }.expect("a fill");
        self.0.close_stream(stream).expect("it was taken over");
    }
}

/// The settings of a device that no other test uses; none where another kind of device is to be tested.
fn config() -> Option<CudaConfig> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let ordinal = NEXT.fetch_add(1, Ordering::Relaxed) % 64;
    match std::env::var("MILLPOND_TEST_DEVICE").unwrap_or_default().as_str() {
        "" | "fake" => Some(CudaConfig { ordinal, library: Some(fakecuda::library()), ..CudaConfig::default() }),
        "cuda" => {
            gpus::keep();
            Some(CudaConfig::default())
        }
        other => {
            eprintln!("skipped: MILLPOND_TEST_DEVICE={other}");
            None
        }
    }
}

fn subject() -> Option<Subject> {
    let config = config()?;
    let foreign = Foreign(Arc::new(CudaDriver::new(config.clone()).expect("a CUDA device")));
    Some(Subject { device: Device::cuda_with(config, DeviceConfig::default()).expect("a CUDA device"), foreign })
}

/// Foreign code fills a buffer on a stream.
fn fill_by(foreign: &Foreign, stream: &Stream, x: &millpond::Buffer<u8>, value: u8) -> Result<()> {
    let fill = |queue: &Queue<'_>, _| {
        let RawStream(native) = queue.raw_stream();
        foreign.fill(native, x.address(), x.len() as u64, value);
        Ok(())
    };
    // SAFETY: the fill goes to that stream and writes the declared memory.
    unsafe { stream.enqueue(x.write(), fill) }
}

/// Asserts that all bytes of a buffer have a value.
#[track_caller]
fn expect(stream: &Stream, x: &millpond::Buffer<u8>, value: u8) {
    let found = stream.copy_to_host(x.read()).expect("a copy");
    assert!(found.iter().all(|byte| *byte == value), "not all are {value}: {:?}", &found[..found.len().min(16)]);
}
