//! Handles that may turn out to be the last.
//!
//! Whoever looks a device or a pool up holds it for a moment, and lets it go as its last holder where the program
//! dropped all others meanwhile: what ends it runs there, under whatever locks are held. That happens once in a million
//! times, so builds with debug assertions look every time that it could.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use millpond_driver::locks::{Rank, may_wait};

/// A handle that was looked up. It is let go where locks from `FIRST` on may be waited for.
#[derive(Debug)]
pub(crate) struct MaybeLast<FIRST: Rank, T>(Arc<T>, PhantomData<fn() -> FIRST>);

impl<FIRST: Rank, T> MaybeLast<FIRST, T> {
    /// What is named, while it is there.
    pub(crate) fn upgrade(weak: &Weak<T>) -> Option<Self> {
        weak.upgrade().map(|found| Self(found, PhantomData))
    }

    pub(crate) fn handle(&self) -> &Arc<T> {
        &self.0
    }
}

impl<FIRST: Rank, T> Deref for MaybeLast<FIRST, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<FIRST: Rank, T> Drop for MaybeLast<FIRST, T> {
    fn drop(&mut self) {
        may_wait::<FIRST>();
    }
}
