//! Calls on the legacy stream beside captures of blocking streams, on other threads and by another driver of the same
//! context: either may be refused, for the one may not come after the other, and both go on.
//!
//! On `fakecuda` this finds hangs and errors only; that such calls end the process where nothing keeps them apart is
//! the way of a GPU's library (`MILLPOND_TEST_DEVICE=cuda`). Alone in its process, for the legacy stream disturbs the
//! captures of other tests.

use std::sync::atomic::{AtomicBool, Ordering};

use millpond_driver::{CudaConfig, CudaDriver, Driver, DriverError, Result, StreamFlags, Tie};

/// A driver over the first device.
fn open() -> CudaDriver {
    let is_real = std::env::var("MILLPOND_TEST_DEVICE").is_ok_and(|wish| wish == "cuda");
    let library = (!is_real).then(fakecuda::library);
    CudaDriver::new(CudaConfig { library, ..CudaConfig::default() }).expect("a CUDA device")
}

/// Ends captures, and begins others, as fast as it can.
fn capture(driver: &CudaDriver, captures: u32) -> Result<u32> {
    let (stream, mut ended) = (driver.open_stream(StreamFlags { tie: Tie::Blocking, ..StreamFlags::default() })?, 0);
    for _ in 0..captures {
        // Where the legacy stream is marked for the stream's end, another thread's capture refuses it.
        if driver.begin_capture(stream).is_ok() {
            match driver.end_capture(stream) {
                Ok(Some(graph)) => driver.destroy_graph(graph)?,
                Ok(None) | Err(DriverError::Failed { .. } | DriverError::Captured { .. }) => {}
                Err(error) => return Err(error),
            }
            ended += 1;
        }
    }
    driver.close_stream(stream)?;
    Ok(ended)
}

#[test]
fn captures_begin_and_end_beside_calls_on_the_legacy_stream() -> Result<()> {
    let (driver, other, are_made) = (open(), open(), AtomicBool::new(false));
    let legacy = other.open_stream(StreamFlags { tie: Tie::Legacy, ..StreamFlags::default() })?;
    let (ended, marked) = std::thread::scope(|scope| {
        let mark = || {
            let mut marked = 0;
            while !are_made.load(Ordering::Relaxed) {
                match other.mark(legacy) {
                    Ok(mark) => {
                        other.forget(mark);
                        marked += 1;
                    }
                    Err(DriverError::Failed { .. } | DriverError::Captured { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            marked
        };
        let marking = [(); 4].map(|()| scope.spawn(mark));
        let capturing = [(); 4].map(|()| scope.spawn(|| capture(&driver, 20_000)));
        let ended: Vec<_> = capturing.into_iter().map(|thread| thread.join()).collect();
        are_made.store(true, Ordering::Relaxed);
        let marked: u64 = marking.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        (ended, marked)
    });
    let ended = ended.into_iter().map(|ended| ended.expect("no panic")).sum::<Result<u32>>()?;
    println!("{ended} captures beside {marked} marks");
    assert!(ended > 0, "no capture was ended");
    other.block_on(other.mark(legacy)?)
}
