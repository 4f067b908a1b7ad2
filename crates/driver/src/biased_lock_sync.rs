//! The primitives of the lock, in one place: `tests/biased_lock_schedules.rs` compiles the lock a second time with a
//! twin of this file, in which a controlled scheduler chooses every interleaving.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::compiler_fence;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::thread::{MembarrierCommand, membarrier};

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The number of a thread that has none yet.
const UNNUMBERED: u64 = u64::MAX;

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(UNNUMBERED) };
    static END: End = const { End };
}

/// The numbers of threads that can still use locks by them.
static LIVING: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// Dropped when its thread ends.
struct End;

impl Drop for End {
    /// Values that the thread drops after this use locks by another number.
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        living().remove(&NUMBER.replace(UNNUMBERED));
    }
}

fn living() -> MutexGuard<'static, BTreeSet<u64>> {
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of the calling thread, which no other thread ever has. A thread without a number gets a value
/// that no numbered thread has.
#[inline]
pub(crate) fn thread_number() -> u64 {
    NUMBER.get()
}

/// As [`thread_number`], but first gives the thread a number if it has none.
#[inline]
pub(crate) fn new_thread_number() -> u64 {
    match NUMBER.get() {
        UNNUMBERED => number_thread(),
        number => number,
    }
}

/// Takes the number from the calling thread. Used in a forked process, whose locks name threads of the parent.
pub(crate) fn forget_thread_number() {
    NUMBER.set(UNNUMBERED);
}

#[cold]
fn number_thread() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    NUMBER.set(number);
    if END.try_with(|_| ()).is_ok() {
        living().insert(number);
    }
    number
}

/// Returns `true` if the thread of a number uses no lock by it any more. Everything that it did with locks is then
/// visible. A thread that is about to end counts as ended.
#[cold]
pub(crate) fn has_ended(number: u64) -> bool {
    !living().contains(&number)
}

/// Stops the compiler from moving memory accesses across this point. [`stop_all`] orders them on the processor.
#[inline]
pub(crate) fn half_fence() {
    compiler_fence(Ordering::SeqCst);
}

/// Returns `true` if [`stop_all`] works here.
pub(crate) fn can_stop_all() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
}

/// Executes a full barrier on every processor that runs a thread of the process, between any two of their instructions.
#[cold]
pub(crate) fn stop_all() {
    let stop = || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
    // A forked process may have to register again.
    let is_done = stop() || (membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() && stop());
    if !is_done {
        crate::output::say(
            "millpond: the system refuses membarrier, which it has offered before: the process cannot go on",
        );
        std::process::abort();
    }
}

pub(crate) use crate::process::is_forked;

/// In a forked process threads of the parent may hold locks. All locks are this one there, and its holder can take it
/// again. Waiting threads only poll it.
static FORKED: AtomicU64 = AtomicU64::new(0);
static FORKED_DEPTH: AtomicU64 = AtomicU64::new(0);

/// Returns the identity of a thread of a forked process: the address of its number.
fn forked_thread() -> u64 {
    NUMBER.with(|number| std::ptr::from_ref(number).addr() as u64)
}

#[cold]
pub(crate) fn enter_forked() {
    let me = forked_thread();
    while FORKED.load(Ordering::Acquire) != me {
        if FORKED.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            relax();
        }
    }
    FORKED_DEPTH.fetch_add(1, Ordering::Relaxed);
}

#[cold]
pub(crate) fn leave_forked() {
    if FORKED_DEPTH.fetch_sub(1, Ordering::Relaxed) == 1 {
        FORKED.store(0, Ordering::Release);
    }
}

/// Yields to other threads.
pub(crate) fn relax() {
    std::thread::yield_now();
}

#[cfg(test)]
#[expect(clippy::print_stderr, reason = "a test says why it was left out")]
mod tests {
    use std::process::Command;
    use std::sync::mpsc::channel;

    use super::{AtomicBool, MembarrierCommand, Ordering, can_stop_all, membarrier, thread_number};
    use crate::biased_lock::BiasedLock;
    use crate::{HostConfig, HostDriver};

    const NO_THREAD: u64 = 0;

    #[test]
    fn turns_in_a_row_make_an_owner_and_others_end_that() {
        let lock = BiasedLock::with_patience(0, 3);
        (0..2).for_each(|_| *lock.lock() += 1);
        assert_eq!(lock.owner(), NO_THREAD);
        assert!(lock.own_and_keep(()).is_none(), "no thread owns it");
        *lock.lock() += 1;
        if !can_stop_all() {
            return eprintln!("skipped: the system has no membarrier, so locks have no owners");
        }
        assert_eq!(lock.owner(), thread_number());
        *lock.own_and_keep(()).expect("it is this thread's") += 1;
        std::thread::scope(|scope| scope.spawn(|| assert!(lock.own_and_keep(()).is_none())).join()).expect("no panic");
        assert_eq!(lock.owner(), thread_number(), "who only asks for its own ends nothing");
        std::thread::scope(|scope| scope.spawn(|| *lock.lock() += 1).join()).expect("no panic");
        assert_eq!(lock.owner(), NO_THREAD);
        (0..5).for_each(|_| *lock.lock() += 1);
        assert_eq!(lock.owner(), NO_THREAD, "twice as many turns");
        *lock.lock() += 1;
        assert_eq!((lock.owner(), *lock.lock()), (thread_number(), 11));
    }

    /// If the first lock that gets an owner registered for it, an allocation or a free would take milliseconds. The
    /// test runs in its own process, because the registration is for the whole process.
    #[test]
    fn an_open_device_has_asked_for_what_owners_need() {
        const CHILD: &str = "MILLPOND_OPEN_DEVICE";
        if std::env::var_os(CHILD).is_none() {
            let mut child = Command::new(std::env::current_exe().expect("a running program has a path"));
            let test = "biased_lock_sync::tests::an_open_device_has_asked_for_what_owners_need";
            let status = child.args([test, "--exact", "--nocapture"]).env(CHILD, "1").status().expect("it starts");
            return assert!(status.success(), "{status}");
        }
        let stop = || membarrier(MembarrierCommand::PrivateExpedited);
        assert!(stop().is_err(), "nothing has asked for it");
        let device = HostDriver::new(HostConfig::default()).expect("a device");
        assert!(stop().is_ok() || !can_stop_all(), "it is not asked for yet");
        drop(device);
    }

    #[test]
    fn only_the_first_owner_can_be_one_again() {
        let lock = BiasedLock::with_patience(0, 2);
        (0..2).for_each(|_| *lock.lock() += 1);
        std::thread::scope(|scope| scope.spawn(|| (0..100).for_each(|_| *lock.lock() += 1)).join()).expect("no panic");
        assert_eq!(lock.owner(), NO_THREAD);
    }

    #[test]
    fn when_the_first_owner_has_ended_another_can_be_one() {
        if !can_stop_all() {
            return eprintln!("skipped: the system has no membarrier, so locks have no owners");
        }
        let lock = BiasedLock::with_patience(0, 2);
        let own = || {
            (0..100).for_each(|_| *lock.lock() += 1);
            assert_eq!(lock.owner(), thread_number());
        };
        for _ in 0..3 {
            std::thread::scope(|scope| scope.spawn(own).join()).expect("no panic");
        }
        own();
        std::thread::scope(|scope| scope.spawn(|| (0..100).for_each(|_| *lock.lock() += 1)).join()).expect("no panic");
        assert_eq!((lock.owner(), *lock.lock()), (NO_THREAD, 500), "this thread goes on");
    }

    /// Dropped when its thread ends, before or after the lock knows that.
    struct Last(std::sync::Arc<BiasedLock<u64>>);

    impl Drop for Last {
        fn drop(&mut self) {
            (0..100).for_each(|_| *self.0.lock() += 1);
        }
    }

    #[test]
    fn a_thread_uses_locks_to_its_end() {
        thread_local!(static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) });
        let lock = std::sync::Arc::new(BiasedLock::with_patience(0, 2));
        // The system chooses whether the first value made is dropped first or last, so the test tries both.
        for is_first in [false, true] {
            let theirs = lock.clone();
            let run = move || {
                if is_first {
                    LAST.set(Some(Last(theirs.clone())));
                }
                (0..100).for_each(|_| *theirs.lock() += 1);
                LAST.set(Some(Last(theirs)));
            };
            std::thread::spawn(run).join().expect("no panic");
        }
        assert_eq!(*lock.lock(), 500);
        (0..100).for_each(|_| *lock.lock() += 1);
        assert!(!can_stop_all() || lock.owner() == thread_number(), "they have ended");
    }

    #[test]
    fn an_owner_that_is_inside_keeps_others_out() {
        let lock = BiasedLock::with_patience(0, 1);
        drop(lock.lock());
        let (inside, out) = (channel(), channel());
        std::thread::scope(|scope| {
            let mut guard = lock.lock();
            assert!(lock.try_lock().is_none(), "it has it itself");
            scope.spawn(|| {
                assert!(lock.try_lock().is_none(), "the owner is inside");
                inside.0.send(()).expect("it is received");
                let mut guard = lock.lock();
                assert_eq!(*guard, 7);
                *guard = 8;
                drop(guard);
                out.0.send(()).expect("it is received");
            });
            inside.1.recv().expect("it tries");
            *guard = 7;
            drop(guard);
            out.1.recv().expect("it gets in");
            assert_eq!(*lock.lock(), 8);
        });
    }

    #[test]
    fn nothing_is_lost_while_an_owner_is_made_and_unmade() {
        const ROUNDS: u64 = 20_000;
        let lock = BiasedLock::with_patience(0, 2);
        let add = |every: u64| {
            let lock = &lock;
            move || {
                for round in 0..ROUNDS {
                    *lock.lock() += 1;
                    if round % every == 0 {
                        std::thread::yield_now();
                    }
                    if round % 1000 == 0 {
                        // Makes the owner come back soon, however often its ownership ended.
                        lock.lock().set_patience(2);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            [u64::MAX, 64, 16].into_iter().for_each(|every| drop(scope.spawn(add(every))));
        });
        assert_eq!(*lock.lock(), 3 * ROUNDS);
    }

    /// Without the barrier a few of a hundred of these ends lose a turn, because the owner's store is not visible yet.
    #[test]
    fn an_owner_at_full_speed_loses_no_turn_when_another_comes() {
        for _ in 0..200 {
            let (lock, is_over) = (BiasedLock::with_patience(0_u64, 1), AtomicBool::new(false));
            let own = || {
                let mut turns = 0;
                while !is_over.load(Ordering::Relaxed) {
                    *lock.lock() += 1;
                    turns += 1;
                }
                turns
            };
            let come = || {
                (0..20).for_each(|_| *lock.lock() += 1);
                is_over.store(true, Ordering::Relaxed);
                20
            };
            let turns: u64 = std::thread::scope(|scope| {
                let (own, come) = (scope.spawn(own), scope.spawn(come));
                own.join().expect("no panic") + come.join().expect("no panic")
            });
            assert_eq!(*lock.lock(), turns);
        }
    }
}
