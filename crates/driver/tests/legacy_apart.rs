//! Calls on the legacy stream during captures of blocking streams, on other threads and by another driver of the same
//! context. Each of the two may be refused, because they must not run at the same time. Both continue.
//!
//! On `fakecuda` this finds only hangs and errors. With a GPU's library (`MILLPOND_TEST_DEVICE=cuda`), such calls end
//! the process if nothing keeps them apart. Alone in its process, because the legacy stream disturbs the captures of
//! other tests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use millpond_driver::{CudaConfig, CudaDriver, Driver, DriverError, Result, StreamFlags, Tie, Work};

/// Held by a test while it runs: each would disturb the captures of the other.
static ALONE: Mutex<()> = Mutex::new(());

/// Makes a driver for the first device.
fn open() -> CudaDriver {
    let is_real = std::env::var("MILLPOND_TEST_DEVICE").is_ok_and(|wish| wish == "cuda");
    let config = CudaConfig::default();
    CudaDriver::new(if is_real { config } else { config.library(fakecuda::library()) }).expect("a CUDA device")
}

/// Begins and ends captures as fast as possible.
fn capture(driver: &CudaDriver, captures: u32) -> Result<u32> {
    let (stream, mut ended) = (driver.open_stream(StreamFlags { tie: Tie::Blocking, ..StreamFlags::default() })?, 0);
    for _ in 0..captures {
        // If the event of the stream's end is recorded in the legacy stream, the capture of another thread refuses
        // that.
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
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (driver, other, are_made) = (open(), open(), AtomicBool::new(false));
    let legacy = other.open_stream(StreamFlags { tie: Tie::Legacy, ..StreamFlags::default() })?;
    let (ended, recorded) = std::thread::scope(|scope| {
        let record = || {
            let mut recorded = 0;
            while !are_made.load(Ordering::Relaxed) {
                match other.record(legacy) {
                    Ok(event) => {
                        other.forget(event);
                        recorded += 1;
                    }
                    Err(DriverError::Failed { .. } | DriverError::Captured { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            recorded
        };
        let recording = [(); 4].map(|()| scope.spawn(record));
        let capturing = [(); 4].map(|()| scope.spawn(|| capture(&driver, 20_000)));
        let ended: Vec<_> = capturing.into_iter().map(|thread| thread.join()).collect();
        are_made.store(true, Ordering::Relaxed);
        let recorded: u64 = recording.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        (ended, recorded)
    });
    let ended = ended.into_iter().map(|ended| ended.expect("no panic")).sum::<Result<u32>>()?;
    println!("{ended} captures beside {recorded} events");
    assert!(ended > 0, "no capture was ended");
    other.block_on(other.record(legacy)?)
}

/// A driver waits for its work when it is dropped. That work waits for a thread that begins a capture with another
/// driver.
#[test]
fn a_capture_begins_while_a_driver_waits_for_its_work_at_its_end() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (leaving, other) = (open(), open());
    let (began, has_begun) = mpsc::channel();
    let granularity = leaving.properties().granularity;
    leaving.reserve(granularity)?;
    let stream = leaving.open_stream(StreamFlags { tie: Tie::Free, ..StreamFlags::default() })?;
    let wait = move || has_begun.recv_timeout(Duration::from_secs(20)).expect("a capture begins meanwhile");
    let (task, is_right) = (Box::new(wait), mpsc::channel());
    let checked = move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(task));
        let _ = is_right.0.send(outcome.is_ok());
    };
    // SAFETY: the work uses no memory of the device.
    unsafe { leaving.submit(stream, &mut Some(Work::Run(Box::new(checked)))) }?;
    std::thread::scope(|scope| {
        scope.spawn(move || drop(leaving));
        std::thread::sleep(Duration::from_millis(100));
        let stream = other.open_stream(StreamFlags { tie: Tie::Blocking, ..StreamFlags::default() })?;
        other.begin_capture(stream)?;
        began.send(()).expect("the work waits");
        other.end_capture(stream)?.into_iter().try_for_each(|graph| other.destroy_graph(graph))
    })?;
    assert!(is_right.1.recv().expect("the work is over"), "the capture was held off");
    Ok(())
}
