//! The biased lock under a scheduler that chooses every interleaving (shuttle): the same source file, with primitives
//! that the scheduler controls. In its schedules every store is visible at once, as if each had its barrier. They
//! explore which thread is the owner when, not the stores that a processor may delay.
#![allow(dead_code, unreachable_pub)] // The source is compiled as a whole, as a part of a library.

#[path = "../src/biased_lock.rs"]
mod biased_lock;

/// The counterpart of `src/biased_lock_sync.rs`.
mod biased_lock_sync {
    use std::collections::HashMap;
    use std::sync::Mutex;

    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};

    /// How often each thread's late stores became visible; those of all threads under 0.
    static SEEN: Mutex<Option<HashMap<u64, u64>>> = Mutex::new(None);

    fn seen(thread: u64) -> u64 {
        SEEN.lock().unwrap().get_or_insert_default().get(&thread).copied().unwrap_or(0)
    }

    fn flush(thread: u64) {
        *SEEN.lock().unwrap().get_or_insert_default().entry(thread).or_default() += 1;
    }

    /// A flag whose relaxed stores others see late: after a release by the same thread, or a barrier on all processors.
    pub(crate) struct AtomicBool {
        now: std::sync::atomic::AtomicBool,
        /// Read before each access, so that the scheduler may choose another thread there.
        point: AtomicU64,
        /// The thread, what of it and of all was visible then, and the value.
        late: Mutex<Option<(u64, u64, u64, bool)>>,
    }

    impl AtomicBool {
        pub(crate) const fn new(value: bool) -> Self {
            let now = std::sync::atomic::AtomicBool::new(value);
            Self { now, point: AtomicU64::new(0), late: Mutex::new(None) }
        }

        /// The late store, if it is not visible to others yet.
        fn settle(&self) -> Option<(u64, bool)> {
            let (thread, own, all, value) = (*self.late.lock().unwrap())?;
            if seen(thread) == own && seen(0) == all {
                return Some((thread, value));
            }
            *self.late.lock().unwrap() = None;
            self.now.store(value, Ordering::Relaxed);
            None
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            self.point.load(Ordering::Relaxed);
            match self.settle() {
                Some((thread, value)) if thread == thread_number() => value,
                _ => self.now.load(order),
            }
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            self.point.load(Ordering::Relaxed);
            let me = thread_number();
            if order == Ordering::Relaxed {
                self.settle();
                *self.late.lock().unwrap() = Some((me, seen(me), seen(0), value));
                return;
            }
            flush(me);
            self.settle();
            self.now.store(value, order);
        }

        pub(crate) fn compare_exchange(
            &self,
            old: bool,
            new: bool,
            good: Ordering,
            bad: Ordering,
        ) -> Result<bool, bool> {
            self.point.load(Ordering::Relaxed);
            self.settle();
            self.now.compare_exchange(old, new, good, bad)
        }
    }

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
        flush(0);
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
