//! The uses of the same bytes that something later may still have to come after.
//!
//! Knows which use needs an order with which; the caller supplies the order. The simple version keeps every use for
//! ever. Here a use is dropped once a later write comes after it, or a later read if the use is a read itself:
//! whatever must come after the later use then comes after the dropped one, too. A read drops no write, because
//! another read need not come after the first read but must come after the write. Two antichains are left, one of
//! writes and one of reads: two unordered kernels may read an allocation, and both must precede the free. (Keeping
//! only one "last access" would lose one of them, which is a well-known bug.)

use std::fmt::Debug;

use smallvec::SmallVec;

use crate::op::Act;

/// A use of memory, in the form that the owner of the lifetime keeps.
pub trait Done: Copy + PartialEq + Debug {
    /// Returns the kind of access.
    fn act(&self) -> Act;
}

/// The uses of the same bytes: the writes, then the others, each in the order in which they were added. So the first
/// conflicting use does not depend on which uses were dropped in favour of later ones.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Uses<D: Done> {
    list: SmallVec<[D; 2]>,
    writes: u32,
}

impl<D: Done> Uses<D> {
    #[inline]
    pub(super) fn new() -> Self {
        Self { list: SmallVec::new(), writes: 0 }
    }

    #[inline]
    pub(super) fn all(&self) -> &[D] {
        &self.list
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the first use that `act` must come after, with races checked, and for which `is_so` holds.
    #[inline]
    pub(super) fn find(&self, act: Act, is_so: impl Fn(&D) -> bool) -> Option<&D> {
        let end = if act == Act::Read { self.writes as usize } else { self.list.len() };
        self.list[..end].iter().find(|it| (act == Act::Free || act.conflicts(it.act())) && is_so(it))
    }

    /// Adds a use without dropping any.
    #[inline]
    pub(super) fn push(&mut self, new: D) {
        match new.act() == Act::Write {
            true => {
                self.list.insert(self.writes as usize, new);
                self.writes += 1;
            }
            false => self.list.push(new),
        }
    }

    /// Adds a use and drops the uses that come before it and that it stands for: what comes after the new use comes
    /// after those.
    #[inline]
    pub(super) fn add(&mut self, new: D, is_before: impl Fn(&D) -> bool) {
        let is_write = new.act() == Act::Write;
        let from = if is_write { 0 } else { self.writes as usize };
        match &mut self.list[from..] {
            // Nearly always there is just one use, and the new one replaces it.
            [only] if is_before(only) => {
                *only = new;
                self.writes = if is_write { 1 } else { self.writes };
            }
            _ => {
                self.drop_before(from, is_before);
                self.push(new);
            }
        }
        let is_placed = |(at, it): (usize, &D)| (it.act() == Act::Write) == (at < self.writes as usize);
        debug_assert!(self.list.iter().enumerate().all(is_placed), "the writes, then the others: {:?}", self.list);
    }

    /// Drops the uses from the index `from` on for which `is_before` holds.
    fn drop_before(&mut self, from: usize, is_before: impl Fn(&D) -> bool) {
        let (mut to, mut writes) = (from, self.writes);
        for at in from..self.list.len() {
            match is_before(&self.list[at]) {
                true => writes -= u32::from(at < self.writes as usize),
                false => {
                    self.list[to] = self.list[at];
                    to += 1;
                }
            }
        }
        self.list.truncate(to);
        self.writes = writes;
    }

    /// Replaces a use with the same kind of access for which `is_same` holds, or adds the new one if there is none.
    pub(super) fn replace(&mut self, new: D, is_same: impl Fn(&D) -> bool) {
        match self.list.iter_mut().find(|known| known.act() == new.act() && is_same(known)) {
            Some(known) => *known = new,
            None => self.push(new),
        }
    }

    pub(super) fn retain(&mut self, stays: impl Fn(&D) -> bool) {
        let mut writes = 0;
        self.list.retain(|known| {
            let stays = stays(known);
            writes += u32::from(stays && known.act() == Act::Write);
            stays
        });
        self.writes = writes;
    }
}
