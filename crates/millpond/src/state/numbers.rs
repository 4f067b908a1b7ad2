//! The numbers of a device's allocations and streams. They are used again when their owners are gone.
//!
//! The generations of an allocation's number go on with its next owner, so that number and generation name one lifetime
//! for ever. A stream's number is only its name: its place in the order has a number of its own. Depends on numbers
//! only.

use std::sync::Arc;

use millpond_core::ids::{AllocId, RecycledNumbers, StreamId};
use millpond_driver::locks::{Mutex, lock};
use millpond_driver::process;

use crate::names::error::{Invalid, Result};
use crate::sync::ranks;

/// The numbers that are left for requests that passed the check at the same time.
const MARGIN: u32 = 1 << 24;

/// A number, and the last generation that it had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub(crate) id: AllocId,
    pub(crate) generation: u64,
}

/// The numbers of allocations. See the module.
#[derive(Debug, Default)]
pub(crate) struct AllocNumbers {
    left: Mutex<ranks::Table, RecycledNumbers<u64>>,
}

impl AllocNumbers {
    /// Refuses if numbers run out: two allocations with one number would be one to locks, views and traces.
    pub(crate) fn check(&self) -> Result<()> {
        let left = lock(&self.left);
        match left.has_one(u32::MAX - MARGIN) {
            true => Ok(()),
            false => Err(Invalid::NoNumbers { what: "allocations", made: left.made() }.into()),
        }
    }

    /// Takes a number that no allocation has.
    pub(crate) fn take(&self) -> Number {
        let (id, generation) = lock(&self.left).take(u32::MAX).expect("`check` was asked");
        Number { id: AllocId(id), generation: generation.unwrap_or_default() }
    }

    /// Gives back the number of an allocation that is gone.
    pub(crate) fn give_back(&self, number: Number) {
        // A lifetime that had not begun may be named all the same.
        lock(&self.left).give_back(number.id.0, number.generation.wrapping_add(1));
    }
}

/// The numbers of streams. They stay below the bits that name a device.
#[derive(Debug, Default)]
pub(crate) struct StreamNumbers {
    left: Mutex<ranks::Table, RecycledNumbers>,
}

/// The number of a stream. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct StreamNumber {
    pub(crate) id: StreamId,
    /// `true` if another stream had it before.
    pub(crate) is_again: bool,
    numbers: Arc<StreamNumbers>,
}

impl StreamNumbers {
    /// Takes a number that no stream has.
    pub(crate) fn take(self: &Arc<Self>) -> Result<StreamNumber> {
        let mut left = lock(&self.left);
        let made = left.made();
        let taken = left.take(1 << StreamId::DEVICE_SHIFT).ok_or(Invalid::NoNumbers { what: "streams", made })?;
        let (number, former) = taken;
        Ok(StreamNumber { id: StreamId(number), is_again: former.is_some(), numbers: Arc::clone(self) })
    }
}

impl Drop for StreamNumber {
    fn drop(&mut self) {
        // In a forked child process the lock may be held for ever.
        if !process::is_forked() {
            lock(&self.numbers.left).give_back(self.id.0, ());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESTING: usize = RecycledNumbers::<u64>::RESTING;

    #[test]
    fn numbers_are_given_again_and_name_no_life_twice() {
        let numbers = AllocNumbers::default();
        let mut lives = std::collections::HashSet::new();
        for _ in 0..10 * RESTING {
            let Number { id, generation } = numbers.take();
            assert!(lives.insert((id, generation)), "{id} names one life");
            numbers.give_back(Number { id, generation });
        }
        assert!(lock(&numbers.left).made() as usize <= RESTING + 1);
    }

    #[test]
    fn numbers_that_run_out_are_refused() {
        let numbers = AllocNumbers { left: Mutex::new(RecycledNumbers::beginning_at(u32::MAX - MARGIN)) };
        assert!(numbers.check().is_err());
        for id in 0..=RESTING as u32 {
            numbers.give_back(Number { id: AllocId(id), generation: 0 });
        }
        assert!(numbers.check().is_ok() && numbers.take().id == AllocId(0));
    }

    #[test]
    fn numbers_of_streams_end_where_those_of_devices_begin() {
        let last = (1 << StreamId::DEVICE_SHIFT) - 1;
        let numbers = Arc::new(StreamNumbers { left: Mutex::new(RecycledNumbers::beginning_at(last)) });
        let first = numbers.take().unwrap();
        assert_eq!((first.id, first.id.device()), (StreamId(last), None));
        let refused = numbers.take().unwrap_err().to_string();
        assert!(refused.contains("no numbers left for streams"), "{refused}");
        drop(first);
        assert_eq!(numbers.take().unwrap().id, StreamId(last));
    }
}
