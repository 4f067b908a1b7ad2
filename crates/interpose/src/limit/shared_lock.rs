//! A lock in memory that several processes map. The system releases it if the thread that holds it dies, also in a
//! process of another namespace.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millpond_driver::output::say;

/// The longest time to wait for the lock. A holder takes microseconds, unless it is stopped.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(300) } else { Duration::from_secs(10) };

/// A lock between processes. Zeros are the state before [`prepare`](SharedLock::prepare).
#[repr(C)]
pub(super) struct SharedLock {
    is_ready: AtomicBool,
    mutex: UnsafeCell<MaybeUninit<libc::pthread_mutex_t>>,
}

// SAFETY: the mutex is used by functions that are made for several threads and processes.
unsafe impl Sync for SharedLock {}

impl SharedLock {
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Makes the lock ready, if it is not. One process at a time may call this. Returns `false` if the system has no
    /// such locks.
    pub(super) fn prepare(&self) -> bool {
        self.is_ready() || self.make().is_some()
    }

    fn make(&self) -> Option<()> {
        let done = |code: i32| (code == 0).then_some(());
        let mut kind = MaybeUninit::uninit();
        // SAFETY: a place for the attributes.
        done(unsafe { libc::pthread_mutexattr_init(kind.as_mut_ptr()) })?;
        // SAFETY: they are initialised.
        done(unsafe { libc::pthread_mutexattr_setpshared(kind.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED) })?;
        // SAFETY: as above.
        done(unsafe { libc::pthread_mutexattr_setrobust(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST) })?;
        // SAFETY: as above; no thread uses the mutex before it is ready.
        done(unsafe { libc::pthread_mutex_init(self.mutex.get().cast(), kind.as_ptr()) })?;
        self.is_ready.store(true, Ordering::Release);
        Some(())
    }

    /// Calls `act` under the lock. Returns `None`, and does not call it, if a holder that is stopped keeps the lock for
    /// longer than [`PATIENCE`].
    ///
    /// A holder may have died anywhere in its `act`: what the lock protects must be right after each store.
    pub(super) fn locked<R>(&self, act: impl FnOnce() -> R) -> Option<R> {
        self.lock().then(|| {
            let done = act();
            // SAFETY: this thread has the lock.
            unsafe { libc::pthread_mutex_unlock(self.mutex.get().cast()) };
            done
        })
    }

    /// As [`locked`](Self::locked), but waits however long that takes.
    pub(super) fn locked_at_last<R>(&self, mut act: impl FnMut() -> R) -> R {
        loop {
            if let Some(done) = self.locked(&mut act) {
                return done;
            }
            static SAID: AtomicBool = AtomicBool::new(false);
            if !SAID.swap(true, Ordering::Relaxed) {
                say(
                    "millpond: the accounting file of the limit is locked by a process that is stopped: this one waits",
                );
            }
        }
    }

    /// Takes the lock. Returns `false` if that takes longer than [`PATIENCE`].
    fn lock(&self) -> bool {
        let mutex = self.mutex.get().cast::<libc::pthread_mutex_t>();
        // SAFETY: a structure of numbers, for which 0 is a value.
        let mut until: libc::timespec = unsafe { std::mem::zeroed() };
        // SAFETY: a place for the time.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until) };
        let nanos = until.tv_nsec + i64::from(PATIENCE.subsec_nanos());
        until.tv_sec += PATIENCE.as_secs() as i64 + nanos / 1_000_000_000;
        until.tv_nsec = nanos % 1_000_000_000;
        // SAFETY: `prepare` has initialised it, and it is never destroyed.
        match unsafe { libc::pthread_mutex_timedlock(mutex, &raw const until) } {
            0 => true,
            // SAFETY: this thread has the lock.
            libc::EOWNERDEAD => unsafe { libc::pthread_mutex_consistent(mutex) == 0 },
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Instant;

    use super::*;

    fn new() -> SharedLock {
        let lock = SharedLock { is_ready: AtomicBool::new(false), mutex: UnsafeCell::new(MaybeUninit::zeroed()) };
        assert!(lock.prepare() && lock.prepare());
        lock
    }

    #[test]
    fn a_lock_is_released_by_the_death_of_its_holder() {
        let lock = new();
        let abandon = |lock: &SharedLock| {
            // SAFETY: a mutex that is ready.
            unsafe { libc::pthread_mutex_lock(lock.mutex.get().cast()) };
        };
        thread::scope(|scope| {
            scope.spawn(|| abandon(&lock));
        });
        let begin = Instant::now();
        assert_eq!((lock.locked(|| 1), lock.locked(|| 2)), (Some(1), Some(2)));
        assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    }

    #[test]
    fn nothing_is_done_beside_a_holder_that_is_stopped() {
        let lock = new();
        let ((held, is_held), (end, ended)) = (channel(), channel::<()>());
        thread::scope(|scope| {
            let lock = &lock;
            let holder = scope.spawn(move || {
                lock.locked(|| {
                    held.send(()).unwrap();
                    ended.recv().unwrap();
                })
            });
            is_held.recv().unwrap();
            assert_eq!(lock.locked(|| unreachable!("the lock is held") as ()), None);
            let waiting = scope.spawn(|| lock.locked_at_last(|| 4));
            thread::sleep(PATIENCE + PATIENCE / 2);
            assert!(!waiting.is_finished());
            end.send(()).unwrap();
            assert_eq!((holder.join().unwrap(), waiting.join().unwrap()), (Some(()), 4));
        });
        assert_eq!(lock.locked(|| 3), Some(3));
    }
}
