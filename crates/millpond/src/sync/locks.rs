//! The locks of this crate, and how they are taken.
//!
//! Each has a rank (`ranks.rs`), which is part of its type: a thread takes a lock only while it holds none of a later
//! rank. Builds with debug assertions panic where that is not so, with the names of both; a lock that is only tried is
//! not waited for, and may be of any rank.
//!
//! Where another thread panicked under a lock, the next one goes on: what these locks hold is whole at every moment. In
//! a forked process the thread that has a lock may not be there: calls that can be refused were refused before, and the
//! others end the process rather than let it wait for ever.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{
    Condvar, LockResult, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
};
use std::time::Duration;

use millpond_driver::{BiasedLock, BiasedLockGuard, process};

use crate::sync::ranks::Held;

/// A forked process waits so long for a lock that one of its own threads may have.
const FORKED_PATIENCE: Duration = Duration::from_millis(500);

/// A lock of one rank that threads sleep for.
#[derive(Default)]
pub(crate) struct Mutex<const RANK: u8, T: ?Sized>(std::sync::Mutex<T>);

/// A lock of one rank that several threads may hold to read.
#[derive(Default)]
pub(crate) struct RwLock<const RANK: u8, T: ?Sized>(std::sync::RwLock<T>);

/// A lock of one rank that nearly always the same thread takes.
#[derive(Default)]
#[repr(transparent)]
pub(crate) struct Biased<const RANK: u8, T>(BiasedLock<T>);

/// Holds a lock of one rank.
#[must_use]
pub(crate) struct Ranked<const RANK: u8, G> {
    guard: G,
    _held: Held<RANK>,
}

pub(crate) type Guard<'a, const RANK: u8, T> = Ranked<RANK, MutexGuard<'a, T>>;
pub(crate) type ReadGuard<'a, const RANK: u8, T> = Ranked<RANK, RwLockReadGuard<'a, T>>;
pub(crate) type WriteGuard<'a, const RANK: u8, T> = Ranked<RANK, RwLockWriteGuard<'a, T>>;
pub(crate) type BiasedGuard<'a, const RANK: u8, T> = BiasedLockGuard<'a, T, Held<RANK>>;

#[inline]
pub(crate) fn lock<const RANK: u8, T: ?Sized>(mutex: &Mutex<RANK, T>) -> Guard<'_, RANK, T> {
    let (held, mutex) = (Held::in_order(), &mutex.0);
    Ranked::new(taken(mutex.try_lock()).unwrap_or_else(|| wait(|| mutex.try_lock(), || mutex.lock())), held)
}

#[inline]
pub(crate) fn read<const RANK: u8, T: ?Sized>(lock: &RwLock<RANK, T>) -> ReadGuard<'_, RANK, T> {
    let (held, lock) = (Held::in_order(), &lock.0);
    Ranked::new(taken(lock.try_read()).unwrap_or_else(|| wait(|| lock.try_read(), || lock.read())), held)
}

#[inline]
pub(crate) fn write<const RANK: u8, T: ?Sized>(lock: &RwLock<RANK, T>) -> WriteGuard<'_, RANK, T> {
    let (held, lock) = (Held::in_order(), &lock.0);
    Ranked::new(taken(lock.try_write()).unwrap_or_else(|| wait(|| lock.try_write(), || lock.write())), held)
}

impl<const RANK: u8, T> Mutex<RANK, T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }
}

impl<const RANK: u8, T: ?Sized> Mutex<RANK, T> {
    /// The lock, where it is free this moment.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, RANK, T>> {
        taken(self.0.try_lock()).map(|guard| Ranked::new(guard, Held::tried()))
    }

    /// The value: no other thread can have the lock.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const RANK: u8, T> Biased<RANK, T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(BiasedLock::new(value))
    }

    /// Takes the lock. A thread that has it already waits for ever.
    #[inline]
    pub(crate) fn lock(&self) -> BiasedGuard<'_, RANK, T> {
        self.0.lock_and_keep(Held::in_order())
    }

    /// Takes the lock where it is free this moment.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<BiasedGuard<'_, RANK, T>> {
        self.0.try_lock_and_keep(Held::tried)
    }

    /// As [`lock`](Self::lock), where this thread owns it and is not inside: with no call, and no wait.
    #[inline(always)]
    pub(crate) fn try_own(&self) -> Option<BiasedGuard<'_, RANK, T>> {
        self.0.own_and_keep(Held::in_order())
    }

    /// The value: no other thread can have the lock.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<const RANK: u8, G> Ranked<RANK, G> {
    #[inline]
    fn new(guard: G, held: Held<RANK>) -> Self {
        Self { guard, _held: held }
    }
}

/// Gives a lock back until the condition variable is notified, or for so long, and takes it again.
pub(crate) fn wait_timeout<'a, const RANK: u8, T>(
    changed: &Condvar,
    guard: Guard<'a, RANK, T>,
    at_most: Duration,
) -> Guard<'a, RANK, T> {
    let Ranked { guard, _held } = guard;
    let guard = changed.wait_timeout(guard, at_most).unwrap_or_else(PoisonError::into_inner).0;
    Ranked { guard, _held }
}

impl<const RANK: u8, G: Deref> Deref for Ranked<RANK, G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<const RANK: u8, G: DerefMut> DerefMut for Ranked<RANK, G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<const RANK: u8, T: ?Sized + fmt::Debug> fmt::Debug for Mutex<RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const RANK: u8, T: ?Sized + fmt::Debug> fmt::Debug for RwLock<RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const RANK: u8, T> fmt::Debug for Biased<RANK, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const RANK: u8, G: fmt::Debug> fmt::Debug for Ranked<RANK, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// The lock, where it is free this moment.
#[inline]
fn taken<G>(outcome: TryLockResult<G>) -> Option<G> {
    match outcome {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Waits for a lock that another thread has.
#[cold]
fn wait<G>(try_lock: impl FnOnce() -> TryLockResult<G>, lock: impl FnOnce() -> LockResult<G>) -> G {
    if process::is_forked() {
        std::thread::sleep(FORKED_PATIENCE);
        return taken(try_lock()).unwrap_or_else(|| {
            eprintln!("millpond: a forked process uses a device of its parent, which was in use when it forked");
            std::process::abort()
        });
    }
    lock().unwrap_or_else(PoisonError::into_inner)
}
