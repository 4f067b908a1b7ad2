//! Declared memory before the library has a type for it: an address, a length, and the stream.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use millpond::raw::Elements;

/// A range of declared memory, and the stream that it was declared on.
#[derive(Debug)]
pub struct Part<'s, T, S> {
    address: u64,
    len: usize,
    stream: &'s Arc<S>,
    element: PhantomData<fn() -> T>,
}

impl<'s, T, S> Part<'s, T, S> {
    pub(crate) fn new(place: Elements<T>, stream: &'s Arc<S>) -> Self {
        Self { address: place.address, len: place.len, stream, element: PhantomData }
    }

    /// Returns the first address, as a reference to a `CUdeviceptr`: a launch takes it like this.
    pub fn address(&self) -> &u64 {
        &self.address
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the stream that the memory was declared on.
    pub fn stream(&self) -> &'s Arc<S> {
        self.stream
    }

    /// Returns a part of the elements; `None` if the range does not lie within them.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Option<Self> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.checked_add(1)?,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len,
        };
        let is_within = start <= end && end <= self.len;
        is_within.then(|| Self {
            address: self.address + (start * size_of::<T>()) as u64,
            len: end - start,
            stream: self.stream,
            element: PhantomData,
        })
    }
}

impl<T, S> Clone for Part<'_, T, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, S> Copy for Part<'_, T, S> {}
