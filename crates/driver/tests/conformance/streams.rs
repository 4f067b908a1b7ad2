//! Cases about streams, events and waits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use millpond_driver::{RawEvent, RawStream};

use crate::subject::Subject;

/// The items that ran, in order.
type Log = Arc<Mutex<Vec<usize>>>;

fn note(subject: &Subject, stream: RawStream, log: &Log, what: usize) {
    let log = log.clone();
    subject.run(stream, move || log.lock().unwrap().push(what));
}

/// As `note`, but slow, so that work that does not wait for it overtakes it.
fn note_late(subject: &Subject, stream: RawStream, log: &Log, what: usize) {
    let log = log.clone();
    subject.run(stream, move || {
        std::thread::sleep(Duration::from_millis(10));
        log.lock().unwrap().push(what);
    });
}

pub(crate) fn work_runs_in_order(subject: &Subject) {
    const ITEMS: usize = 1000;
    let (stream, log) = (subject.stream(), Log::default());
    for what in 0..ITEMS {
        note(subject, stream, &log, what);
    }
    subject.finish(stream);
    assert_eq!(*log.lock().unwrap(), (0..ITEMS).collect::<Vec<_>>());
    subject.close(stream);
}

pub(crate) fn an_event_covers_what_came_before(subject: &Subject) {
    let (stream, other, log) = (subject.stream(), subject.stream(), Log::default());
    let empty = subject.record(stream);
    assert_eq!(subject.driver.is_over(empty), Ok(true), "nothing was before it");
    note_late(subject, stream, &log, 1);
    let first = subject.record(stream);
    let same = subject.record(stream);
    assert_eq!(subject.driver.is_over(subject.record(other)), Ok(true), "another stream's work is not before it");
    subject.driver.block_on(first).unwrap();
    assert_eq!(*log.lock().unwrap(), [1]);
    assert_eq!(subject.driver.is_over(same), Ok(true));
    note_late(subject, stream, &log, 2);
    assert_eq!(subject.driver.is_over(first), Ok(true), "later work does not change an event");
    subject.driver.block_on(first).unwrap();
    subject.finish(stream);
    assert_eq!(*log.lock().unwrap(), [1, 2]);
    subject.close(stream);
    subject.close(other);
}

pub(crate) fn times_follow_the_work(subject: &Subject) {
    const PAUSE: Duration = Duration::from_millis(20);
    let driver = &subject.driver;
    let (stream, other) = (subject.stream(), subject.stream());
    let first = driver.record_time(stream).expect("a time");
    subject.run(stream, || std::thread::sleep(PAUSE));
    let (gate, opens) = (Arc::new(Barrier::new(2)), subject.is_parallel);
    let gated = gate.clone();
    subject.run(stream, move || _ = opens.then(|| gated.wait()));
    let event = subject.record(stream);
    let last = driver.record_time(stream).expect("a time");
    if opens {
        assert!(driver.elapsed(first, last).is_err(), "the stream has not got there");
        gate.wait();
    }
    // An event after a time covers the time, even if an event was recorded before it.
    subject.finish(stream);
    let elapsed = driver.elapsed(first, last).expect("both have completed");
    // A device without a clock counts items: two, and perhaps the records.
    let least = if subject.has_clock { PAUSE } else { Duration::from_micros(2) };
    assert!(elapsed >= least, "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(60), "{elapsed:?}");
    assert_eq!(driver.elapsed(first, last), Ok(elapsed), "times stay as they were taken");
    assert_eq!(driver.elapsed(last, first), Ok(Duration::ZERO));
    assert_eq!(driver.elapsed(last, last), Ok(Duration::ZERO));
    subject.run(other, || std::thread::sleep(PAUSE));
    let late = driver.record_time(other).expect("a time");
    subject.finish(other);
    assert!(driver.elapsed(first, late).expect("both have completed") > Duration::ZERO, "also between streams");
    for time in [first, last, late] {
        driver.forget_time(time);
        assert!(driver.elapsed(time, time).is_err(), "it is forgotten");
    }
    let again = driver.record_time(stream).expect("a time");
    subject.finish(stream);
    assert_eq!(driver.elapsed(again, again), Ok(Duration::ZERO));
    driver.forget_time(again);
    driver.forget(event);
    subject.close(stream);
    subject.close(other);
    assert!(driver.record_time(stream).is_err(), "the stream is closed");
}

pub(crate) fn asking_gets_there(subject: &Subject) {
    if !subject.progresses {
        return;
    }
    let (stream, other, log) = (subject.stream(), subject.stream(), Log::default());
    note_late(subject, other, &log, 1);
    subject.wait(stream, subject.record(other));
    note(subject, stream, &log, 2);
    let event = subject.record(stream);
    let patience = Instant::now() + Duration::from_secs(60);
    while !subject.driver.is_over(event).unwrap() {
        assert!(Instant::now() < patience, "asking does not get there");
        std::thread::yield_now();
    }
    assert_eq!(*log.lock().unwrap(), [1, 2]);
    subject.close(stream);
    subject.close(other);
}

pub(crate) fn a_stream_waits_for_an_event(subject: &Subject) {
    for _ in 0..5 {
        let (producer, consumer, log) = (subject.stream(), subject.stream(), Log::default());
        note_late(subject, producer, &log, 1);
        let event = subject.record(producer);
        subject.wait(consumer, event);
        subject.driver.forget(event);
        let waited = subject.record(consumer);
        note(subject, consumer, &log, 2);
        subject.driver.block_on(waited).unwrap();
        assert_eq!(log.lock().unwrap().first(), Some(&1), "an event after a wait covers what was waited for");
        subject.finish(consumer);
        assert_eq!(*log.lock().unwrap(), [1, 2]);
        subject.close(producer);
        subject.close(consumer);
    }
}

pub(crate) fn chains_of_streams(subject: &Subject) {
    const LENGTH: usize = 40;
    let streams: Vec<RawStream> = (0..LENGTH).map(|_| subject.stream()).collect();
    let log = Log::default();
    // The last ones are submitted while the first have not run.
    note_late(subject, streams[0], &log, 0);
    for what in 1..LENGTH {
        subject.wait(streams[what], subject.record(streams[what - 1]));
        note(subject, streams[what], &log, what);
    }
    subject.finish(streams[LENGTH - 1]);
    assert_eq!(*log.lock().unwrap(), (0..LENGTH).collect::<Vec<_>>());
    // The same back and forth between two streams.
    log.lock().unwrap().clear();
    for what in 0..200 {
        let (here, there) = (streams[what % 2], streams[(what + 1) % 2]);
        note(subject, here, &log, what);
        subject.wait(there, subject.record(here));
    }
    subject.finish(streams[0]);
    assert_eq!(*log.lock().unwrap(), (0..200).collect::<Vec<_>>());
    for stream in streams {
        subject.close(stream);
    }
}

pub(crate) fn diamonds(subject: &Subject) {
    const WIDTH: usize = 6;
    let (top, bottom) = (subject.stream(), subject.stream());
    let sides: Vec<RawStream> = (0..WIDTH).map(|_| subject.stream()).collect();
    for _ in 0..20 {
        let log = Log::default();
        note(subject, top, &log, 100);
        let split = subject.record(top);
        for (what, &side) in sides.iter().enumerate() {
            subject.wait(side, split);
            note(subject, side, &log, what);
            subject.wait(bottom, subject.record(side));
        }
        note(subject, bottom, &log, 200);
        subject.wait(top, subject.record(bottom));
        subject.finish(top);
        let mut log = log.lock().unwrap().clone();
        assert_eq!((log[0], log[WIDTH + 1]), (100, 200));
        log.sort_unstable();
        assert_eq!(log[..WIDTH], (0..WIDTH).collect::<Vec<_>>());
    }
    for stream in sides.into_iter().chain([top, bottom]) {
        subject.close(stream);
    }
}

pub(crate) fn waits_that_change_nothing(subject: &Subject) {
    let (stream, other, log) = (subject.stream(), subject.stream(), Log::default());
    let empty = subject.record(other);
    subject.wait(stream, empty);
    note_late(subject, other, &log, 1);
    let event = subject.record(other);
    note(subject, other, &log, 2);
    for _ in 0..3 {
        subject.wait(stream, event);
    }
    subject.wait(other, event);
    let own = subject.record(stream);
    subject.wait(stream, own);
    subject.finish(stream);
    assert_eq!(log.lock().unwrap().first(), Some(&1));
    subject.finish(other);
    subject.wait(stream, event);
    subject.finish(stream);
    assert_eq!(*log.lock().unwrap(), [1, 2]);
    subject.close(stream);
    subject.close(other);
}

pub(crate) fn parallel_streams_overlap(subject: &Subject) {
    if !subject.is_parallel {
        return;
    }
    // Each closure waits for all the others: this ends only if all streams run at once.
    const STREAMS: usize = 24;
    let barrier = Arc::new(Barrier::new(STREAMS));
    let streams: Vec<RawStream> = (0..STREAMS).map(|_| subject.stream()).collect();
    for _ in 0..3 {
        for &stream in &streams {
            let barrier = barrier.clone();
            subject.run(stream, move || {
                barrier.wait();
            });
        }
    }
    for stream in streams {
        subject.finish(stream);
        subject.close(stream);
    }
}

pub(crate) fn a_woken_stream_overlaps_its_waker(subject: &Subject) {
    if !subject.is_parallel {
        return;
    }
    for _ in 0..20 {
        let (left, right, log) = (subject.stream(), subject.stream(), Log::default());
        note(subject, left, &log, 1);
        subject.wait(right, subject.record(left));
        let barrier = Arc::new(Barrier::new(2));
        for stream in [left, right] {
            let barrier = barrier.clone();
            subject.run(stream, move || {
                barrier.wait();
            });
        }
        for stream in [left, right] {
            subject.finish(stream);
            subject.close(stream);
        }
    }
}

pub(crate) fn streams_come_and_go(subject: &Subject) {
    let count = Arc::new(AtomicUsize::new(0));
    let mut events: Vec<RawEvent> = Vec::new();
    for number in 0..2000 {
        let stream = subject.stream();
        let count = count.clone();
        subject.run(stream, move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        if number % 100 == 0 {
            events.push(subject.record(stream));
        }
        if number % 2 == 0 {
            subject.finish(stream);
        }
        subject.close(stream);
        assert!(subject.driver.record(stream).is_err(), "a closed stream is known");
        assert!(subject.driver.close_stream(stream).is_err(), "a stream closes twice");
    }
    for event in events {
        subject.driver.block_on(event).expect("an event outlives its stream");
        assert_eq!(subject.driver.is_over(event), Ok(true));
        subject.driver.forget(event);
    }
}

pub(crate) fn closed_streams_finish(subject: &Subject) {
    let (stream, other, log) = (subject.stream(), subject.stream(), Log::default());
    note_late(subject, other, &log, 1);
    subject.wait(stream, subject.record(other));
    for what in 2..10 {
        note(subject, stream, &log, what);
    }
    let event = subject.record(stream);
    subject.close(other);
    subject.close(stream);
    let next = subject.stream();
    subject.wait(next, event);
    note(subject, next, &log, 10);
    subject.finish(next);
    assert_eq!(*log.lock().unwrap(), (1..=10).collect::<Vec<_>>());
    subject.close(next);
}

pub(crate) fn work_submits_work(subject: &Subject) {
    if !subject.work_may_submit {
        println!("skipped: closures of this device must not call it");
        return;
    }
    let (stream, other, log) = (subject.stream(), subject.stream(), Log::default());
    let (driver, inner) = (subject.driver.clone(), log.clone());
    subject.run(stream, move || {
        let task = Box::new(move || inner.lock().unwrap().push(2));
        // SAFETY: the work touches no device memory.
        unsafe { driver.submit(other, &mut Some(millpond_driver::Work::Run(task))) }.expect("a submission by work");
    });
    note(subject, stream, &log, 1);
    subject.finish(stream);
    subject.finish(other);
    let mut log = log.lock().unwrap().clone();
    log.sort_unstable();
    assert_eq!(log, [1, 2]);
    subject.close(stream);
    subject.close(other);
}

/// Random programs on a few streams: an item begins only after all items that the program puts before it have ended,
/// and an event has completed only after its items have ended. Events are recorded more often than work is submitted.
pub(crate) fn random_programs_keep_their_order(subject: &Subject) {
    for seed in 0..20 {
        random_program(subject, seed);
    }
}

fn random_program(subject: &Subject, seed: u64) {
    const STREAMS: usize = 5;
    const STEPS: usize = 500;
    let mut random = Rng::with_seed(seed);
    let streams: Vec<RawStream> = (0..STREAMS).map(|_| subject.stream()).collect();
    // For each stream, the items that come before its next point.
    let mut known: Vec<Vec<usize>> = vec![Vec::new(); STREAMS];
    let ended: Arc<Vec<AtomicU64>> = Arc::new((0..STEPS).map(|_| AtomicU64::new(0)).collect());
    let has_ended = |items: &[usize]| items.iter().all(|&item| ended[item].load(Ordering::Relaxed) == 1);
    let wrong = Arc::new(AtomicUsize::new(0));
    let mut events: Vec<(RawEvent, Vec<usize>)> = Vec::new();
    let mut items = 0;
    for _ in 0..STEPS {
        let stream = random.usize(..STREAMS);
        match random.usize(..8) {
            0 | 1 => {
                let (item, before, ended, wrong) = (items, known[stream].clone(), ended.clone(), wrong.clone());
                let pause = random.usize(..4) == 0;
                subject.run(streams[stream], move || {
                    let missing = before.iter().filter(|&&item| ended[item].load(Ordering::Relaxed) == 0).count();
                    wrong.fetch_add(missing, Ordering::Relaxed);
                    if pause {
                        std::thread::yield_now();
                    }
                    ended[item].store(1, Ordering::Relaxed);
                });
                known[stream].push(item);
                items += 1;
            }
            2..5 => events.push((subject.record(streams[stream]), known[stream].clone())),
            _ if events.is_empty() => {}
            5 | 6 => {
                let (event, before) = &events[random.usize(..events.len())];
                subject.wait(streams[stream], *event);
                known[stream].extend(before);
                known[stream].sort_unstable();
                known[stream].dedup();
            }
            _ => {
                let (event, before) = events.swap_remove(random.usize(..events.len()));
                let is_over = subject.driver.is_over(event).unwrap();
                assert!(!is_over || has_ended(&before), "seed {seed}: an event is early");
                subject.driver.forget(event);
            }
        }
    }
    for (event, before) in events {
        subject.driver.block_on(event).unwrap();
        assert!(has_ended(&before), "seed {seed}: an event is early");
        subject.driver.forget(event);
    }
    for stream in streams {
        subject.finish(stream);
        subject.close(stream);
    }
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "seed {seed}: items began before what they wait for had ended");
    assert!(has_ended(&(0..items).collect::<Vec<_>>()), "seed {seed}: an item did not run");
}

pub(crate) fn threads_share_a_device(subject: &Subject) {
    const THREADS: usize = 4;
    const ROUNDS: usize = 200;
    let total = Arc::new(AtomicUsize::new(0));
    let shared = subject.stream();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let own = subject.stream();
                for round in 0..ROUNDS {
                    let seen = Arc::new(AtomicUsize::new(0));
                    let (first, second, count) = (seen.clone(), seen.clone(), total.clone());
                    subject.run(own, move || first.store(1, Ordering::Relaxed));
                    subject.wait(shared, subject.record(own));
                    subject.run(shared, move || {
                        count.fetch_add(second.load(Ordering::Relaxed), Ordering::Relaxed);
                    });
                    if round % 16 == 0 {
                        subject.finish(shared);
                    }
                }
                subject.close(own);
            });
        }
    });
    subject.finish(shared);
    assert_eq!(total.load(Ordering::Relaxed), THREADS * ROUNDS);
    subject.close(shared);
}
