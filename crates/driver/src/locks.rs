//! The locks of the project. They do not know what they guard.
//!
//! Each lock has a rank ([`Rank`]), which is part of its type. A thread waits for a lock only while it holds no lock of
//! a later rank. Builds with debug assertions panic if a thread breaks this rule, with the names of both locks.
//! `try_lock` does not wait, so it may take a lock of any rank. A lock under which the thread waits for no other lock
//! is a [`Leaf`]. Each crate lists the ranks of its other locks ([`ranks!`](crate::ranks)).
//!
//! Poisoning is ignored: if a thread panicked while it held a lock, the next thread takes the lock as usual, because
//! the values under these locks are consistent at every moment. In a forked process the thread that holds a lock may
//! not exist. Calls that can be refused were refused earlier; other calls end the process instead of waiting for ever.

mod ranks;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{
    Condvar, LockResult, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
};
use std::time::Duration;

pub use ranks::{Held, InDriver, Leaf, Rank, may_wait};

use crate::{BiasedLock, BiasedLockGuard, process};

crate::ranks! {
    pub before Leaf::PLACE;
    /// Held by each call that uses a stream.
    CudaStream "a CUDA stream";
    /// Held for reading by calls that must not run while a capture begins or ends, and for writing by calls that begin
    /// or end a capture.
    CudaCaptures "captures of CUDA";
}

/// The time that a forked process waits for a lock which one of its own threads may hold.
const FORKED_PATIENCE: Duration = Duration::from_millis(500);

/// A lock of one rank; a thread that waits for it sleeps.
pub struct Mutex<R, T: ?Sized>(PhantomData<fn() -> R>, std::sync::Mutex<T>);

/// A lock of one rank that several threads may hold for reading.
pub struct RwLock<R, T: ?Sized>(PhantomData<fn() -> R>, std::sync::RwLock<T>);

/// A lock of one rank that nearly always the same thread takes.
#[repr(transparent)]
pub struct Biased<R, T>(BiasedLock<T>, PhantomData<fn() -> R>);

/// The guard of a lock that has a rank.
#[must_use]
pub struct Ranked<G> {
    guard: G,
    _held: Held,
}

/// The guard of a [`Mutex`].
pub type Guard<'a, T> = Ranked<MutexGuard<'a, T>>;
/// The guard of a [`RwLock`] that is held for reading.
pub type ReadGuard<'a, T> = Ranked<RwLockReadGuard<'a, T>>;
/// The guard of a [`RwLock`] that is held for writing.
pub type WriteGuard<'a, T> = Ranked<RwLockWriteGuard<'a, T>>;
/// The guard of a [`Biased`].
pub type BiasedGuard<'a, T> = BiasedLockGuard<'a, T, Held>;

/// Takes the lock. A thread that already holds it waits for ever.
///
/// # Panics
/// In builds with debug assertions, if this thread holds a lock of a later rank. All functions that wait for a lock
/// panic then.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn lock<R: Rank, T: ?Sized>(mutex: &Mutex<R, T>) -> Guard<'_, T> {
    let (held, mutex) = (Held::in_order::<R>(), &mutex.1);
    Ranked::new(taken(mutex.try_lock()).unwrap_or_else(|| wait(|| mutex.try_lock(), || mutex.lock())), held)
}

/// Takes the lock for reading. A thread that holds it for writing waits for ever.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn read<R: Rank, T: ?Sized>(lock: &RwLock<R, T>) -> ReadGuard<'_, T> {
    let (held, lock) = (Held::in_order::<R>(), &lock.1);
    Ranked::new(taken(lock.try_read()).unwrap_or_else(|| wait(|| lock.try_read(), || lock.read())), held)
}

/// Takes the lock for writing. A thread that already holds it waits for ever.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn write<R: Rank, T: ?Sized>(lock: &RwLock<R, T>) -> WriteGuard<'_, T> {
    let (held, lock) = (Held::in_order::<R>(), &lock.1);
    Ranked::new(taken(lock.try_write()).unwrap_or_else(|| wait(|| lock.try_write(), || lock.write())), held)
}

impl<R, T> Mutex<R, T> {
    /// Returns a lock that no thread holds.
    pub const fn new(value: T) -> Self {
        Self(PhantomData, std::sync::Mutex::new(value))
    }
}

impl<R: Rank, T: ?Sized> Mutex<R, T> {
    /// Takes the lock if it is free now.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        taken(self.1.try_lock()).map(|guard| Ranked::new(guard, Held::tried::<R>()))
    }

    /// Returns the value, without locking: no other thread can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.1.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R, T> RwLock<R, T> {
    /// Returns a lock that no thread holds.
    pub const fn new(value: T) -> Self {
        Self(PhantomData, std::sync::RwLock::new(value))
    }
}

impl<R, T> Biased<R, T> {
    /// Returns a lock that no thread holds.
    pub const fn new(value: T) -> Self {
        Self(BiasedLock::new(value), PhantomData)
    }

    /// Returns the value, without locking: no other thread can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<R: Rank, T: ?Sized> RwLock<R, T> {
    /// Takes the lock for reading if no thread holds it for writing now.
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        taken(self.1.try_read()).map(|guard| Ranked::new(guard, Held::tried::<R>()))
    }
}

impl<R: Rank, T> Biased<R, T> {
    /// Takes the lock. A thread that already holds it waits for ever.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        self.0.lock_and_keep(Held::in_order::<R>())
    }

    /// Takes the lock if it is free now.
    #[inline]
    pub fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        self.0.try_lock_and_keep(Held::tried::<R>)
    }

    /// As [`lock`](Self::lock), if this thread owns the lock and does not hold it: without a function call, and without
    /// waiting.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_own(&self) -> Option<BiasedGuard<'_, T>> {
        self.0.own_and_keep(Held::in_order::<R>())
    }
}

impl<R, T: Default> Default for Mutex<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<R, T: Default> Default for RwLock<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<R, T: Default> Default for Biased<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<G> Ranked<G> {
    #[inline]
    fn new(guard: G, held: Held) -> Self {
        Self { guard, _held: held }
    }
}

/// Releases a lock until the condition variable is notified, or wakes spuriously, and takes the lock again.
pub fn wait_for<'a, T>(changed: &Condvar, guard: Guard<'a, T>) -> Guard<'a, T> {
    let Ranked { guard, _held } = guard;
    let guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
    Ranked { guard, _held }
}

/// As [`wait_for`], with a time limit.
pub fn wait_timeout<'a, T>(changed: &Condvar, guard: Guard<'a, T>, at_most: Duration) -> Guard<'a, T> {
    let Ranked { guard, _held } = guard;
    let guard = changed.wait_timeout(guard, at_most).unwrap_or_else(PoisonError::into_inner).0;
    Ranked { guard, _held }
}

impl<G: Deref> Deref for Ranked<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Ranked<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<R, T: ?Sized + fmt::Debug> fmt::Debug for Mutex<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.fmt(f)
    }
}

impl<R, T: ?Sized + fmt::Debug> fmt::Debug for RwLock<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.fmt(f)
    }
}

impl<R, T> fmt::Debug for Biased<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<G: fmt::Debug> fmt::Debug for Ranked<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// Returns the guard if the lock was free.
#[inline]
fn taken<G>(outcome: TryLockResult<G>) -> Option<G> {
    match outcome {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Waits for a lock that another thread holds.
#[cold]
fn wait<G>(try_lock: impl FnOnce() -> TryLockResult<G>, lock: impl FnOnce() -> LockResult<G>) -> G {
    if process::is_forked() {
        std::thread::sleep(FORKED_PATIENCE);
        return taken(try_lock()).unwrap_or_else(|| {
            crate::output::say(
                "millpond: a forked process uses a device of its parent, which was in use when it forked",
            );
            std::process::abort()
        });
    }
    lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::{Biased, Mutex, lock};

    crate::ranks! {
        before super::FIRST;
        Stream "a stream" several;
        Heap "a heap";
    }

    #[test]
    fn locks_are_taken_in_the_order_of_their_ranks() {
        let (stream, other) = (Biased::<Stream, _>::new(0), Biased::<Stream, _>::new(0));
        let heap = Mutex::<Heap, _>::new(0);
        {
            let (_stream, _other) = (stream.lock(), other.lock());
            let _heap = lock(&heap);
        }
        let _heap = lock(&heap);
        assert!(stream.try_lock().is_some(), "it is not waited for");
        let held = catch_unwind(AssertUnwindSafe(|| drop(stream.lock()))).unwrap_err();
        let text = held.downcast_ref::<String>().expect("a message");
        let (before, after) = text.split_once(", taken at ").expect("the place of the lock that is held");
        assert_eq!(before, "this thread holds the lock of a heap");
        assert!(after.starts_with(file!()) && after.ends_with(", and waits for that of a stream, which comes first"));
        let second = Mutex::<Heap, _>::new(0);
        catch_unwind(AssertUnwindSafe(|| drop(lock(&second)))).unwrap_err();
        let leaves = [0, 1].map(Mutex::<super::Leaf, _>::new);
        let _leaf = lock(&leaves[0]);
        catch_unwind(AssertUnwindSafe(|| drop(lock(&leaves[1])))).unwrap_err();
    }
}
