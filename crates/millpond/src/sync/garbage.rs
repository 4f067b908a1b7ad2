//! Values whose drop may run the program's own code, kept until no lock is held.
//!
//! A kernel may own anything: buffers, streams, a device. Its drop may call the library again, block, or panic. So
//! values that are refused or lost during a call are dropped later, from here.
//!
//! Invariant **dropped-last**: garbage is made before the locks of its call are taken, and dropped after they are
//! released, also when a panic passes. The borrow checker enforces this: code that may drop such a value under a lock
//! takes `&mut` the guard `<'g>` and `&'g Garbage`, so that the garbage outlives the guard.

use std::any::Any;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use millpond_driver::locks::may_wait;
use smallvec::SmallVec;

use crate::sync::ranks;

/// Values to be dropped last. See the module.
#[derive(Debug, Default)]
pub(crate) struct Garbage(RefCell<SmallVec<[Box<dyn Any>; 1]>>);

/// A value that is garbage unless it is taken out.
pub(crate) struct Held<'g, T: 'static> {
    value: Option<T>,
    garbage: &'g Garbage,
}

impl Garbage {
    /// Adds a value, to be dropped with this.
    #[cold]
    pub(crate) fn put<T: 'static>(&self, value: T) {
        self.0.borrow_mut().push(Box::new(value));
    }

    /// Holds a value while it may still be refused.
    pub(crate) fn hold<T: 'static>(&self, value: T) -> Held<'_, T> {
        Held { value: Some(value), garbage: self }
    }
}

impl Drop for Garbage {
    fn drop(&mut self) {
        if !self.0.get_mut().is_empty() {
            // INVARIANT: dropped-last.
            may_wait::<ranks::Stream>();
        }
    }
}

impl<T> Held<'_, T> {
    /// Takes the value out, because it has found its place.
    pub(crate) fn take(mut self) -> T {
        self.value.take().expect("it is taken once")
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until it is taken")
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until it is taken")
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.garbage.put(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;

    use super::Garbage;

    /// Records, when it is dropped, whether a lock was free.
    struct Looks(&'static Mutex<u32>, &'static Mutex<Vec<bool>>);

    impl Drop for Looks {
        fn drop(&mut self) {
            let is_free = !matches!(self.0.try_lock(), Err(std::sync::TryLockError::WouldBlock));
            self.1.lock().unwrap().push(is_free);
        }
    }

    #[test]
    fn what_is_not_taken_is_dropped_behind_the_lock_also_where_a_panic_passes() {
        static LOCK: Mutex<u32> = Mutex::new(0);
        static SEEN: Mutex<Vec<bool>> = Mutex::new(Vec::new());
        for panics in [false, true] {
            let passed = catch_unwind(AssertUnwindSafe(|| {
                let garbage = Garbage::default();
                let _guard = LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let _refused = garbage.hold(Looks(&LOCK, &SEEN));
                drop(garbage.hold(Looks(&LOCK, &SEEN)));
                assert!(SEEN.lock().unwrap().is_empty(), "the lock is held");
                assert!(!panics, "planted");
            }));
            assert_eq!(passed.is_err(), panics);
            assert_eq!(std::mem::take(&mut *SEEN.lock().unwrap()), [true, true]);
        }
    }

    #[test]
    fn what_is_taken_is_no_garbage() {
        let garbage = Garbage::default();
        let mut held = garbage.hold(vec![1]);
        held.push(2);
        assert_eq!((held.len(), held.take()), (2, vec![1, 2]));
        assert!(garbage.0.borrow().is_empty());
    }
}
