//! Host devices that wait for each other: no wait blocks a thread, and a device may end inside another device's work.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use millpond_driver::{Driver, Fence, HostDriver, RawStream, WORKERS_MAX};

use super::*;

/// Longer than any of this takes, but finite.
const PATIENCE: Duration = Duration::from_secs(60);

fn fence(device: &HostDriver, stream: RawStream) -> Fence {
    device.fence(device.record(stream).unwrap()).unwrap()
}

/// Waits until a stream's present work has completed, up to a limit. Other threads are not asked to run anything.
pub(crate) fn finish_soon(device: &HostDriver, stream: RawStream) {
    let (event, patience) = (device.record(stream).unwrap(), Instant::now() + PATIENCE);
    while !device.is_over(event).unwrap() {
        assert!(Instant::now() < patience, "the work hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn more_streams_wait_for_another_device_than_there_are_workers() {
    let (here, there) = (parallel(), parallel());
    let (first, across) = (stream(&*here), stream(&*there));
    let (go, gate) = mpsc::channel::<()>();
    run(&*here, first, move || {
        let _ = gate.recv();
    });
    // More items than a worker runs in one turn: the stream has to be taken again.
    for _ in 0..200 {
        run(&*here, first, || ());
    }
    there.wait_foreign(across, &fence(&here, first)).unwrap();
    run(&*there, across, || ());
    let event = fence(&there, across);
    let streams: Vec<RawStream> = (0..WORKERS_MAX + 44).map(|_| stream(&*here)).collect();
    for &stream in &streams {
        here.wait_foreign(stream, &event).unwrap();
        run(&*here, stream, || ());
    }
    // Each wait is parked as soon as a worker has seen it.
    std::thread::sleep(Duration::from_millis(100));
    assert!(here.workers() < 64, "{} workers wait", here.workers());
    drop(go);
    for &stream in &streams {
        finish_soon(&here, stream);
    }
}

#[test]
fn a_fence_of_no_event_is_refused() {
    let device = parallel();
    let event = device.record(stream(&*device)).unwrap();
    assert!(device.fence(millpond_driver::RawEvent(event.0 + (1 << 16))).is_err());
}

/// Waits in both directions, which is fine as long as each event is older than the wait for it.
#[test]
fn devices_of_both_schedules_wait_for_each_other() {
    for (here, there) in [(parallel(), seeded(1)), (seeded(1), parallel()), (seeded(1), seeded(2))] {
        let (left, right) = (stream(&*here), stream(&*there));
        let (count, counted) = mpsc::channel();
        for round in 0..20 {
            let (first, second) = (count.clone(), count.clone());
            run(&*here, left, move || first.send(2 * round).unwrap());
            there.wait_foreign(right, &fence(&here, left)).unwrap();
            run(&*there, right, move || second.send(2 * round + 1).unwrap());
            here.wait_foreign(left, &fence(&there, right)).unwrap();
        }
        finish_soon(&here, left);
        assert_eq!(counted.try_iter().collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
    }
}

/// A stream of a device with threads waits for a seeded device, whose work only a waiting thread runs.
#[test]
fn a_wait_for_a_seeded_device_gets_there_by_itself() {
    let (here, there) = (parallel(), seeded(1));
    let (left, right) = (stream(&*here), stream(&*there));
    let (done, seen) = mpsc::channel();
    run(&*there, right, || ());
    here.wait_foreign(left, &fence(&there, right)).unwrap();
    run(&*here, left, move || done.send(()).unwrap());
    assert_eq!(seen.recv_timeout(PATIENCE), Ok(()));
}

#[test]
fn work_of_a_device_drops_one_that_waits_for_it() {
    for (here, there) in
        [(parallel(), parallel()), (seeded(1), parallel()), (parallel(), seeded(1)), (seeded(1), seeded(2))]
    {
        let (left, right) = (stream(&*here), stream(&*there));
        let (send, receive) = mpsc::channel::<Arc<HostDriver>>();
        let (done, seen) = mpsc::channel();
        run(&*there, right, move || drop(receive.recv().unwrap()));
        here.wait_foreign(left, &fence(&there, right)).unwrap();
        run(&*here, left, move || done.send(()).unwrap());
        send.send(here).unwrap();
        let waiting = std::thread::spawn(move || finish(&*there, right));
        assert_eq!(seen.recv_timeout(PATIENCE), Ok(()), "what was submitted before the end is done");
        waiting.join().unwrap();
    }
}

/// A lost device ends without waiting for another device.
#[test]
fn a_lost_device_ends_while_it_waits_for_another() {
    let (here, there) = (parallel(), parallel());
    let (left, other, right) = (stream(&*here), stream(&*here), stream(&*there));
    let (go, gate) = mpsc::channel::<()>();
    run(&*there, right, move || {
        let _ = gate.recv();
    });
    here.wait_foreign(left, &fence(&there, right)).unwrap();
    run(&*here, left, || ());
    run(&*here, other, || std::panic::resume_unwind(Box::new("boom")));
    let (done, seen) = mpsc::channel();
    std::thread::spawn(move || {
        drop(here);
        done.send(()).unwrap();
    });
    assert_eq!(seen.recv_timeout(PATIENCE), Ok(()));
    drop(go);
    finish(&*there, right);
}

/// When a device is lost, streams of other devices that wait for it are woken once its work has stopped.
#[test]
fn a_loss_is_told_to_other_devices() {
    let (here, there) = (parallel(), parallel());
    let (left, right, other) = (stream(&*here), stream(&*there), stream(&*there));
    let (go, gate) = mpsc::channel::<()>();
    let (started, start) = mpsc::channel();
    run(&*there, right, move || {
        started.send(()).unwrap();
        let _ = gate.recv();
    });
    start.recv().unwrap();
    run(&*there, right, || ());
    here.wait_foreign(left, &fence(&there, right)).unwrap();
    let event = here.record(left).unwrap();
    run(&*there, other, || std::panic::resume_unwind(Box::new("boom")));
    assert!(there.block_on(there.record(other).unwrap()).is_err());
    assert_eq!(here.is_over(event), Ok(false), "what it waits for still runs");
    drop(go);
    let lost = here.block_on(event).unwrap_err();
    assert!(lost.to_string().contains("boom"), "{lost}");
}
