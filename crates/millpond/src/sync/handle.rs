//! A counted reference for the handles that programs hold: an [`Arc`] that shows its type nothing of what is behind it.
//!
//! Handles are compared and hashed by numbers that never change, while what they refer to is full of locks. A program
//! that has them as keys of a map would be warned by clippy (`mutable_key_type`), which looks through an `Arc`, and not
//! through a pointer.
//!
//! Invariant **counted**: the pointer came from `Arc::into_raw`, and one count of that `Arc` is this handle's until it
//! is dropped.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// See the module.
pub(crate) struct Handle<T> {
    at: NonNull<T>,
    owns: PhantomData<Arc<T>>,
}

// SAFETY: it is an `Arc`, which is `Send` under the same bounds.
unsafe impl<T: Send + Sync> Send for Handle<T> {}
// SAFETY: it is an `Arc`, which is `Sync` under the same bounds.
unsafe impl<T: Send + Sync> Sync for Handle<T> {}

impl<T> Handle<T> {
    pub(crate) fn new(value: T) -> Self {
        Arc::new(value).into()
    }

    /// The same, for those who keep what it refers to.
    #[inline]
    pub(crate) fn arc(&self) -> Arc<T> {
        let handle = std::mem::ManuallyDrop::new(self.clone());
        // SAFETY: the clone's count goes with it (counted).
        unsafe { Arc::from_raw(handle.at.as_ptr()) }
    }

    pub(crate) fn downgrade(&self) -> Weak<T> {
        Arc::downgrade(&self.arc())
    }
}

impl<T> From<Arc<T>> for Handle<T> {
    #[inline]
    fn from(of: Arc<T>) -> Self {
        let at = NonNull::new(Arc::into_raw(of).cast_mut()).expect("an Arc has an address");
        Self { at, owns: PhantomData }
    }
}

impl<T> Clone for Handle<T> {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: the pointer is one of `Arc::into_raw`, and this handle's count keeps it (counted).
        unsafe { Arc::increment_strong_count(self.at.as_ptr()) };
        Self { at: self.at, owns: PhantomData }
    }
}

impl<T> Deref for Handle<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value lives as long as this handle's count is there (counted).
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for Handle<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle's count is given back once (counted).
        drop(unsafe { Arc::from_raw(self.at.as_ptr()) });
    }
}

impl<T: fmt::Debug> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_an_arc() {
        let arc = Arc::new(7);
        let handle = Handle::from(Arc::clone(&arc));
        let (second, third) = (handle.clone(), handle.arc());
        assert_eq!((Arc::strong_count(&arc), *handle, *second, *third), (4, 7, 7, 7));
        drop((handle, third));
        assert_eq!(Arc::strong_count(&arc), 2);
        let weak = second.downgrade();
        drop((arc, second));
        assert!(weak.upgrade().is_none());
    }
}
