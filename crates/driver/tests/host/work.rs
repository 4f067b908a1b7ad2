//! Workers, seeds, and the end of a device.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use millpond_driver::{Driver, DriverError, STREAMS_MAX, WORKERS_MAX};

use super::*;

/// Returns the order in which a seed runs ten items of each of four streams. The last stream waits for the middle of
/// the first.
fn order(seed: u64) -> Vec<(usize, usize)> {
    let device = seeded(seed);
    let log = Arc::new(Mutex::new(Vec::new()));
    let streams: Vec<RawStream> = (0..4).map(|_| stream(&*device)).collect();
    for item in 0..10 {
        for (number, &stream) in streams.iter().enumerate() {
            let log = log.clone();
            run(&*device, stream, move || log.lock().unwrap().push((number, item)));
        }
        if item == 5 {
            device.wait(streams[3], device.record(streams[0]).unwrap()).unwrap();
        }
    }
    assert!(log.lock().unwrap().is_empty(), "nothing runs by itself");
    // A query runs one item, blocking runs what is needed, and the end of the device runs the rest.
    assert_eq!(device.is_over(device.record(streams[0]).unwrap()), Ok(false));
    assert_eq!(log.lock().unwrap().len(), 1);
    finish(&*device, streams[1]);
    drop(device);
    let log = log.lock().unwrap().clone();
    assert_eq!(log.len(), 40);
    for number in 0..4 {
        let items: Vec<usize> = log.iter().filter(|entry| entry.0 == number).map(|entry| entry.1).collect();
        assert_eq!(items, (0..10).collect::<Vec<_>>(), "stream {number} is out of order");
    }
    let place = |entry| log.iter().position(|&found| found == entry);
    assert!(place((0, 5)) < place((3, 6)), "a wait was passed");
    log
}

#[test]
fn a_seed_repeats_and_seeds_differ() {
    let first = order(1);
    assert_eq!(first, order(1));
    let orders: std::collections::HashSet<_> = (0..20).map(order).collect();
    assert!(orders.len() > 15, "20 seeds gave only {} orders", orders.len());
}

#[test]
fn work_that_waits_for_itself_is_told() {
    for device in [parallel(), seeded(1)] {
        let (left, right) = (stream(&*device), stream(&*device));
        let (answer, answered) = mpsc::channel();
        let inner = device.clone();
        run(&*device, left, move || {
            // Work of other streams can be waited for: on a seeded device it runs here.
            run(&*inner, right, || ());
            let (own, other) = (inner.record(left).unwrap(), inner.record(right).unwrap());
            answer.send((inner.block_on(other), inner.is_over(own), inner.block_on(own))).unwrap();
        });
        let asking = std::thread::spawn(move || finish(&*device, left));
        let (other, over, blocked) = answered.recv_timeout(Duration::from_secs(60)).expect("nothing hangs");
        assert_eq!((other, over), (Ok(()), Ok(false)));
        assert!(matches!(blocked, Err(DriverError::Deadlock { call: "block_on" })), "{blocked:?}");
        asking.join().unwrap();
    }
}

#[test]
fn work_that_waits_for_itself_by_way_of_other_streams_is_told() {
    for device in [parallel(), seeded(1)] {
        let [left, middle, right] = std::array::from_fn(|_| stream(&*device));
        let (answer, answered) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let inner = device.clone();
        run(&*device, left, move || {
            let _ = gate.recv();
            answer.send(inner.block_on(inner.record(right).unwrap())).unwrap();
        });
        device.wait(middle, device.record(left).unwrap()).unwrap();
        run(&*device, middle, || ());
        device.wait(right, device.record(middle).unwrap()).unwrap();
        run(&*device, right, || ());
        go.send(()).unwrap();
        let asking = std::thread::spawn(move || finish(&*device, right));
        let blocked = answered.recv_timeout(Duration::from_secs(60)).expect("nothing hangs");
        assert!(matches!(blocked, Err(DriverError::Deadlock { call: "block_on" })), "{blocked:?}");
        asking.join().unwrap();
    }
}

/// The work behind the item that blocks waits for work that waits for the item.
#[test]
fn work_that_streams_wait_for_on_both_sides_of_an_event_is_told() {
    for device in [parallel(), seeded(1)] {
        let (left, right) = (stream(&*device), stream(&*device));
        let (answer, answered) = mpsc::channel();
        let inner = device.clone();
        run(&*device, left, move || {
            inner.wait(right, inner.record(left).unwrap()).unwrap();
            let event = inner.record(right).unwrap();
            inner.wait(left, event).unwrap();
            answer.send(inner.block_on(event)).unwrap();
        });
        let asking = std::thread::spawn(move || finish(&*device, left));
        let blocked = answered.recv_timeout(Duration::from_secs(60)).expect("nothing hangs");
        assert!(matches!(blocked, Err(DriverError::Deadlock { call: "block_on" })), "{blocked:?}");
        asking.join().unwrap();
    }
}

/// The stream of the event waits for the item, but only after the event.
#[test]
fn work_that_is_waited_for_behind_an_event_waits_for_the_event() {
    let device = parallel();
    let (left, right) = (stream(&*device), stream(&*device));
    let (answer, answered) = mpsc::channel();
    let (recorded, event) = mpsc::channel();
    let inner = device.clone();
    run(&*device, right, || std::thread::sleep(Duration::from_millis(250)));
    run(&*device, left, move || answer.send(inner.block_on(event.recv().unwrap())).unwrap());
    recorded.send(device.record(right).unwrap()).unwrap();
    device.wait(right, device.record(left).unwrap()).unwrap();
    assert_eq!(answered.recv_timeout(Duration::from_secs(60)), Ok(Ok(())));
    finish(&*device, right);
}

#[test]
fn more_streams_than_workers_wait_for_each_other() {
    const STREAMS: usize = 2 * WORKERS_MAX + 44;
    let device = parallel();
    let barrier = Arc::new(Barrier::new(STREAMS));
    let streams: Vec<RawStream> = (0..STREAMS).map(|_| stream(&*device)).collect();
    for &stream in &streams {
        let barrier = barrier.clone();
        run(&*device, stream, move || {
            barrier.wait();
        });
    }
    for &stream in &streams {
        crate::foreign::finish_soon(&device, stream);
    }
}

#[test]
fn workers_come_with_work_and_go_without() {
    const STREAMS: usize = 20;
    let device = parallel();
    assert_eq!(device.workers(), 1);
    let barrier = Arc::new(Barrier::new(STREAMS));
    let streams: Vec<RawStream> = (0..STREAMS).map(|_| stream(&*device)).collect();
    for &stream in &streams {
        let barrier = barrier.clone();
        run(&*device, stream, move || {
            barrier.wait();
        });
    }
    for &stream in &streams {
        finish(&*device, stream);
    }
    assert!(device.workers() >= STREAMS);
    let patience = Instant::now() + Duration::from_secs(60);
    while device.workers() > 1 {
        assert!(Instant::now() < patience, "idle workers stay");
        std::thread::sleep(Duration::from_millis(50));
    }
    run(&*device, streams[0], || ());
    finish(&*device, streams[0]);
}

#[test]
fn the_end_of_a_device_waits_for_its_work() {
    for device in [parallel(), seeded(1)] {
        let (left, right) = (stream(&*device), stream(&*device));
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..20 {
            for (here, there) in [(left, right), (right, left)] {
                let count = count.clone();
                run(&*device, here, move || {
                    std::thread::sleep(Duration::from_micros(100));
                    count.fetch_add(1, Ordering::SeqCst);
                });
                device.wait(there, device.record(here).unwrap()).unwrap();
            }
        }
        drop(device);
        assert_eq!(count.load(Ordering::SeqCst), 40);
    }
}

#[test]
fn work_may_hold_the_last_device() {
    let device = parallel();
    let stream = stream(&*device);
    let chunk = device.create(GRANULE).unwrap();
    let at = map(&*device, chunk, GRANULE);
    let (held, (done, seen), (go, gate)) = (device.clone(), mpsc::channel(), mpsc::channel::<()>());
    run(&*device, stream, move || {
        let _ = gate.recv();
        drop(held);
    });
    // The device's memory outlives the device until its work is done.
    run(&*device, stream, move || {
        touch(at, GRANULE, 3);
        done.send(peek(at)).unwrap();
    });
    drop(device);
    drop(go);
    assert_eq!(seen.recv_timeout(Duration::from_secs(60)), Ok(3));
}

#[test]
fn streams_have_a_limit_and_are_used_again() {
    let device = parallel();
    let streams: Vec<RawStream> = (0..STREAMS_MAX).map(|_| stream(&*device)).collect();
    assert!(matches!(device.open_stream(StreamFlags::default()), Err(DriverError::Failed { .. })));
    for &stream in &streams {
        device.close_stream(stream).unwrap();
    }
    let again = stream(&*device);
    assert!(!streams.contains(&again), "a handle is never used twice");
}

#[test]
fn events_that_were_never_recorded_are_refused() {
    let device = parallel();
    let stream = stream(&*device);
    let event = device.record(stream).unwrap();
    for wrong in [event.0 + (1 << 16), u64::MAX] {
        let wrong = millpond_driver::RawEvent(wrong);
        assert!(matches!(device.is_over(wrong), Err(DriverError::UnknownHandle { what: "event", .. })));
        assert!(matches!(device.block_on(wrong), Err(DriverError::UnknownHandle { what: "event", .. })));
        assert!(matches!(device.wait(stream, wrong), Err(DriverError::UnknownHandle { what: "event", .. })));
    }
}
