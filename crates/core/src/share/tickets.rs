//! The tickets that an exporter has issued and that were not used yet.
//!
//! Generic over the thing that a ticket stands for. Depends on no memory, no socket and no clock: a time is a growing
//! number, in any unit that the caller chooses.
//!
//! Invariants: **one-import**: a ticket is redeemed at most once. **bounded**: at most [`TICKETS_MAX`] tickets are
//! unused; one more displaces the one that would expire first.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use super::message::Refusal;
use super::ticket::TicketKind;

/// The most tickets that may be unused at a time.
pub const TICKETS_MAX: usize = 1 << 16;
/// The number of former tickets to remember, in order to tell why they are not valid any more.
const FORMER_MAX: usize = 4096;

/// The unused tickets. See the module.
#[derive(Clone, Debug)]
pub struct Tickets<T> {
    tickets: FxHashMap<u128, Issued<T>>,
    /// The times at which they expire.
    ends: BTreeSet<(u64, u128)>,
    /// The reasons why former tickets are not valid any more, and the order in which they went.
    former: FxHashMap<u128, Refusal>,
    order: VecDeque<u128>,
}

#[derive(Clone, Debug)]
struct Issued<T> {
    kind: TicketKind,
    end: u64,
    what: T,
}

impl<T> Default for Tickets<T> {
    fn default() -> Self {
        let (tickets, ends, former, order) = Default::default();
        Self { tickets, ends, former, order }
    }
}

impl<T> Tickets<T> {
    /// Issues a ticket that is valid until `end`. Returns what a ticket stood for that was displaced to make room.
    pub fn issue(&mut self, nonce: u128, kind: TicketKind, what: T, end: u64) -> Option<T> {
        let first = self.ends.first().filter(|_| self.tickets.len() >= TICKETS_MAX).map(|(_, nonce)| *nonce);
        let gone = first.and_then(|first| self.take(first, Refusal::Expired));
        self.ends.insert((end, nonce));
        self.tickets.insert(nonce, Issued { kind, end, what });
        gone
    }

    /// Redeems a ticket (**one-import**).
    ///
    /// # Errors
    /// If there is no such ticket, it was used before, it is no longer valid, or it is of another kind. In the last
    /// case it stays valid.
    pub fn redeem(&mut self, nonce: u128, kind: TicketKind, now: u64) -> Result<T, Refusal> {
        match self.tickets.get(&nonce) {
            None => return Err(self.former.get(&nonce).copied().unwrap_or(Refusal::Unknown)),
            Some(issued) if issued.end <= now => return Err(Refusal::Expired),
            Some(issued) if issued.kind != kind => return Err(Refusal::OtherKind),
            Some(_) => {}
        }
        self.take(nonce, Refusal::Used).ok_or(Refusal::Unknown)
    }

    /// Revokes a ticket, and returns what it stood for if it was still valid.
    pub fn revoke(&mut self, nonce: u128) -> Option<T> {
        self.take(nonce, Refusal::Expired)
    }

    /// Removes the tickets that have expired by `now`, and returns what they stood for.
    pub fn expire(&mut self, now: u64) -> Vec<T> {
        let mut ended = Vec::new();
        while let Some((_, nonce)) = self.ends.first().copied().filter(|(end, _)| *end <= now) {
            ended.extend(self.take(nonce, Refusal::Expired));
        }
        ended
    }

    /// Returns the time at which the next ticket expires.
    pub fn next_end(&self) -> Option<u64> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Returns the number of unused tickets.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Returns `true` if there are no unused tickets.
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    fn take(&mut self, nonce: u128, why: Refusal) -> Option<T> {
        let issued = self.tickets.remove(&nonce)?;
        self.ends.remove(&(issued.end, nonce));
        if self.order.len() == FORMER_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.former.remove(&oldest);
        }
        self.order.push_back(nonce);
        self.former.insert(nonce, why);
        Some(issued.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_for_one_import_of_its_kind() {
        let mut desk = Tickets::<&str>::default();
        desk.issue(7, TicketKind::Memory, "x", 9);
        assert_eq!(desk.redeem(8, TicketKind::Memory, 0), Err(Refusal::Unknown));
        assert_eq!(desk.redeem(7, TicketKind::Event, 0), Err(Refusal::OtherKind));
        assert_eq!(desk.redeem(7, TicketKind::Memory, 0), Ok("x"));
        assert_eq!(desk.redeem(7, TicketKind::Memory, 0), Err(Refusal::Used));
        assert!(desk.is_empty() && desk.next_end().is_none());
    }

    #[test]
    fn a_ticket_ends() {
        let mut desk = Tickets::<&str>::default();
        desk.issue(7, TicketKind::Memory, "x", 9);
        desk.issue(8, TicketKind::Memory, "y", 5);
        assert_eq!(desk.next_end(), Some(5));
        assert_eq!(desk.redeem(8, TicketKind::Memory, 5), Err(Refusal::Expired));
        assert_eq!(desk.expire(4), Vec::<&str>::new());
        assert_eq!(desk.expire(5), ["y"]);
        assert_eq!(desk.redeem(8, TicketKind::Memory, 0), Err(Refusal::Expired));
        assert_eq!(desk.revoke(7), Some("x"));
        assert_eq!(desk.revoke(7), None);
        assert_eq!(desk.redeem(7, TicketKind::Memory, 0), Err(Refusal::Expired));
    }

    #[test]
    fn one_more_takes_the_place_of_the_one_that_would_end_first() {
        let mut desk = Tickets::<u128>::default();
        for nonce in 0..TICKETS_MAX as u128 {
            assert_eq!(desk.issue(nonce, TicketKind::Event, nonce, 10 + nonce as u64), None);
        }
        for nonce in 0..5000 {
            assert_eq!(desk.issue(1 << 100 | nonce, TicketKind::Event, nonce, 1 << 40), Some(nonce));
        }
        assert_eq!(desk.len(), TICKETS_MAX);
        assert_eq!(desk.former.len(), FORMER_MAX);
        assert_eq!(desk.redeem(4999, TicketKind::Event, 0), Err(Refusal::Expired));
        assert_eq!(desk.redeem(5000, TicketKind::Event, 0), Ok(5000));
    }
}
