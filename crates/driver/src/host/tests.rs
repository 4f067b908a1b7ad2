//! Tests of the streams with plain threads: small enough for Miri (`cargo +nightly miri test -p millpond-driver
//! --lib`), which also makes the reorderings that the memory model allows. `tests/schedules.rs` tests the
//! interleavings.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::streams::{Execute, Refusal, Schedule, Streams};

type Task = Box<dyn FnOnce() + Send>;

struct Calls;

impl Execute for Calls {
    type Item = Task;

    fn execute(&self, item: Task) -> Result<(), String> {
        item();
        Ok(())
    }
}

fn device(schedule: Schedule) -> Arc<Streams<Calls>> {
    Streams::new(Calls, schedule, Duration::from_millis(1)).unwrap()
}

/// A number without any protection: only the order of the streams makes its use right, and Miri reports a wrong use.
#[derive(Default)]
struct Bare(UnsafeCell<u64>);

// SAFETY: only work that the streams order uses it.
unsafe impl Sync for Bare {}

impl Bare {
    fn add(&self) {
        self.read_and_add();
    }

    fn read_and_add(&self) -> u64 {
        let place = self.0.get();
        // SAFETY: see the type.
        let value = unsafe { place.read() } + 1;
        // SAFETY: see the type.
        unsafe { place.write(value) };
        value
    }
}

#[test]
fn order_makes_memory_visible() {
    for schedule in [Schedule::Parallel, Schedule::Seeded(1)] {
        let device = device(schedule);
        let streams = [device.open(0).unwrap(), device.open(0).unwrap()];
        let number = Arc::new(Bare::default());
        for round in 0..10 {
            let (here, there) = (streams[round % 2], streams[(round + 1) % 2]);
            let number = number.clone();
            device.submit(here, &mut Some(Box::new(move || number.add()))).unwrap();
            device.wait(there, device.record(here).unwrap()).unwrap();
        }
        let event = device.record(streams[0]).unwrap();
        while !device.is_over(event).unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(number.read_and_add(), 11);
        device.end();
    }
}

#[test]
fn blocking_makes_memory_visible() {
    let device = device(Schedule::Parallel);
    let number = Arc::new(Bare::default());
    for round in 1..5 {
        let stream = device.open(0).unwrap();
        let inner = number.clone();
        device.submit(stream, &mut Some(Box::new(move || inner.add()))).unwrap();
        let event = device.record(stream).unwrap();
        device.close(stream).unwrap();
        device.block_on(event).unwrap();
        assert_eq!(number.read_and_add(), 2 * round);
    }
    device.end();
}

#[test]
fn a_loss_drops_what_waits() {
    let device = device(Schedule::Parallel);
    let stream = device.open(4).unwrap();
    let held = Arc::new(AtomicUsize::new(0));
    device.submit(stream, &mut Some(Box::new(|| std::panic::resume_unwind(Box::new("boom"))))).unwrap();
    for _ in 0..3 {
        let held = held.clone();
        // The device may be lost already.
        let _ = device.submit(stream, &mut Some(Box::new(move || held.store(1, Ordering::Relaxed))));
    }
    let lost = Refusal::Lost("stream 4: a kernel panicked: boom".to_owned());
    assert_eq!(device.block_on(device.record(stream).unwrap()), Err(lost));
    device.end();
    assert_eq!((Arc::strong_count(&held), held.load(Ordering::Relaxed)), (1, 0));
}

/// The numbers of a stream's work run out after years: the stream reports it, and its slot is not reused.
#[test]
fn a_stream_that_has_used_up_its_numbers_is_reported() {
    let device = device(Schedule::Parallel);
    let stream = device.open(0).unwrap();
    device.skip_to(stream, (1 << 48) - 2);
    device.submit(stream, &mut Some(Box::new(|| ()))).unwrap();
    let last = device.record(stream).unwrap();
    device.block_on(last).unwrap();
    let mut refused: Option<Task> = Some(Box::new(|| ()));
    assert_eq!(device.submit(stream, &mut refused), Err(Refusal::Spent));
    assert!(refused.is_some());
    assert_eq!(device.record(stream), Ok(last));
    device.close(stream).unwrap();
    let next = device.open(0).unwrap();
    assert_ne!(next.slot(), stream.slot());
    assert_eq!(device.is_over(last), Ok(true));
    device.end();
}
