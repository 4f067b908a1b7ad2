//! A closure that panics loses the device, and nothing hangs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use millpond_driver::{Driver, DriverError, RawEvent};

use super::*;

fn lost(label: u32, message: &str) -> DriverError {
    DriverError::Lost { reason: format!("stream {label}: a kernel panicked: {message}") }
}

/// Panics without the message that a panic hook would print.
fn boom() {
    std::panic::resume_unwind(Box::new("boom".to_owned()));
}

/// Counts its drops.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Blocks on an event, up to a limit.
fn block(device: &Arc<HostDriver>, event: RawEvent) -> millpond_driver::Result<()> {
    let (device, (answer, answered)) = (device.clone(), mpsc::channel());
    std::thread::spawn(move || answer.send(device.block_on(event)));
    answered.recv_timeout(Duration::from_secs(60)).expect("nothing hangs")
}

#[test]
fn later_work_is_dropped_without_running() {
    for device in [parallel(), seeded(3)] {
        let (left, right) =
            (device.open_stream(StreamFlags { label: 7.into(), ..Default::default() }).unwrap(), stream(&*device));
        let (ran, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let before = device.record(right).unwrap();
        let (go, gate) = mpsc::channel::<()>();
        run(&*device, left, move || {
            let _ = gate.recv();
            boom();
        });
        let event = device.record(left).unwrap();
        device.wait(right, event).unwrap();
        for stream in [left, right, right] {
            let (ran, dropped) = (ran.clone(), Dropped(dropped.clone()));
            run(&*device, stream, move || {
                let _held = &dropped;
                ran.fetch_add(1, Ordering::SeqCst);
            });
        }
        let behind = device.record(right).unwrap();
        drop(go);
        assert_eq!(block(&device, event), Err(lost(7, "boom")));
        assert_eq!(block(&device, behind), Err(lost(7, "boom")));
        assert_eq!(device.is_over(behind), Err(lost(7, "boom")));
        assert_eq!(device.is_over(before), Ok(true), "what was over stays so");
        assert_eq!(device.block_on(before), Err(lost(7, "boom")));
        assert_eq!(try_run(&*device, left, || ()), Err(lost(7, "boom")));
        assert_eq!(device.wait(left, behind), Err(lost(7, "boom")));
        assert!(device.open_stream(StreamFlags::default()).is_err());
        device.close_stream(left).unwrap();
        drop(device);
        assert_eq!((ran.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (0, 3));
    }
}

#[test]
fn a_lost_event_is_answered_when_its_stream_is_still() {
    let device = parallel();
    let (left, right) = (stream(&*device), stream(&*device));
    let (go, gate) = mpsc::channel::<()>();
    let (started, start) = mpsc::channel();
    let ended = Arc::new(AtomicUsize::new(0));
    let end = ended.clone();
    run(&*device, right, move || {
        started.send(()).unwrap();
        let _ = gate.recv();
        end.store(1, Ordering::SeqCst);
    });
    start.recv().unwrap();
    run(&*device, right, || ());
    let event = device.record(right).unwrap();
    run(&*device, left, boom);
    assert!(block(&device, device.record(left).unwrap()).is_err());
    assert_eq!(device.is_over(event), Ok(false), "the closure still runs and may use its memory");
    let waiting = {
        let device = device.clone();
        std::thread::spawn(move || device.block_on(event))
    };
    std::thread::sleep(Duration::from_millis(20));
    assert!(!waiting.is_finished());
    drop(go);
    assert_eq!(waiting.join().unwrap(), Err(lost(0, "boom")));
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    assert_eq!(device.is_over(event), Err(lost(0, "boom")));
}

#[test]
fn memory_of_a_lost_device_can_be_given_back() {
    let device = parallel();
    let chunk = device.create(GRANULE).unwrap();
    let at = map(&*device, chunk, GRANULE);
    touch(at, GRANULE, 1);
    let stream = stream(&*device);
    run(&*device, stream, boom);
    assert!(block(&device, device.record(stream).unwrap()).is_err());
    assert_eq!(peek(at), 1);
    unmap(&*device, at, GRANULE);
    device.destroy(chunk).unwrap();
    assert_eq!(device.resident_bytes(), Ok(0));
}

#[test]
fn other_devices_live_on() {
    let (lost, other) = (parallel(), parallel());
    let (left, right) = (stream(&*lost), stream(&*other));
    run(&*lost, left, boom);
    assert!(block(&lost, lost.record(left).unwrap()).is_err());
    run(&*other, right, || ());
    finish(&*other, right);
}

#[test]
fn destructors_may_panic_too() {
    struct Spiteful;
    impl Drop for Spiteful {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(Spiteful));
        }
    }
    let device = parallel();
    let stream = stream(&*device);
    let (go, gate) = mpsc::channel::<()>();
    run(&*device, stream, move || {
        let _ = gate.recv();
        std::panic::resume_unwind(Box::new(Spiteful));
    });
    let spite = Spiteful;
    run(&*device, stream, move || {
        let _held = &spite;
    });
    drop(go);
    assert_eq!(block(&device, device.record(stream).unwrap()), Err(lost(0, "a panic without a message")));
}

/// Runs a closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Lost work is dropped when nothing of the device runs any more. Calls of its destructors to the device are answered,
/// on their own thread and on other threads that they wait for.
#[test]
fn lost_work_may_synchronise_as_it_is_dropped() {
    for device in [parallel(), seeded(1)] {
        let (left, right) = (stream(&*device), stream(&*device));
        let (go, gate) = mpsc::channel::<()>();
        let (said, heard) = mpsc::channel();
        run(&*device, left, move || {
            let _ = gate.recv();
            boom();
        });
        let guard = |stream| {
            let (device, said) = (device.clone(), said.clone());
            let event = device.record(stream).unwrap();
            OnDrop(move || {
                let own = device.block_on(event);
                let other = std::thread::spawn({
                    let device = device.clone();
                    move || device.block_on(event)
                });
                said.send((own, other.join().unwrap())).unwrap();
            })
        };
        run(&*device, right, || ());
        device.wait(right, device.record(left).unwrap()).unwrap();
        for (stream, guard) in [(left, guard(left)), (right, guard(left)), (left, guard(right))] {
            run(&*device, stream, move || {
                let _held = &guard;
            });
        }
        let event = device.record(left).unwrap();
        drop(go);
        let asking = std::thread::spawn(move || device.block_on(event));
        for _ in 0..3 {
            let answers = heard.recv_timeout(Duration::from_secs(60)).expect("nothing hangs");
            assert!(answers.0.is_err() && answers.1.is_err(), "{answers:?}");
        }
        assert!(asking.join().unwrap().is_err());
    }
}

/// The payload of a panic is dropped when nothing runs any more, too.
#[test]
fn a_payload_may_synchronise_as_it_is_dropped() {
    for device in [parallel(), seeded(1)] {
        let stream = stream(&*device);
        let (said, heard) = mpsc::channel();
        let asked = Arc::downgrade(&device);
        run(&*device, stream, move || {
            let payload = OnDrop(move || {
                let device = asked.upgrade().expect("the test holds it");
                said.send(device.block_on(device.record(stream).unwrap())).unwrap();
            });
            std::panic::resume_unwind(Box::new(Mutex::new(payload)));
        });
        assert!(block(&device, device.record(stream).unwrap()).is_err());
        assert_eq!(heard.recv_timeout(Duration::from_secs(60)), Ok(Err(lost(0, "a panic without a message"))));
    }
}
