//! What an exporter remembers: tickets that nobody has used yet, and what is lent to whom.
//!
//! Generic over what a ticket stands for and what a lease holds; knows no memory, no socket and no time.
//!
//! Invariants: **one-import**: a ticket is redeemed at most once. **own-leases**: only the connection that a lease was
//! given to can release it or ask about it. **no-lost-lease**: every lease ends exactly once, by its release or with
//! its connection.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::message::Refusal;
use super::ticket::TicketKind;

/// Something lent. Counted up, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(pub u64);

/// An importer, as long as it stays connected. Counted up, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// The most tickets that may be out unused.
pub const TICKETS_MAX: usize = 1 << 16;
/// How many used tickets are remembered, to tell a second use from a forgery.
const USED_MAX: usize = 4096;

/// So many tickets are out unused that no more are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{TICKETS_MAX} tickets are out that nobody has used")]
pub struct Full;

/// How often things happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Tickets given out.
    pub issued: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Leases given.
    pub lent: u64,
    /// Leases that their holder released.
    pub released: u64,
    /// Leases that ended with the connection of their holder.
    pub reclaimed: u64,
    /// Connections that ended while they held leases.
    pub lost: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Desk<T, L> {
    tickets: FxHashMap<u128, (TicketKind, T)>,
    used: VecDeque<u128>,
    leases: FxHashMap<LeaseId, (ConnectionId, L)>,
    next_lease: u64,
    counts: Counts,
}

impl<T, L> Default for Desk<T, L> {
    fn default() -> Self {
        Self {
            tickets: FxHashMap::default(),
            used: VecDeque::new(),
            leases: FxHashMap::default(),
            next_lease: 1,
            counts: Counts::default(),
        }
    }
}

impl<T, L> Desk<T, L> {
    /// Gives a ticket out. `is_good` tells which unused ones still stand for something, where room is wanted.
    ///
    /// # Errors
    /// Too many are out.
    pub fn issue(
        &mut self,
        nonce: u128,
        kind: TicketKind,
        what: T,
        mut is_good: impl FnMut(&T) -> bool,
    ) -> Result<(), Full> {
        if self.tickets.len() >= TICKETS_MAX {
            self.tickets.retain(|_, (_, what)| is_good(what));
            if self.tickets.len() >= TICKETS_MAX {
                return Err(Full);
            }
        }
        self.tickets.insert(nonce, (kind, what));
        self.counts.issued += 1;
        Ok(())
    }

    /// Takes a ticket in (one-import).
    ///
    /// # Errors
    /// It is none, was used before, or is of another kind; the last leaves it good.
    pub fn redeem(&mut self, nonce: u128, kind: TicketKind) -> Result<T, Refusal> {
        match self.tickets.get(&nonce) {
            None if self.used.contains(&nonce) => return Err(Refusal::Used),
            None => return Err(Refusal::Unknown),
            Some((known, _)) if *known != kind => return Err(Refusal::OtherKind),
            Some(_) => {}
        }
        let (_, what) = self.tickets.remove(&nonce).ok_or(Refusal::Unknown)?;
        if self.used.len() == USED_MAX {
            self.used.pop_front();
        }
        self.used.push_back(nonce);
        Ok(what)
    }

    /// Counts a refusal.
    pub fn refused(&mut self) {
        self.counts.refused += 1;
    }

    /// Lends something to a connection.
    pub fn lend(&mut self, to: ConnectionId, what: L) -> LeaseId {
        let lease = LeaseId(self.next_lease);
        self.next_lease += 1;
        self.leases.insert(lease, (to, what));
        self.counts.lent += 1;
        lease
    }

    /// What a connection has a lease of.
    ///
    /// # Errors
    /// It has no such lease.
    pub fn lent(&self, to: ConnectionId, lease: LeaseId) -> Result<&L, Refusal> {
        self.leases.get(&lease).filter(|(holder, _)| *holder == to).map(|(_, what)| what).ok_or(Refusal::NotLent)
    }

    /// All that a connection has leases of.
    pub fn lent_to(&self, to: ConnectionId) -> impl Iterator<Item = &L> {
        self.leases.values().filter(move |(holder, _)| *holder == to).map(|(_, what)| what)
    }

    /// All leases.
    pub fn leases(&self) -> impl Iterator<Item = &L> {
        self.leases.values().map(|(_, what)| what)
    }

    /// A lease ends by its holder's word (own-leases).
    ///
    /// # Errors
    /// It has no such lease.
    pub fn release(&mut self, by: ConnectionId, lease: LeaseId) -> Result<L, Refusal> {
        self.lent(by, lease)?;
        let (_, what) = self.leases.remove(&lease).ok_or(Refusal::NotLent)?;
        self.counts.released += 1;
        Ok(what)
    }

    /// A connection ends, and all its leases with it.
    pub fn disconnect(&mut self, who: ConnectionId) -> Vec<L> {
        let its: Vec<_> = self.leases.iter().filter(|(_, lent)| lent.0 == who).map(|(lease, _)| *lease).collect();
        let ended: Vec<L> = its.iter().filter_map(|lease| self.leases.remove(lease)).map(|(_, what)| what).collect();
        self.counts.reclaimed += ended.len() as u64;
        self.counts.lost += u64::from(!ended.is_empty());
        ended
    }

    /// How often things happened.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    #[test]
    fn a_ticket_is_good_for_one_import_of_its_kind() {
        let mut desk = Desk::<&str, ()>::default();
        desk.issue(7, TicketKind::Memory, "x", |_| true).unwrap();
        assert_eq!(desk.redeem(8, TicketKind::Memory), Err(Refusal::Unknown));
        assert_eq!(desk.redeem(7, TicketKind::Event), Err(Refusal::OtherKind));
        assert_eq!(desk.redeem(7, TicketKind::Memory), Ok("x"));
        assert_eq!(desk.redeem(7, TicketKind::Memory), Err(Refusal::Used));
    }

    #[test]
    fn a_lease_is_its_holders_alone() {
        let mut desk = Desk::<(), &str>::default();
        let lease = desk.lend(A, "x");
        assert_eq!(desk.lent(B, lease), Err(Refusal::NotLent));
        assert_eq!(desk.release(B, lease), Err(Refusal::NotLent));
        assert_eq!(desk.release(A, lease), Ok("x"));
        assert_eq!(desk.release(A, lease), Err(Refusal::NotLent));
        assert!(desk.disconnect(A).is_empty());
        assert_eq!(desk.counts(), Counts { lent: 1, released: 1, ..Counts::default() });
    }

    #[test]
    fn what_the_lost_held_comes_back_once() {
        let mut desk = Desk::<(), u32>::default();
        let mut mine: Vec<_> = (0..5).map(|i| desk.lend(A, i)).collect();
        let other = desk.lend(B, 9);
        desk.release(A, mine.remove(2)).unwrap();
        let mut back = desk.disconnect(A);
        back.sort_unstable();
        assert_eq!(back, [0, 1, 3, 4]);
        assert!(desk.disconnect(A).is_empty());
        assert_eq!(desk.leases().collect::<Vec<_>>(), [&9]);
        assert_eq!(desk.release(B, other), Ok(9));
        let expected = Counts { lent: 6, released: 2, reclaimed: 4, lost: 1, ..Counts::default() };
        assert_eq!(desk.counts(), expected);
    }

    #[test]
    fn dead_tickets_make_room() {
        let mut desk = Desk::<bool, ()>::default();
        for nonce in 0..TICKETS_MAX as u128 {
            desk.issue(nonce, TicketKind::Memory, nonce == 3, |good| *good).unwrap();
        }
        desk.issue(u128::MAX, TicketKind::Memory, true, |good| *good).unwrap();
        assert_eq!(desk.redeem(4, TicketKind::Memory), Err(Refusal::Unknown));
        assert_eq!(desk.redeem(3, TicketKind::Memory), Ok(true));
        let mut full = Desk::<bool, ()>::default();
        for nonce in 0..TICKETS_MAX as u128 {
            full.issue(nonce, TicketKind::Memory, true, |good| *good).unwrap();
        }
        assert_eq!(full.issue(u128::MAX, TicketKind::Memory, true, |good| *good), Err(Full));
    }
}
