//! Numbered places that are made once, found without a lock, and never moved.
//!
//! Knows nothing of what lies in them. The simple version is a vector behind a lock; the departure is that places come
//! in segments that stay where they are, each twice as large as the one before, so that threads which look up different
//! places share no lock.
//!
//! Invariants: `one-taker`: a number is with one taker at a time; `place-stays`: a place lives as long as the table.

use std::sync::OnceLock;

use crate::BiasedLock;

/// Places of the first segment.
const FIRST: u32 = 64;
/// Segments: more than any number of 32 bits needs.
const SEGMENTS: usize = (u32::BITS - FIRST.ilog2()) as usize;

/// A table of places, numbered from 0.
#[derive(Debug)]
pub struct Places<T> {
    segments: [OnceLock<Box<[T]>>; SEGMENTS],
    free: BiasedLock<Free>,
}

#[derive(Debug)]
struct Free {
    /// Numbers below were taken at least once.
    end: u32,
    /// Numbers are below.
    limit: u32,
    /// Those that were given back.
    back: Vec<u32>,
}

impl<T> Places<T> {
    /// No place yet, and at most `limit`.
    pub const fn new(limit: u32) -> Self {
        let free = Free { end: 0, limit, back: Vec::new() };
        Self { segments: [const { OnceLock::new() }; SEGMENTS], free: BiasedLock::new(free) }
    }

    /// The segment of a number, and its place there.
    #[inline]
    fn locate(number: u32) -> (usize, usize) {
        let shifted = u64::from(number) + u64::from(FIRST);
        let segment = shifted.ilog2() - FIRST.ilog2();
        (segment as usize, (shifted - (u64::from(FIRST) << segment)) as usize)
    }

    /// A place for the caller alone, the last one given back where there is one; `make` makes those of a segment. None
    /// where all are taken.
    pub fn take(&self, make: impl Fn() -> T) -> Option<(u32, &T)> {
        let mut free = self.free.lock();
        let number = match free.back.pop() {
            Some(number) => number,
            None if free.end < free.limit => {
                // Made before it counts as taken: who goes by the count finds it.
                let segment = Self::locate(free.end).0;
                self.segments[segment].get_or_init(|| (0..(FIRST as usize) << segment).map(|_| make()).collect());
                free.end += 1;
                free.end - 1
            }
            None => return None,
        };
        drop(free);
        self.find(number).map(|place| (number, place))
    }

    /// Gives a number back. INVARIANT: one-taker.
    pub fn give_back(&self, number: u32) {
        self.free.lock().back.push(number);
    }

    /// The place of a number, if it was made.
    #[inline]
    pub fn find(&self, number: u32) -> Option<&T> {
        let (segment, at) = Self::locate(number);
        self.segments.get(segment)?.get()?.get(at)
    }

    /// How many numbers were ever taken: those from 0 on, each with a place.
    pub fn taken(&self) -> u32 {
        self.free.lock().end
    }

    /// All places that were ever taken, and some that were not.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().filter_map(OnceLock::get).flat_map(|segment| segment.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_number_has_one_taker() {
        let places = Places::<AtomicU32>::new(1001);
        let take = || places.take(AtomicU32::default);
        let numbers: Vec<u32> = (0..1000).map(|_| take().expect("there is room").0).collect();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
        assert!(places.find(999).is_some() && places.find(70_000).is_none() && places.find(u32::MAX).is_none());
        places.find(7).expect("it was taken").store(5, Ordering::Relaxed);
        places.give_back(7);
        places.give_back(8);
        assert_eq!(take().map(|it| it.0), Some(8));
        let (number, place) = take().expect("there is room");
        assert_eq!((number, place.load(Ordering::Relaxed)), (7, 5));
        assert_eq!((take().map(|it| it.0), places.taken()), (Some(1000), 1001));
        assert!(take().is_none(), "that is the limit");
    }

    #[test]
    fn each_number_is_a_place_of_its_own() {
        let places = Places::<AtomicU32>::new(10_000);
        let taken = std::iter::from_fn(|| places.take(AtomicU32::default));
        taken.for_each(|(number, place)| place.store(number + 1, Ordering::Relaxed));
        assert!((0..10_000).all(|it| places.find(it).is_some_and(|place| place.load(Ordering::Relaxed) == it + 1)));
    }
}
