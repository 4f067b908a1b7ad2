//! Free ranges of bytes, of which the smallest that fits is taken.
//!
//! Invariants: **apart**: no two holes meet; **alike**: both lists have the same holes. This file knows no buffer.

use std::collections::{BTreeMap, BTreeSet};

use crate::units::round_up;

/// The free ranges, by their start and by their size.
#[derive(Debug, Default)]
pub struct Holes {
    starts: BTreeMap<u64, u64>,
    sizes: BTreeSet<(u64, u64)>,
    /// Everything from here on is free.
    end: u64,
}

impl Holes {
    /// Takes room for `bytes` bytes: in the smallest hole that fits at any alignment, or after everything. Returns its
    /// start, or `None` if it would end above `u64::MAX`.
    pub fn take(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let Some(&(size, start)) = self.sizes.range((bytes.checked_add(alignment - 1)?, 0)..).next() else {
            let offset = round_up(self.end, alignment)?;
            let (before, end) = (self.end, offset.checked_add(bytes)?);
            self.end = end;
            self.add(before, offset);
            return Some(offset);
        };
        let offset = round_up(start, alignment)?;
        self.remove(start, start + size);
        self.add(start, offset);
        self.add(offset + bytes, start + size);
        Some(offset)
    }

    /// Makes a taken range a hole again, joined with the holes beside it.
    pub fn give(&mut self, mut start: u64, mut end: u64) {
        if let Some((&before, &meets)) = self.starts.range(..start).next_back()
            && meets == start
        {
            self.remove(before, meets);
            start = before;
        }
        if let Some(&behind) = self.starts.get(&end) {
            self.remove(end, behind);
            end = behind;
        }
        if end == self.end {
            self.end = start;
        } else {
            self.add(start, end);
        }
    }

    fn add(&mut self, start: u64, end: u64) {
        if start < end {
            self.starts.insert(start, end);
            self.sizes.insert((end - start, start));
        }
    }

    fn remove(&mut self, start: u64, end: u64) {
        self.starts.remove(&start);
        self.sizes.remove(&(end - start, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_apart_and_used_again() {
        let mut holes = Holes::default();
        let [a, b, c] = [1024, 512, 100].map(|bytes| holes.take(bytes, 1).unwrap());
        assert_eq!([a, b, c], [0, 1024, 1536]);
        holes.give(a, 1024);
        assert_eq!((holes.take(512, 1), holes.take(513, 1)), (Some(0), Some(1636)), "the smallest that fits");
        holes.give(b, 1536);
        assert_eq!(holes.take(1000, 1), Some(512), "neighbours become one");
        for (start, bytes) in [(0, 512), (512, 1000), (1536, 100), (1636, 513)] {
            holes.give(start, start + bytes);
        }
        assert_eq!((holes.starts.len(), holes.sizes.len(), holes.end), (0, 0, 0));
        assert_eq!((holes.take(u64::MAX, 1), holes.take(1, 1)), (Some(0), None), "there is no room");
    }
}
