//! Which uses of the same bytes something later may still have to come after.
//!
//! Knows which use needs an order with which; who comes before whom the caller says. The simple version keeps every use
//! for ever. Here a use is dropped once a later write comes after it, or a later read if it is a read itself, because
//! whatever must come after the later one then comes after it, too. (A read drops no write: another read need not come
//! after the first, but must come after the write.) What stays are two antichains, of writes and of reads: two
//! unordered kernels may read an allocation, and both must precede the free. (One "last access" would forget one of
//! them, which is a well-known bug.)

use std::fmt::Debug;

use smallvec::SmallVec;

use crate::op::Act;

/// One thing done to memory, as whoever keeps lives of memory knows it.
pub trait Done: Copy + PartialEq + Debug {
    /// What was done.
    fn act(&self) -> Act;
}

/// The uses of the same bytes: the writes, then the others.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Kept<D: Done> {
    list: SmallVec<[D; 2]>,
    writes: u32,
}

impl<D: Done> Kept<D> {
    #[inline]
    pub(super) fn new() -> Self {
        Self { list: SmallVec::new(), writes: 0 }
    }

    #[inline]
    pub(super) fn all(&self) -> &[D] {
        &self.list
    }

    /// The first that an act has to come after, races looked for, and that is so.
    #[inline]
    pub(super) fn find(&self, act: Act, is_so: impl Fn(&D) -> bool) -> Option<&D> {
        let end = if act == Act::Read { self.writes as usize } else { self.list.len() };
        self.list[..end].iter().find(|it| (act == Act::Free || act.conflicts(it.act())) && is_so(it))
    }

    /// Adds a use, without dropping any.
    #[inline]
    pub(super) fn push(&mut self, new: D) {
        let last = self.list.len();
        self.list.push(new);
        if new.act() == Act::Write {
            self.list.swap(self.writes as usize, last);
            self.writes += 1;
        }
    }

    /// Adds a use, in place of those that it stands for: what comes after it comes after them.
    #[inline]
    pub(super) fn add(&mut self, new: D, is_before: impl Fn(&D) -> bool) {
        let is_write = new.act() == Act::Write;
        let from = if is_write { 0 } else { self.writes as usize };
        // It takes the place of the first: nearly always there is just that one.
        let first = self.list[from..].iter().position(&is_before);
        let Some(first) = first.map(|first| from + first) else { return self.push(new) };
        self.list[first] = new;
        if is_write && first >= self.writes as usize {
            self.list.swap(self.writes as usize, first);
            self.writes += 1;
        }
        let mut at = first + 1;
        while at < self.list.len() {
            match is_before(&self.list[at]) {
                true => self.remove(at),
                false => at += 1,
            }
        }
    }

    /// Another one, behind it, takes its place.
    #[inline]
    fn remove(&mut self, mut at: usize) {
        if at < self.writes as usize {
            self.writes -= 1;
            self.list.swap(at, self.writes as usize);
            at = self.writes as usize;
        }
        self.list.swap_remove(at);
    }

    /// Adds a use in place of one of its kind, if there is such.
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
