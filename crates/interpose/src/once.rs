//! A value that the first thread to need it makes, for a library in programs that fork.
//!
//! A child process has no other threads than the one that forked. With `OnceLock` it would wait forever for a value
//! that another thread of its parent was making. Here it makes its own.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// A value that is made once in a process. It is never dropped.
#[derive(Debug)]
pub(crate) struct Once<T: 'static> {
    value: AtomicPtr<T>,
    /// The process whose thread makes the value; 0 if none does.
    maker: AtomicU32,
}

/// A value is being made. If that panics, another thread tries.
struct Making<'a>(&'a AtomicU32);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl<T: Send + Sync> Once<T> {
    pub(crate) const fn new() -> Self {
        Self { value: AtomicPtr::new(std::ptr::null_mut()), maker: AtomicU32::new(0) }
    }

    /// Returns the value, if it is made.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or a value that is never dropped.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value. If there is none, calls `make`; other threads wait for that.
    #[cold]
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> Option<T>) -> Option<&'static T> {
        let own = std::process::id();
        loop {
            if let Some(known) = self.get() {
                return Some(known);
            }
            let other = self.maker.load(Ordering::Acquire);
            if other == own {
                std::thread::yield_now();
            } else if self.maker.compare_exchange(other, own, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                break;
            }
        }
        let _making = Making(&self.maker);
        // The thread that made it may have been done between the two loads.
        if self.get().is_none()
            && let Some(made) = make()
        {
            self.value.store(Box::into_raw(Box::new(made)), Ordering::Release);
        }
        self.get()
    }

    /// Forgets this value, unless another one is there by now.
    pub(crate) fn forget_this(&self, value: &'static T) {
        let value = std::ptr::from_ref(value).cast_mut();
        let _ = self.value.compare_exchange(value, std::ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Forgets the value, in a forked process.
    pub(crate) fn forget(&self) {
        self.value.store(std::ptr::null_mut(), Ordering::Release);
        self.maker.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    #[test]
    fn a_value_is_made_once_whatever_threads_ask_for_it() {
        static VALUE: Once<u32> = Once::new();
        static MADE: AtomicUsize = AtomicUsize::new(0);
        assert!(catch_unwind(|| VALUE.get_or_make(|| panic!("no value"))).is_err());
        assert_eq!(VALUE.get_or_make(|| None), None);
        let make = || {
            VALUE.get_or_make(|| {
                thread::sleep(std::time::Duration::from_millis(20));
                MADE.fetch_add(1, Ordering::Relaxed);
                Some(7)
            })
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(move || assert_eq!(make(), Some(&7))))));
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_value_that_a_parent_s_thread_was_making_is_made_anew() {
        static VALUE: Once<u32> = Once::new();
        VALUE.maker.store(std::process::id() + 1, Ordering::Relaxed);
        let first = VALUE.get_or_make(|| Some(1)).unwrap();
        VALUE.forget_this(first);
        assert_eq!(VALUE.get_or_make(|| Some(2)), Some(&2));
        VALUE.forget_this(first);
        assert_eq!(VALUE.get(), Some(&2), "another one is there");
    }
}
