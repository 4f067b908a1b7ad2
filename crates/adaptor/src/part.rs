//! Declared memory before the library has a type for it: an address, a length, and the stream.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use millpond::raw::Elements;

/// Some elements of declared memory, and the stream that they were declared on.
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

    /// The first address: a reference to a `CUdeviceptr`, as a launch takes it.
    pub fn address(&self) -> &u64 {
        &self.address
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The stream that they were declared on.
    pub fn stream(&self) -> &'s Arc<S> {
        self.stream
    }

    /// Fewer of them; `None` where the range does not lie within.
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
