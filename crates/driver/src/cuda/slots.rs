//! Numbered places that are made once, found without a lock, and never moved.
//!
//! Knows nothing of what lies in them. The simple version is a vector behind a lock; the departure is that places come
//! in segments that stay where they are, so that streams of different threads share no lock when they look theirs up.
//!
//! Invariants: `one-taker`: a number is with one taker at a time; `place-stays`: a place lives as long as the table.

use std::sync::OnceLock;

use crate::BiasedLock;

/// Places of one segment.
const SEGMENT: usize = 256;
/// Segments of a table.
const SEGMENTS: usize = 4096;

/// A table of places.
#[derive(Debug)]
pub(super) struct Slots<T> {
    segments: Box<[OnceLock<Box<[T]>>]>,
    free: BiasedLock<Free>,
}

#[derive(Debug, Default)]
struct Free {
    /// Numbers below were taken at least once.
    end: usize,
    /// Those of them that were given back.
    back: Vec<u32>,
}

impl<T: Default> Slots<T> {
    pub(super) fn new() -> Self {
        Self { segments: (0..SEGMENTS).map(|_| OnceLock::new()).collect(), free: BiasedLock::new(Free::default()) }
    }

    /// A place for the caller alone, the last one given back where there is one; none where all are taken.
    pub(super) fn take(&self) -> Option<(u32, &T)> {
        let number = {
            let mut free = self.free.lock();
            match free.back.pop() {
                Some(number) => number,
                None if free.end < SEGMENT * SEGMENTS => {
                    free.end += 1;
                    free.end as u32 - 1
                }
                None => return None,
            }
        };
        let segment =
            self.segments[number as usize / SEGMENT].get_or_init(|| (0..SEGMENT).map(|_| T::default()).collect());
        Some((number, &segment[number as usize % SEGMENT]))
    }

    /// Gives a number back. INVARIANT: one-taker.
    pub(super) fn give_back(&self, number: u32) {
        self.free.lock().back.push(number);
    }

    /// The place of a number, if it was ever taken.
    #[inline]
    pub(super) fn find(&self, number: u32) -> Option<&T> {
        self.segments.get(number as usize / SEGMENT)?.get()?.get(number as usize % SEGMENT)
    }

    /// All places that were ever taken, and some that were not.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().filter_map(OnceLock::get).flat_map(|segment| segment.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_number_has_one_taker() {
        let slots = Slots::<AtomicU32>::new();
        let numbers: Vec<u32> = (0..1000).map(|_| slots.take().expect("there is room").0).collect();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
        assert!(slots.find(999).is_some() && slots.find(70_000).is_none() && slots.find(u32::MAX).is_none());
        slots.find(7).expect("it was taken").store(5, Ordering::Relaxed);
        slots.give_back(7);
        slots.give_back(8);
        assert_eq!(slots.take().map(|it| it.0), Some(8));
        let (number, place) = slots.take().expect("there is room");
        assert_eq!((number, place.load(Ordering::Relaxed)), (7, 5));
        assert_eq!(slots.take().map(|it| it.0), Some(1000));
    }
}
