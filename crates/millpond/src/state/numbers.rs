//! Numbers of a device's allocations, given again when theirs are gone.
//!
//! A number goes on with its generations, so that number and generation name one life for ever. It rests until others
//! have come back after it: in a program that makes few, messages name each allocation by a number of its own. Knows
//! numbers only.

use std::collections::VecDeque;

use millpond_core::ids::AllocId;
use millpond_driver::locks::{Mutex, lock};

use crate::names::error::{Invalid, Result};
use crate::sync::ranks;

/// So many numbers came back after one that is given again.
const RESTING: usize = 1024;

/// So many numbers are left to requests that were let pass at the same time.
const MARGIN: u32 = 1 << 24;

/// A number, and the last generation that it had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub(crate) id: AllocId,
    pub(crate) generation: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct AllocNumbers {
    left: Mutex<ranks::AllocNumbers, Left>,
}

#[derive(Debug, Default)]
struct Left {
    /// How many there were ever at once.
    made: u32,
    /// Those that came back, the oldest first.
    resting: VecDeque<Number>,
}

impl AllocNumbers {
    /// Refuses where numbers run out: two allocations with one number would be one to locks, views and traces.
    pub(crate) fn check(&self) -> Result<()> {
        let left = lock(&self.left);
        match left.made < u32::MAX - MARGIN || left.resting.len() > RESTING {
            true => Ok(()),
            false => Err(Invalid::NoNumbers { what: "allocations", made: left.made }.into()),
        }
    }

    /// A number that no allocation has.
    pub(crate) fn take(&self) -> Number {
        let mut left = lock(&self.left);
        if left.resting.len() > RESTING
            && let Some(number) = left.resting.pop_front()
        {
            return number;
        }
        left.made += 1;
        Number { id: AllocId(left.made - 1), generation: 0 }
    }

    /// The allocation with the number is gone.
    pub(crate) fn give_back(&self, number: Number) {
        // A life that had not begun may be named all the same.
        let generation = number.generation.wrapping_add(1);
        lock(&self.left).resting.push_back(Number { generation, ..number });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_again_and_name_no_life_twice() {
        let numbers = AllocNumbers::default();
        let mut lives = std::collections::HashSet::new();
        for _ in 0..10 * RESTING {
            let Number { id, generation } = numbers.take();
            assert!(lives.insert((id, generation)), "{id} names one life");
            numbers.give_back(Number { id, generation });
        }
        assert!(lock(&numbers.left).made as usize <= RESTING + 1);
    }

    #[test]
    fn numbers_that_run_out_are_refused() {
        let numbers = AllocNumbers::default();
        lock(&numbers.left).made = u32::MAX - MARGIN;
        assert!(numbers.check().is_err());
        for id in 0..=RESTING as u32 {
            numbers.give_back(Number { id: AllocId(id), generation: 0 });
        }
        assert!(numbers.check().is_ok() && numbers.take().id == AllocId(0));
    }
}
