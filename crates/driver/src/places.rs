//! Numbered slots that are made once, found without a lock, and never moved.
//!
//! Does not know the content of the slots. The simple version is a vector behind a lock. The departure: slots are in
//! segments that never move, each twice as large as the one before, so that threads which look up different slots share
//! no lock.
//!
//! Invariants: `one-taker`: a number has one taker at a time; `place-stays`: a slot lives as long as the table.

use std::sync::OnceLock;

use crate::BiasedLock;

/// The number of slots of the first segment.
const FIRST: u32 = 64;
/// The number of segments: enough for all numbers of 32 bits.
const SEGMENTS: usize = (u32::BITS - FIRST.ilog2()) as usize;

/// A table of slots, numbered from 0.
#[derive(Debug)]
pub struct Places<T> {
    segments: [OnceLock<Box<[T]>>; SEGMENTS],
    free: BiasedLock<Free>,
}

#[derive(Debug)]
struct Free {
    /// Numbers below this one were taken at least once.
    end: u32,
    /// All numbers are below this one.
    limit: u32,
    /// Numbers that were returned.
    back: Vec<u32>,
}

impl<T> Places<T> {
    /// Returns a table without slots, for at most `limit` of them.
    pub const fn new(limit: u32) -> Self {
        let free = Free { end: 0, limit, back: Vec::new() };
        Self { segments: [const { OnceLock::new() }; SEGMENTS], free: BiasedLock::new(free) }
    }

    /// Returns the segment of a number, and its position there.
    #[inline]
    fn locate(number: u32) -> (usize, usize) {
        let shifted = u64::from(number) + u64::from(FIRST);
        let segment = shifted.ilog2() - FIRST.ilog2();
        (segment as usize, (shifted - (u64::from(FIRST) << segment)) as usize)
    }

    /// Takes a slot for the caller alone: the last one returned, if there is one. `make` makes the values of a new
    /// segment. `None` if all are taken.
    pub fn take(&self, make: impl Fn() -> T) -> Option<(u32, &T)> {
        let mut free = self.free.lock();
        let number = match free.back.pop() {
            Some(number) => number,
            None if free.end < free.limit => {
                // Made before the number counts as taken, so that readers of the count find the slot.
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

    /// Returns a number to the table. INVARIANT: one-taker.
    pub fn give_back(&self, number: u32) {
        self.free.lock().back.push(number);
    }

    /// Returns the slot of a number, if it was made.
    #[inline]
    pub fn find(&self, number: u32) -> Option<&T> {
        // Most tables have one segment, which needs no arithmetic.
        if number < FIRST {
            return self.segments[0].get()?.get(number as usize);
        }
        let (segment, at) = Self::locate(number);
        self.segments.get(segment)?.get()?.get(at)
    }

    /// Returns the number of slots that were ever taken: these are numbered from 0 on.
    pub fn taken(&self) -> u32 {
        self.free.lock().end
    }

    /// Returns all slots that were ever taken, and some that were not.
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
