//! The admission of connections to an exporter.
//!
//! A new connection costs one file for a few seconds. Until it has claimed something it is a guest. The number of
//! guests is limited: over the limit, the oldest guest of the process with the most guests is dropped, so that a
//! flood displaces its own connections.
//!
//! Depends on numbers of connections and processes, and times in nanoseconds; on no socket and no clock.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// The most connections that have claimed nothing.
const GUESTS_MAX: usize = 64;
/// The time that a connection may claim nothing, in nanoseconds.
const GUEST_LIFE: u64 = 5_000_000_000;
/// The most connections of one process.
const PROCESS_MAX: usize = 64;

/// The admitted connections. See the module.
#[derive(Debug, Default)]
pub struct Admission {
    /// The guests, the oldest first.
    guests: VecDeque<Guest>,
    /// The number of connections of each process.
    processes: FxHashMap<u32, usize>,
}

#[derive(Clone, Copy, Debug)]
struct Guest {
    came: u64,
    connection: u64,
    process: u32,
}

impl Admission {
    /// Returns `true` if a process has as many connections as it may have. Processes without a number, 0, are not
    /// counted.
    pub fn is_full(&self, process: u32) -> bool {
        process != 0 && self.processes.get(&process).is_some_and(|count| *count >= PROCESS_MAX)
    }

    /// Returns the connection that must be dropped before one more is admitted, if there is one.
    pub fn displaced(&self) -> Option<u64> {
        if self.guests.len() < GUESTS_MAX {
            return None;
        }
        let mut counts = FxHashMap::<u32, usize>::default();
        self.guests.iter().for_each(|guest| *counts.entry(guest.process).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(_, count)| *count)?.0;
        self.guests.iter().find(|guest| guest.process == most).map(|guest| guest.connection)
    }

    /// Admits a connection.
    pub fn enter(&mut self, connection: u64, process: u32, now: u64) {
        *self.processes.entry(process).or_default() += 1;
        self.guests.push_back(Guest { came: now, connection, process });
    }

    /// Records that a connection has claimed something: it is not a guest any more.
    pub fn claimed(&mut self, connection: u64) {
        self.guests.retain(|guest| guest.connection != connection);
    }

    /// Removes a connection that was admitted.
    pub fn leave(&mut self, connection: u64, process: u32) {
        self.claimed(connection);
        if let Some(count) = self.processes.get_mut(&process) {
            *count -= 1;
            if *count == 0 {
                self.processes.remove(&process);
            }
        }
    }

    /// Returns a guest that has claimed nothing for too long.
    pub fn overdue(&self, now: u64) -> Option<u64> {
        self.guests.front().filter(|guest| now >= guest.came + GUEST_LIFE).map(|guest| guest.connection)
    }

    /// Returns the time at which the next guest is overdue.
    pub fn next_end(&self) -> Option<u64> {
        self.guests.front().map(|guest| guest.came + GUEST_LIFE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_displaces_its_own() {
        let mut admission = Admission::default();
        admission.enter(0, 7, 0);
        for connection in 1..GUESTS_MAX as u64 {
            assert_eq!(admission.displaced(), None);
            admission.enter(connection, 8, connection);
        }
        assert_eq!(admission.displaced(), Some(1), "the oldest of the process that has most");
        admission.leave(1, 8);
        assert_eq!(admission.displaced(), None);
        admission.enter(64, 8, 64);
        admission.claimed(2);
        assert!(!admission.is_full(8) && admission.displaced().is_none());
        admission.enter(65, 8, 65);
        assert!(admission.is_full(8) && !admission.is_full(7));
        assert_eq!(admission.displaced(), Some(3), "one that has claimed stays");
    }

    #[test]
    fn a_guest_goes_in_time() {
        let mut admission = Admission::default();
        assert_eq!(admission.next_end(), None);
        admission.enter(4, 7, 3);
        admission.enter(5, 0, 9);
        assert_eq!(admission.next_end(), Some(3 + GUEST_LIFE));
        assert_eq!(admission.overdue(2 + GUEST_LIFE), None);
        assert_eq!(admission.overdue(3 + GUEST_LIFE), Some(4));
        admission.claimed(4);
        assert_eq!(admission.overdue(3 + GUEST_LIFE), None);
        admission.leave(4, 7);
        admission.leave(5, 0);
        assert!(admission.guests.is_empty() && admission.processes.is_empty());
    }

    #[test]
    fn processes_without_a_number_are_not_counted() {
        let mut admission = Admission::default();
        (0..200).for_each(|connection| {
            admission.enter(connection, 0, 0);
            admission.claimed(connection);
        });
        assert!(!admission.is_full(0));
    }
}
