//! A lock that one thread takes nearly always: that thread takes it without a read-modify-write operation.
//!
//! Does not know what it guards. The simple version is a spin lock: one atomic compare-and-swap to take it, a plain
//! store to release it. That swap costs more than everything else in an allocation that a cache serves. The departure:
//! a thread that has taken the lock many times in a row becomes its *owner* (a biased lock). From then on it marks that
//! it is inside with a plain store to `held`. Any other thread that wants the lock takes the spin lock and first ends
//! the ownership. Nothing orders the owner's store to `held` before its load of `owner` on the processor. The other
//! side compensates with a system call that stops every processor of the process for a moment (`membarrier`). This
//! costs some microseconds, so each time a thread needs twice as many turns in a row to become the owner again. If the
//! system has no such call, there are no owners, and the lock is the simple one. In a forked process the thread that
//! held the lock may not exist. All locks are one lock there, which is free at first (`biased_lock_sync.rs`), and
//! callers refuse to do anything.
//!
//! Invariants: **one-writer**: only the first thread that became the owner can ever be the owner, and another thread
//! only after that one has ended, so one thread at a time writes `held`. **seen-or-stopped**: after `revoke`, either
//! the owner's `held` is seen, or the owner will see that it owns nothing. **taken-first**: a thread that is not the
//! owner is inside only with `taken`, while there is no owner, and after it has seen `held` false.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::biased_lock_sync as sync;
use sync::{AtomicBool, AtomicU64, Ordering};

/// The turns in a row after which a thread becomes the owner for the first time. Ending an ownership costs as much as
/// some thousand turns gain.
const PATIENCE: u32 = 1024;

/// The number that no thread has.
const NO_THREAD: u64 = 0;

/// A lock that is held for a short time, nearly always by one thread. A thread that waits for it does not sleep, but
/// yields. The first fields of the value are next to the lock in memory.
#[repr(C)]
pub struct BiasedLock<T> {
    /// The number of the owner's thread.
    owner: AtomicU64,
    /// `true` while the owner is inside.
    held: AtomicBool,
    /// `true` while another thread is inside, or is about to be.
    taken: AtomicBool,
    /// Only for the thread that is inside.
    turns: UnsafeCell<Turns>,
    /// `true` while a thread is inside, for assertions.
    #[cfg(debug_assertions)]
    inside: std::sync::atomic::AtomicBool,
    /// Only for the thread that is inside.
    value: UnsafeCell<T>,
}

/// The count of the turns that one thread took in a row.
#[derive(Debug)]
struct Turns {
    last: u64,
    /// The turns in a row that the last thread still needs.
    left: u32,
    /// The only thread that can be the owner, from the first ownership until that thread ends.
    first: u64,
    /// The turns in a row that the next ownership needs, or 0 for `PATIENCE`: so a new lock is all zeros, and a static
    /// table of them takes no place in the program's file.
    patience: u32,
}

impl Turns {
    #[inline]
    fn patience(&self) -> u32 {
        if self.patience == 0 { PATIENCE } else { self.patience }
    }
}

// SAFETY: it owns its value, as a plain field would.
unsafe impl<T: Send> Send for BiasedLock<T> {}
// SAFETY: one thread at a time uses `value` and `turns` (seen-or-stopped, taken-first).
unsafe impl<T: Send> Sync for BiasedLock<T> {}

/// The guard of a [`BiasedLock`], with a value that it keeps until the release. It stays on its thread.
#[must_use]
pub struct BiasedLockGuard<'a, T, K = ()> {
    lock: &'a BiasedLock<T>,
    way: Way,
    stays: PhantomData<*const ()>,
    _kept: K,
}

/// The way in which a lock was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By the owner, with `held`.
    Own,
    /// By another thread, with `taken`.
    Taken,
    /// In a forked process.
    Forked,
}

impl<T> BiasedLock<T> {
    /// Returns a lock that no thread holds.
    pub const fn new(value: T) -> Self {
        Self::with_patience(value, 0)
    }

    /// As [`new`](Self::new), with an owner after this many turns in a row; 0 means as many as with `new`.
    pub(crate) const fn with_patience(value: T, patience: u32) -> Self {
        Self {
            owner: AtomicU64::new(NO_THREAD),
            held: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            turns: UnsafeCell::new(Turns { last: NO_THREAD, left: 0, first: NO_THREAD, patience }),
            #[cfg(debug_assertions)]
            inside: std::sync::atomic::AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the number of the owner's thread; 0 if there is no owner.
    #[cfg(test)]
    pub(crate) fn owner(&self) -> u64 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Takes the lock. A thread that already holds it waits for ever.
    #[inline]
    pub fn lock(&self) -> BiasedLockGuard<'_, T> {
        self.lock_and_keep(())
    }

    /// As [`lock`](Self::lock), with a guard that keeps a value and drops it after the lock is released.
    #[inline]
    pub fn lock_and_keep<K>(&self, kept: K) -> BiasedLockGuard<'_, T, K> {
        let way = if self.lock_own() { Way::Own } else { self.lock_shared() };
        self.guard(way, kept)
    }

    /// As [`lock_and_keep`](Self::lock_and_keep), if this thread owns the lock and is not inside: by plain loads and
    /// stores, without a function call.
    #[inline(always)]
    pub fn own_and_keep<K>(&self, kept: K) -> Option<BiasedLockGuard<'_, T, K>> {
        if self.lock_own() { Some(self.guard(Way::Own, kept)) } else { None }
    }

    /// Takes the lock if it is free now.
    #[inline]
    pub fn try_lock(&self) -> Option<BiasedLockGuard<'_, T>> {
        self.try_lock_and_keep(|| ())
    }

    /// As [`try_lock`](Self::try_lock), with a guard that keeps a value, which is made after the lock is taken.
    #[inline]
    pub fn try_lock_and_keep<K>(&self, kept: impl FnOnce() -> K) -> Option<BiasedLockGuard<'_, T, K>> {
        let way = if self.lock_own() { Way::Own } else { self.try_shared()? };
        Some(self.guard(way, kept()))
    }

    /// Returns the value, without locking: no other thread can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The owner's way in. Returns `true` if this thread is the owner and was not inside already.
    #[inline]
    fn lock_own(&self) -> bool {
        let me = sync::thread_number();
        if self.owner.load(Ordering::Relaxed) != me || self.held.load(Ordering::Relaxed) {
            return false;
        }
        self.held.store(true, Ordering::Relaxed);
        sync::half_fence();
        if self.owner.load(Ordering::Acquire) == me {
            return true;
        }
        self.held.store(false, Ordering::Release);
        false
    }

    /// The way in for all other threads.
    #[inline(never)]
    fn lock_shared(&self) -> Way {
        if sync::is_forked() {
            sync::enter_forked();
            return Way::Forked;
        }
        while !self.take() {
            while self.taken.load(Ordering::Relaxed) {
                sync::relax();
            }
        }
        self.revoke();
        while self.held.load(Ordering::Acquire) {
            sync::relax();
        }
        self.turn()
    }

    #[inline(never)]
    fn try_shared(&self) -> Option<Way> {
        // An owner that is inside is not disturbed; in a forked process it may not exist.
        if sync::is_forked() || self.held.load(Ordering::Relaxed) || !self.take() {
            return None;
        }
        self.revoke();
        if self.held.load(Ordering::Acquire) {
            self.taken.store(false, Ordering::Release);
            return None;
        }
        Some(self.turn())
    }

    #[inline]
    fn take(&self) -> bool {
        self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Ends an ownership; the caller has `taken`. INVARIANT: seen-or-stopped.
    #[inline]
    fn revoke(&self) {
        if self.owner.load(Ordering::Relaxed) != NO_THREAD {
            self.owner.store(NO_THREAD, Ordering::Relaxed);
            sync::stop_all();
        }
    }

    /// Counts one turn of this thread, which has `taken` and is inside. After enough turns it becomes the owner.
    #[inline]
    fn turn(&self) -> Way {
        let me = sync::new_thread_number();
        // SAFETY: this thread is inside (taken-first).
        let turns = unsafe { &mut *self.turns.get() };
        if turns.last != me {
            (turns.last, turns.left) = (me, turns.patience());
        }
        turns.left = turns.left.saturating_sub(1);
        if turns.left == 0 { self.own(turns, me) } else { Way::Taken }
    }

    /// Makes this thread, which is inside, the owner if it can be. INVARIANT: one-writer.
    #[cold]
    fn own(&self, turns: &mut Turns, me: u64) -> Way {
        let is_heir = turns.first != NO_THREAD && turns.first != me;
        if !is_heir {
            turns.patience = turns.patience().saturating_mul(2);
        }
        turns.left = turns.patience();
        if (is_heir && !sync::has_ended(turns.first)) || sync::has_ended(me) || !sync::can_stop_all() {
            return Way::Taken;
        }
        turns.first = me;
        self.held.store(true, Ordering::Relaxed);
        self.owner.store(me, Ordering::Relaxed);
        self.taken.store(false, Ordering::Release);
        Way::Own
    }

    #[inline]
    fn guard<K>(&self, way: Way, kept: K) -> BiasedLockGuard<'_, T, K> {
        self.set_inside(way, true);
        BiasedLockGuard { lock: self, way, stays: PhantomData, _kept: kept }
    }
}

impl<T> BiasedLock<T> {
    /// Marks that a thread enters or leaves. Builds with debug assertions check that it is alone. INVARIANT:
    /// seen-or-stopped, taken-first.
    #[inline(always)]
    fn set_inside(&self, _way: Way, _enters: bool) {
        #[cfg(debug_assertions)]
        if _way != Way::Forked {
            let was = self.inside.swap(_enters, std::sync::atomic::Ordering::Relaxed);
            // During a panic a second one would abort the process.
            assert!(was != _enters || std::thread::panicking(), "seen-or-stopped: two threads have a lock");
        }
    }
}

impl<T: Default> Default for BiasedLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> BiasedLockGuard<'_, T> {
    /// Sets the turns in a row that the next ownership needs.
    #[cfg(test)]
    pub(crate) fn set_patience(&mut self, turns: u32) {
        // SAFETY: this thread is inside (taken-first, seen-or-stopped).
        unsafe { (*self.lock.turns.get()).patience = turns };
    }
}

impl<T, K> Drop for BiasedLockGuard<'_, T, K> {
    #[inline]
    fn drop(&mut self) {
        self.lock.set_inside(self.way, false);
        match self.way {
            Way::Own => self.lock.held.store(false, Ordering::Release),
            Way::Taken => self.lock.taken.store(false, Ordering::Release),
            Way::Forked => sync::leave_forked(),
        }
    }
}

impl<T, K> Deref for BiasedLockGuard<'_, T, K> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread is inside (seen-or-stopped, taken-first).
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, K> DerefMut for BiasedLockGuard<'_, T, K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread is inside (seen-or-stopped, taken-first).
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> fmt::Debug for BiasedLock<T> {
    /// Does not show the value: reading it would end an ownership.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedLock").finish_non_exhaustive()
    }
}

impl<T: fmt::Debug, K> fmt::Debug for BiasedLockGuard<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
