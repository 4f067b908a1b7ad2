//! The caller's handles: numbers that name entries of a table.
//!
//! A handle has its kind, the index of its entry and a generation. So a handle that is null, destroyed, of another kind
//! or made up is refused, and nothing dangles (number-handles). Each entry has a lock of its own, held for one call:
//! threads with different handles share nothing. To C a handle is a pointer to an incomplete struct, so that the
//! compiler tells kinds apart.

use millpond_driver::Places;
use millpond_driver::locks::Biased;

use super::ranks;

use crate::status::{Failure, Result};

const INDEX_BITS: u32 = 26;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// A slot for one entry at a time. Its generation changes with each entry.
#[repr(align(128))] // No cache line is shared with another handle's.
struct Slot<T>(Biased<ranks::Entry, Held<T>>);

struct Held<T> {
    generation: u32,
    entry: Option<T>,
}

/// The entries of one kind.
pub(crate) struct Table<T> {
    kind: &'static str,
    /// The number of the kind in handles.
    tag: u8,
    places: Places<Slot<T>>,
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: &'static str, tag: u8) -> Self {
        Self { kind, tag, places: Places::new(1 << INDEX_BITS) }
    }

    /// Adds an entry, and returns its handle.
    pub(crate) fn insert<H>(&self, entry: T) -> Result<*mut H> {
        let new = || Slot(Biased::new(Held { generation: 0, entry: None }));
        let Some((index, slot)) = self.places.take(new) else {
            return Err(Failure::Value(format!("there are too many {} handles", self.kind)));
        };
        let mut held = slot.0.lock();
        held.generation = held.generation.wrapping_add(1);
        held.entry = Some(entry);
        let number = (u64::from(held.generation) << (INDEX_BITS + 5)) | (u64::from(index) << 5);
        Ok((number | self.kind_bits()) as *mut H)
    }

    #[inline]
    fn slot<H>(&self, handle: *mut H) -> Option<(&Slot<T>, u64, u32)> {
        let number = handle as u64;
        let index = ((number >> 5) & INDEX_MASK) as u32;
        let slot = self.places.find(index)?;
        (number & 0x1F == self.kind_bits()).then_some((slot, number >> (INDEX_BITS + 5), index))
    }

    /// Returns the lowest bits of each handle of this kind. The last one is 1, so that no handle is null or an aligned
    /// address.
    #[inline]
    fn kind_bits(&self) -> u64 {
        u64::from(self.tag) << 1 | 1
    }

    /// Calls `act` with an entry, under its lock. `act` must not run the caller's code or wait for the device.
    #[inline]
    pub(crate) fn with<H, R>(&self, handle: *mut H, act: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let (slot, generation, _) = self.slot(handle).ok_or(Failure::Handle(self.kind))?;
        let mut held = slot.0.lock();
        match &mut *held {
            Held { generation: now, entry: Some(entry) } if u64::from(*now) == generation => act(entry),
            _ => Err(Failure::Handle(self.kind)),
        }
    }

    /// As [`with`](Self::with), if this thread owns the entry's lock and `act` returns a result. Otherwise nothing has
    /// happened, and `with` does it or says why not.
    #[inline(always)] // The hot path of memory.
    pub(crate) fn with_own<H, R>(&self, handle: *mut H, act: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let (slot, generation, _) = self.slot(handle)?;
        let mut held = slot.0.try_own()?;
        match &mut *held {
            Held { generation: now, entry: Some(entry) } if u64::from(*now) == generation => act(entry),
            _ => None,
        }
    }

    /// Returns a clone of an entry, for use without its lock.
    pub(crate) fn find<H>(&self, handle: *mut H) -> Result<T>
    where
        T: Clone,
    {
        self.with(handle, |entry| Ok(entry.clone()))
    }

    /// Removes an entry. Its handle is not valid any more.
    pub(crate) fn remove<H>(&self, handle: *mut H) -> Result<T> {
        let (slot, generation, index) = self.slot(handle).ok_or(Failure::Handle(self.kind))?;
        let mut held = slot.0.lock();
        if u64::from(held.generation) != generation {
            return Err(Failure::Handle(self.kind));
        }
        let entry = held.entry.take().ok_or(Failure::Handle(self.kind))?;
        drop(held);
        self.places.give_back(index);
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing;

    #[test]
    fn only_a_live_handle_of_the_kind_is_found() {
        static THINGS: Table<u32> = Table::new("thing", 3);
        static OTHERS: Table<u32> = Table::new("other", 4);
        let handle: *mut Thing = THINGS.insert(7).ok().expect("there is room");
        let other: *mut Thing = OTHERS.insert(8).ok().expect("there is room");
        assert_eq!(THINGS.find(handle).ok(), Some(7));
        assert!(OTHERS.find(handle).is_err() && THINGS.find(other).is_err());
        assert!(THINGS.find(std::ptr::null_mut::<Thing>()).is_err());
        let made_up = |number: u64| THINGS.find(number as *mut Thing).is_err();
        assert!(made_up(handle as u64 ^ 1) && made_up(u64::MAX) && made_up(handle as u64 | 1 << 20));
        assert_eq!(THINGS.remove(handle).ok(), Some(7));
        assert!(THINGS.find(handle).is_err() && THINGS.remove(handle).is_err());
        let again: *mut Thing = THINGS.insert(9).ok().expect("there is room");
        assert_eq!(THINGS.find(again).ok(), Some(9));
        assert!(THINGS.find(handle).is_err(), "the place was taken again by another generation");
    }

    #[test]
    fn many_handles_stay_where_they_are() {
        static THINGS: Table<usize> = Table::new("thing", 3);
        let handles: Vec<*mut Thing> = (0..10_000).filter_map(|i| THINGS.insert(i).ok()).collect();
        assert!(handles.iter().enumerate().all(|(i, handle)| THINGS.find(*handle).ok() == Some(i)));
    }
}
