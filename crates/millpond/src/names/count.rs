//! Numbers of elements of a type: the one place where they become bytes.
//!
//! Numbers come from anywhere. A [`Count`] is checked once: products and sums of its parts do not wrap. Depends on no
//! memory.
//!
//! Invariant **countable**: the elements take at most `isize::MAX` bytes, the limit of a slice, and their alignment
//! is at most that of every allocation.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use millpond_core::op::Part;

use crate::names::config::GRAIN;
use crate::names::error::{Invalid, Result};

/// A number of elements.
pub(crate) struct Count<T> {
    len: usize,
    element: PhantomData<fn() -> T>,
}

/// A contiguous part of some elements.
pub(crate) struct Span<T> {
    start: usize,
    count: Count<T>,
    /// `true` if these are all of the elements.
    is_all: bool,
}

impl<T> Count<T> {
    /// No elements.
    pub(crate) const NONE: Self = Self { len: 0, element: PhantomData };

    /// Makes a count, or `None` if there are too many elements.
    #[inline]
    pub(crate) fn new(len: usize) -> Option<Self> {
        const { assert!(align_of::<T>() as u64 <= GRAIN, "allocations are aligned to 512 B, not to more") };
        let bytes = len.checked_mul(size_of::<T>())?;
        (bytes <= isize::MAX as usize).then_some(Self { len, element: PhantomData })
    }

    /// Returns the number of elements that take this many bytes, if it is a whole number.
    pub(crate) fn of_bytes(bytes: u64) -> Option<Self> {
        let len = bytes.checked_div(size_of::<T>() as u64)?;
        Self::new(usize::try_from(len).ok()?).filter(|count| count.bytes() == bytes)
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn bytes(self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }
}

impl<T> Span<T> {
    #[inline]
    pub(crate) fn all(count: Count<T>) -> Self {
        Self { start: 0, count, is_all: true }
    }

    /// As [`slice`](Self::slice), for a range.
    pub(crate) fn range(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.count.len,
        };
        self.slice(start, end)
    }

    /// Returns a part of it, by elements, which must lie within it.
    pub(crate) fn slice(self, start: usize, end: usize) -> Result<Self> {
        let len = self.count.len;
        if start > end || end > len {
            return Err(Invalid::Bounds { start: start as u64, end: end as u64, len: len as u64 }.into());
        }
        let is_all = self.is_all && start == 0 && end == len;
        Ok(Self { start: self.start + start, count: Count { len: end - start, element: PhantomData }, is_all })
    }

    #[inline]
    pub(crate) fn count(self) -> Count<T> {
        self.count
    }

    /// Returns the bytes of the elements, or `None` if there are none.
    #[inline]
    pub(crate) fn part(self) -> Option<Part> {
        let part = Part::new(self.offset(), self.offset() + self.count.bytes());
        if self.is_all { part.and(Some(Part::WHOLE)) } else { part }
    }

    /// Returns the number of bytes before it.
    #[inline]
    pub(crate) fn offset(self) -> u64 {
        (self.start * size_of::<T>()) as u64
    }
}

impl<T> Clone for Count<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Count<T> {}

impl<T> fmt::Debug for Count<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.len)
    }
}

impl<T> Clone for Span<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Span<T> {}

impl<T> PartialEq for Span<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.start, self.count.len) == (other.start, other.count.len)
    }
}

impl<T> fmt::Debug for Span<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.start + self.count.len)
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, Span};

    #[test]
    fn what_wraps_is_no_count() {
        const MOST: usize = isize::MAX as usize;
        for (len, is_some) in [(0, true), (MOST / 8, true), (MOST / 8 + 1, false), (1 << 61, false), (!0, false)] {
            assert_eq!(Count::<u64>::new(len).is_some(), is_some, "{len}");
        }
        assert_eq!(Count::<()>::new(usize::MAX).map(Count::bytes), Some(0));
        assert_eq!(Count::<u64>::of_bytes(24).map(Count::len), Some(3));
        assert!(Count::<u64>::of_bytes(25).is_none() && Count::<()>::of_bytes(0).is_none());
        assert!(Count::<u8>::of_bytes(u64::MAX).is_none());
    }

    #[test]
    fn parts_lie_within() {
        let all = Span::all(Count::<u32>::new(10).expect("few"));
        let part = all.slice(2, 8).expect("within");
        assert_eq!((part.offset(), part.count().len()), (8, 6));
        let part = part.slice(6, 6).expect("within, and empty");
        assert_eq!((part.offset(), part.count().bytes()), (32, 0));
        for (start, end) in [(0, 11), (3, 2), (11, 11), (usize::MAX, usize::MAX), (0, usize::MAX)] {
            assert!(all.slice(start, end).is_err(), "{start}..{end}");
        }
    }
}
