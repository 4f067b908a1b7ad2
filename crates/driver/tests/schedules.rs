//! The host device's streams under a scheduler that chooses every interleaving (shuttle): the same source files, with
//! primitives that the scheduler controls. A lost wake-up becomes a deadlock, which the scheduler reports with the
//! schedule that led to it.
//!
//! Part of `cargo test`. For a longer search: `SCHEDULES=100000 cargo test -p millpond-driver --test schedules
//! --release`.
#![allow(dead_code, unreachable_pub, unused_imports)] // The sources are compiled as a whole, as parts of a library.

#[path = "../src/panics.rs"]
mod panics;
#[path = "../src/host/streams/mod.rs"]
mod streams;

/// The counterpart of `src/host/sync.rs`.
mod sync {
    use std::time::Duration;

    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{self, JoinHandle, ThreadId};
    pub(crate) use shuttle::thread_local;

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("nothing panics under a lock")
    }

    pub(crate) fn sleep<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        condvar.wait(guard).expect("nothing panics under a lock")
    }

    /// The time is over at once, or just when a thread notifies (which then may have notified no other thread), or
    /// never: the scheduler chooses.
    pub(crate) fn sleep_for<'a, T>(
        condvar: &Condvar,
        guard: MutexGuard<'a, T>,
        _life: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        use shuttle::rand::Rng;
        match shuttle::rand::thread_rng().gen_range(0..4) {
            0 => (guard, true),
            1 => (sleep(condvar, guard), true),
            _ => (sleep(condvar, guard), false),
        }
    }

    pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        thread::Builder::new().name(name.to_owned()).spawn(body)
    }
}

use std::sync::Arc;
use std::time::Duration;

use millpond_driver::{HostFence, HostWaiter, Label, Places, Waiter};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;
use streams::{EventFence, Execute, Packed, Refusal, Schedule, Streams};

type Task = Box<dyn FnOnce() + Send>;

/// Items are closures.
struct Calls;

impl Execute for Calls {
    type Item = Task;

    fn execute(&self, item: Task) -> Result<(), String> {
        item();
        Ok(())
    }
}

type Device = Arc<Streams<Calls>>;

fn device(schedule: Schedule) -> Device {
    Streams::new(Calls, schedule, Duration::ZERO).expect("threads")
}

fn submit(device: &Device, stream: Packed, task: impl FnOnce() + Send + 'static) {
    let task: Box<dyn FnOnce() + Send> = Box::new(task);
    device.submit(stream, &mut Some(task)).expect("an open stream");
}

/// Explores random schedules, and schedules that change threads rarely, at critical moments. The latter need a second
/// thread, and the seeded device has none of its own.
fn explore(case: fn(Schedule)) {
    shuttle::check_random(move || case(Schedule::Seeded(7)), schedules());
    explore_parallel(move || case(Schedule::Parallel));
}

fn explore_parallel(case: impl Fn() + Clone + Send + Sync + 'static) {
    shuttle::check_random(case.clone(), schedules());
    shuttle::check_pct(case, schedules(), 3);
}

fn schedules() -> usize {
    std::env::var("SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}

#[test]
fn submission_meets_a_worker_going_idle() {
    explore(|schedule| {
        let device = device(schedule);
        let count = Arc::new(AtomicUsize::new(0));
        let stream = device.open(0).unwrap();
        for _ in 0..3 {
            let count = count.clone();
            submit(&device, stream, move || {
                count.fetch_add(1, Ordering::SeqCst);
            });
            thread::yield_now();
        }
        device.block_on(device.record(stream).unwrap()).unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 3);
        device.end();
    });
}

#[test]
fn a_wait_meets_the_end_of_what_it_waits_for() {
    explore(|schedule| {
        let device = device(schedule);
        let (left, right) = (device.open(0).unwrap(), device.open(0).unwrap());
        let step = Arc::new(AtomicUsize::new(0));
        for round in 0..2 {
            let (first, second) = (step.clone(), step.clone());
            submit(&device, left, move || {
                thread::yield_now();
                assert_eq!(first.swap(2 * round + 1, Ordering::SeqCst), 2 * round);
            });
            device.wait(right, device.record(left).unwrap()).unwrap();
            submit(&device, right, move || {
                assert_eq!(second.swap(2 * round + 2, Ordering::SeqCst), 2 * round + 1);
            });
            device.wait(left, device.record(right).unwrap()).unwrap();
        }
        device.block_on(device.record(left).unwrap()).unwrap();
        assert_eq!(step.load(Ordering::SeqCst), 4);
        device.end();
    });
}

#[test]
fn two_threads_block_while_work_ends() {
    explore(|schedule| {
        let device = device(schedule);
        let stream = device.open(0).unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let mut blocked = Vec::new();
        for ticket in 1..3 {
            let count = done.clone();
            submit(&device, stream, move || {
                count.fetch_add(1, Ordering::SeqCst);
            });
            let (device, done, event) = (device.clone(), done.clone(), device.record(stream).unwrap());
            blocked.push(thread::spawn(move || {
                device.block_on(event).unwrap();
                assert!(done.load(Ordering::SeqCst) >= ticket);
                assert_eq!(device.is_over(event), Ok(true));
            }));
        }
        for thread in blocked {
            thread.join().unwrap();
        }
        device.end();
    });
}

#[test]
fn closing_meets_the_last_work_and_the_slot_is_used_again() {
    explore(|schedule| {
        let device = device(schedule);
        let count = Arc::new(AtomicUsize::new(0));
        let mut events = Vec::new();
        for _ in 0..3 {
            let stream = device.open(0).unwrap();
            let count = count.clone();
            submit(&device, stream, move || {
                count.fetch_add(1, Ordering::SeqCst);
            });
            events.push(device.record(stream).unwrap());
            device.close(stream).unwrap();
            assert_eq!(device.record(stream), Err(Refusal::UnknownStream));
        }
        for event in events {
            device.block_on(event).unwrap();
        }
        assert_eq!(count.load(Ordering::SeqCst), 3);
        device.end();
    });
}

#[test]
fn a_loss_wakes_everybody() {
    explore(|schedule| {
        let device = device(schedule);
        let (left, right) = (device.open(1).unwrap(), device.open(2).unwrap());
        let ran = Arc::new(AtomicUsize::new(0));
        // A panic would be printed each time. A dropped message is enough.
        submit(&device, left, || std::panic::resume_unwind(Box::new("boom")));
        let lost = device.record(left).unwrap();
        let later = ran.clone();
        // Each of these may meet the loss or come before it.
        let waits = device.wait(right, lost);
        let task: Box<dyn FnOnce() + Send> = Box::new(move || later.store(1, Ordering::SeqCst));
        let submitted = device.submit(right, &mut Some(task));
        let blocked = {
            let (device, event) = (device.clone(), device.record(right).unwrap());
            thread::spawn(move || device.block_on(event))
        };
        let reason = || Refusal::Lost("stream 1: a kernel panicked: boom".to_owned());
        assert_eq!(device.block_on(lost), Err(reason()));
        assert_eq!(blocked.join().unwrap(), Err(reason()));
        for outcome in [waits, submitted] {
            assert!(outcome.is_ok() || outcome == Err(reason()));
        }
        assert_eq!(ran.load(Ordering::SeqCst), 0, "work ran that waits for what was lost");
        assert_eq!(device.is_over(lost), Err(reason()));
        device.end();
    });
}

#[test]
fn work_that_blocks_holds_up_no_other() {
    explore_parallel(|| {
        const STREAMS: usize = 3;
        let device = device(Schedule::Parallel);
        let barrier = Arc::new(shuttle::sync::Barrier::new(STREAMS));
        let streams: Vec<Packed> = (0..STREAMS).map(|_| device.open(0).unwrap()).collect();
        for &stream in &streams {
            let barrier = barrier.clone();
            submit(&device, stream, move || {
                barrier.wait();
            });
        }
        for stream in streams {
            device.block_on(device.record(stream).unwrap()).unwrap();
        }
        device.end();
    });
}

#[test]
fn a_woken_stream_does_not_wait_for_its_waker() {
    explore_parallel(|| {
        let device = device(Schedule::Parallel);
        let (left, right) = (device.open(0).unwrap(), device.open(0).unwrap());
        let barrier = Arc::new(shuttle::sync::Barrier::new(2));
        submit(&device, left, thread::yield_now);
        device.wait(right, device.record(left).unwrap()).unwrap();
        for stream in [left, right] {
            let barrier = barrier.clone();
            submit(&device, stream, move || {
                barrier.wait();
            });
        }
        device.block_on(device.record(left).unwrap()).unwrap();
        device.end();
    });
}

#[test]
fn work_drops_the_device() {
    // Seeded work runs only inside a call by a thread that still holds the device.
    explore_parallel(|| {
        let device = device(Schedule::Parallel);
        let (left, right) = (device.open(0).unwrap(), device.open(0).unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let (ended, seen) = shuttle::sync::mpsc::channel();
        submit(&device, right, thread::yield_now);
        let event = device.record(right).unwrap();
        let (last, counted) = (Ending(device.clone()), count.clone());
        submit(&device, left, move || {
            drop(last);
            counted.fetch_add(1, Ordering::SeqCst);
        });
        device.wait(left, event).unwrap();
        submit(&device, left, move || {
            count.fetch_add(1, Ordering::SeqCst);
            ended.send(count.load(Ordering::SeqCst)).unwrap();
        });
        drop(device);
        assert_eq!(seen.recv(), Ok(2), "work after the drop still runs");
    });
}

/// Ends the device as `HostDriver` does.
struct Ending(Device);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Streams of two devices wait for each other's work: neither is ever left waiting.
#[test]
fn devices_wait_for_each_other() {
    explore(|schedule| {
        let (here, there) = (device(schedule), device(schedule));
        let (left, right) = (here.open(0).unwrap(), there.open(0).unwrap());
        let step = Arc::new(AtomicUsize::new(0));
        for round in 0..2 {
            let (first, second) = (step.clone(), step.clone());
            submit(&here, left, move || {
                thread::yield_now();
                assert_eq!(first.swap(2 * round + 1, Ordering::SeqCst), 2 * round);
            });
            there.wait_foreign(right, fence(&here, left)).unwrap();
            submit(&there, right, move || {
                assert_eq!(second.swap(2 * round + 2, Ordering::SeqCst), 2 * round + 1);
            });
            here.wait_foreign(left, fence(&there, right)).unwrap();
        }
        here.block_on(here.record(left).unwrap()).unwrap();
        assert_eq!(step.load(Ordering::SeqCst), 4);
        here.end();
        there.end();
    });
}

/// Returns an event of a device, for another device.
fn fence(device: &Device, stream: Packed) -> Arc<dyn HostFence> {
    Arc::new(EventFence { streams: device.clone(), event: device.record(stream).unwrap() })
}

/// Waits of two devices in both directions, in several streams each: both sides park while they are woken.
#[test]
fn parked_waits_of_two_devices_cross() {
    explore_parallel(|| {
        let devices = [device(Schedule::Parallel), device(Schedule::Parallel)];
        let streams = [0, 1, 0, 1].map(|on: usize| (on, devices[on].open(0).unwrap()));
        let count = Arc::new(AtomicUsize::new(0));
        for round in 0..6 {
            let ((from, source), (to, target)) = (streams[round % 4], streams[(round * 3 + 1) % 4]);
            let counted = count.clone();
            submit(&devices[from], source, move || {
                counted.fetch_add(1, Ordering::SeqCst);
            });
            devices[to].wait_foreign(target, fence(&devices[from], source)).unwrap();
        }
        for (on, stream) in streams {
            devices[on].block_on(devices[on].record(stream).unwrap()).unwrap();
        }
        assert_eq!(count.load(Ordering::SeqCst), 6);
        devices.iter().for_each(|device| device.end());
    });
}

/// Each of several streams is woken once, no matter which of them was parked in time.
#[test]
fn many_streams_park_behind_one_event_while_it_is_reached() {
    explore_parallel(|| {
        let (here, there) = (device(Schedule::Parallel), device(Schedule::Parallel));
        let first = there.open(0).unwrap();
        submit(&there, first, thread::yield_now);
        let event = fence(&there, first);
        let count = Arc::new(AtomicUsize::new(0));
        let streams = [(); 3].map(|()| here.open(0).unwrap());
        for &stream in &streams {
            here.wait_foreign(stream, event.clone()).unwrap();
            let count = count.clone();
            submit(&here, stream, move || {
                count.fetch_add(1, Ordering::SeqCst);
            });
        }
        for stream in streams {
            here.block_on(here.record(stream).unwrap()).unwrap();
        }
        assert_eq!(count.load(Ordering::SeqCst), 3);
        here.end();
        there.end();
    });
}

/// Work of one device ends another device that waits for that very work: the other's last worker outlives the wait.
#[test]
fn work_ends_a_device_that_waits_for_it() {
    explore_parallel(|| {
        let (here, there) = (device(Schedule::Parallel), device(Schedule::Parallel));
        let (left, right) = (here.open(0).unwrap(), there.open(0).unwrap());
        let (hand, handed) = shuttle::sync::mpsc::channel::<Ending>();
        let (done, seen) = shuttle::sync::mpsc::channel();
        submit(&there, right, move || drop(handed.recv().unwrap()));
        here.wait_foreign(left, fence(&there, right)).unwrap();
        submit(&here, left, move || done.send(()).unwrap());
        hand.send(Ending(here.clone())).unwrap();
        drop(here);
        assert_eq!(seen.recv(), Ok(()), "work from before the end still runs");
        there.block_on(there.record(right).unwrap()).unwrap();
        there.end();
    });
}

/// A stream with threads waits for a seeded device that nobody queries.
#[test]
fn a_seeded_device_is_run_for_those_that_wait_for_it() {
    shuttle::check_random(
        || {
            let (here, there) = (device(Schedule::Parallel), device(Schedule::Seeded(7)));
            let (left, right) = (here.open(0).unwrap(), there.open(0).unwrap());
            let (done, seen) = shuttle::sync::mpsc::channel();
            for _ in 0..2 {
                let done = done.clone();
                submit(&there, right, thread::yield_now);
                here.wait_foreign(left, fence(&there, right)).unwrap();
                submit(&here, left, move || done.send(()).unwrap());
            }
            assert_eq!((seen.recv(), seen.recv()), (Ok(()), Ok(())));
            here.end();
            there.end();
        },
        schedules(),
    );
}

/// Lost work is dropped where its destructors may block on the device, also through another thread.
#[test]
fn lost_work_blocks_as_it_is_dropped() {
    struct Guard(Option<Box<dyn FnOnce() + Send>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.take().expect("it is dropped once")();
        }
    }
    explore(|schedule| {
        let device = device(schedule);
        let stream = device.open(0).unwrap();
        submit(&device, stream, || std::panic::resume_unwind(Box::new("boom")));
        let event = device.record(stream).unwrap();
        let (weak, answers) = (Arc::downgrade(&device), Arc::new(AtomicUsize::new(0)));
        let answered = answers.clone();
        let guard = Guard(Some(Box::new(move || {
            let Some(device) = weak.upgrade() else { return };
            let other = thread::spawn({
                let device = device.clone();
                move || device.block_on(event)
            });
            assert!(device.block_on(event).is_err() && other.join().unwrap().is_err());
            answered.fetch_add(1, Ordering::SeqCst);
        })));
        let task: Task = Box::new(move || {
            let _held = &guard;
        });
        let mut task = Some(task);
        // The loss may have come before it. Then the guard is dropped here.
        let _ = device.submit(stream, &mut task);
        drop(task);
        assert!(device.block_on(event).is_err());
        device.end();
        assert_eq!(answers.load(Ordering::SeqCst), 1);
    });
}

/// When a device is lost, the devices that wait for it are lost too, and nothing hangs.
#[test]
fn a_lost_device_meets_one_that_waits_for_it() {
    explore_parallel(|| {
        let (here, there) = (device(Schedule::Parallel), device(Schedule::Parallel));
        let (left, right) = (here.open(0).unwrap(), there.open(0).unwrap());
        submit(&here, left, || std::panic::resume_unwind(Box::new("boom")));
        there.wait_foreign(right, fence(&here, left)).unwrap();
        let after = there.record(right).unwrap();
        assert!(matches!(there.block_on(after), Err(Refusal::Lost(reason)) if reason.contains("boom")));
        here.end();
        there.end();
    });
}
