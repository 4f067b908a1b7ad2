//! The device's own graphs, other code in captures, and contexts: CUDA only, over `fakecuda` or on a GPU.
//!
//! `MILLPOND_TEST_DEVICE` selects as elsewhere: `cuda` a GPU, `fake` or nothing `fakecuda`. The other code is a second
//! driver over the same context, which adopts the stream that it is given.

mod capture;
mod contexts;
mod counted;
mod failing;
mod joined;
mod launches;
mod peers;
mod shared_streams;

use std::sync::Arc;

use millpond::cuda::CudaConfig;
use millpond::raw::Queue;
use millpond::{Device, DeviceConfig, Result, Stream};
use millpond_driver::cuda::abi::{Code, Context};
use millpond_driver::{CudaDriver, Driver, Peer, RawStream};

use crate::common;

/// A device, and other code on it.
struct Subject {
    device: Device,
    foreign: Foreign,
}

/// Code that submits work without Millpond.
#[derive(Clone)]
struct Foreign(Arc<CudaDriver>);

impl Foreign {
    /// Fills device memory.
    fn fill(&self, native: u64, at: u64, bytes: u64, value: u8) {
        let Some(Peer::Cuda(ordinal)) = self.0.peer() else { panic!("it is a CUDA device") };
        let library = library();
        library.in_primary(ordinal, || {
            let fill = library.function::<unsafe extern "C" fn(u64, u8, usize, usize) -> Code>("cuMemsetD8Async");
            // SAFETY: the tests declare the memory to Millpond, and the stream is open.
            assert_eq!(unsafe { fill(at, value, bytes as usize, native as usize) }, Code::SUCCESS);
        });
    }
}

/// The library as the program uses it.
struct Library(libloading::Library);

/// Returns `true` if the tests use real devices.
fn is_real() -> bool {
    std::env::var("MILLPOND_TEST_DEVICE").is_ok_and(|wish| wish == "cuda")
}

fn library() -> Library {
    let name = if is_real() { "libcuda.so.1".into() } else { fakecuda::library() };
    // SAFETY: the library of the devices, which is loaded already.
    Library(unsafe { libloading::Library::new(name) }.expect("the library of the devices"))
}

impl Library {
    fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the callers give the signatures of the header.
        *unsafe { self.0.get::<F>(name) }.expect("a function of the library")
    }

    /// Runs `act` while a device's primary context is current.
    fn in_primary<R>(&self, ordinal: i32, act: impl FnOnce() -> R) -> R {
        let mut context = Context::default();
        let retain = self.function::<unsafe extern "C" fn(*mut Context, i32) -> Code>("cuDevicePrimaryCtxRetain");
        // SAFETY: a place for a context.
        assert_eq!(unsafe { retain(&raw mut context, ordinal) }, Code::SUCCESS);
        // SAFETY: it is retained.
        assert_eq!(unsafe { self.function::<ByContext>("cuCtxPushCurrent_v2")(context) }, Code::SUCCESS);
        let done = act();
        let pop = self.function::<unsafe extern "C" fn(*mut Context) -> Code>("cuCtxPopCurrent_v2");
        // SAFETY: a place for a context.
        assert_eq!(unsafe { pop(&raw mut context) }, Code::SUCCESS);
        let release = self.function::<unsafe extern "C" fn(i32) -> Code>("cuDevicePrimaryCtxRelease_v2");
        // SAFETY: retained above.
        assert_eq!(unsafe { release(ordinal) }, Code::SUCCESS);
        done
    }
}

type ByContext = unsafe extern "C" fn(Context) -> Code;

/// Returns the settings of a device that no other test uses, or `None` if another kind of device is to be tested.
fn config() -> Option<CudaConfig> {
    match std::env::var("MILLPOND_TEST_DEVICE").unwrap_or_default().as_str() {
        "" | "fake" => Some(common::fake()),
        "cuda" => {
            common::gpus::keep();
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

/// Makes the other code fill a buffer on a stream.
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
