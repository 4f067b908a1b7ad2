//! The biased lock under a scheduler that chooses every interleaving (shuttle): the same source file, with primitives
//! that the scheduler controls. In its schedules every store is visible at once, as if each had its barrier. They
//! explore which thread is the owner when, not the stores that a processor may delay.
#![allow(dead_code, unreachable_pub)] // The source is compiled as a whole, as a part of a library.

#[path = "../src/biased_lock.rs"]
mod biased_lock;

/// The counterpart of `src/biased_lock_sync.rs`.
mod biased_lock_sync {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    pub(crate) fn thread_number() -> u64 {
        usize::from(shuttle::current::me()) as u64 + 1
    }

    pub(crate) fn new_thread_number() -> u64 {
        thread_number()
    }

    /// No process forks here.
    pub(crate) fn is_forked() -> bool {
        false
    }

    pub(crate) fn enter_forked() {}

    pub(crate) fn leave_forked() {}

    /// Another thread may run in between, as when a processor is interrupted.
    pub(crate) fn half_fence() {
        shuttle::thread::yield_now();
    }

    shuttle::lazy_static! {
        pub(crate) static ref ENDED: shuttle::sync::Mutex<Vec<u64>> = shuttle::sync::Mutex::new(Vec::new());
    }

    pub(crate) fn has_ended(number: u64) -> bool {
        ENDED.lock().unwrap().contains(&number)
    }

    pub(crate) fn can_stop_all() -> bool {
        true
    }

    pub(crate) fn stop_all() {
        shuttle::thread::yield_now();
    }

    pub(crate) fn relax() {
        shuttle::thread::yield_now();
    }
}

use biased_lock::BiasedLock;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shuttle::thread;

const SCHEDULES: usize = 5_000;
const THREADS: u64 = 3;
const TURNS: u64 = 6;

fn program() {
    let lock = Arc::new(BiasedLock::with_patience(0_u64, 1));
    let (inside, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let run = |number: u64| {
        let (lock, inside, done) = (Arc::clone(&lock), Arc::clone(&inside), Arc::clone(&done));
        thread::spawn(move || {
            for turn in 0..TURNS {
                let guard = match (number + turn) % 4 {
                    0 => lock.try_lock(),
                    1 => lock.own_and_keep(()).or_else(|| Some(lock.lock())),
                    _ => Some(lock.lock()),
                };
                let Some(mut guard) = guard else { continue };
                assert!(!inside.swap(true, Ordering::SeqCst), "two threads are inside");
                *guard += 1;
                done.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
                assert!(lock.try_lock().is_none() && lock.own_and_keep(()).is_none(), "it is inside already");
                inside.store(false, Ordering::SeqCst);
            }
            biased_lock_sync::ENDED.lock().unwrap().push(biased_lock_sync::thread_number());
        })
    };
    // Some end while others continue: one of those can be the owner after them.
    let threads: Vec<_> = (0..THREADS).map(run).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*lock.lock(), done.load(Ordering::SeqCst));
}

#[test]
fn one_thread_is_inside_in_any_schedule() {
    shuttle::check_random(program, SCHEDULES);
    shuttle::check_pct(program, SCHEDULES, 3);
}
