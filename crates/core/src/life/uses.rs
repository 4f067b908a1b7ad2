//! The uses of one life that something later may still have to come after, by bytes.
//!
//! They are of all bytes (`kept`), until an operation uses a part of them: then each part has its own (`parts`), until
//! something that is done to all makes them one again. Knows bytes; which use stands for which `kept` says.

use super::kept::{Done, Kept};
use super::parts::Parts;
use super::site::Use;
use crate::op::{Act, Part};

/// A use that another one took the place of: of which bytes, and where it stood among those of the same bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Replaced<D: Done = Use> {
    used: D,
    part: Part,
    place: usize,
}

/// The uses of one life: see the module.
#[derive(Clone, Debug)]
#[repr(C)] // Whether there are any is looked at with each alloc and free.
pub(super) struct Uses<D: Done> {
    /// Where there are parts, those of one of them: whoever finds none need not look for parts.
    kept: Kept<D>,
    parts: Option<Box<Parts<D>>>,
}

impl<D: Done> Uses<D> {
    #[inline]
    pub(super) fn new() -> Self {
        Self { kept: Kept::new(), parts: None }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.kept.all().is_empty()
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        if !self.is_empty() {
            self.drop_all();
        }
    }

    #[inline(never)]
    fn drop_all(&mut self) {
        *self = Self::new();
    }

    /// How much is kept: uses of all bytes, or parts with uses.
    pub(super) fn len(&self) -> usize {
        self.parts.as_ref().map_or(self.kept.all().len(), |parts| parts.len())
    }

    /// Those of a part; one of several parts may come several times.
    pub(super) fn of(&self, part: Part) -> impl Iterator<Item = &D> + Clone {
        let whole = if self.parts.is_none() { self.kept.all() } else { &[] };
        whole.iter().chain(self.parts.as_deref().into_iter().flat_map(move |parts| parts.of(part)))
    }

    /// Those of bytes that have the same, with the bytes.
    pub(super) fn by_part(&self) -> impl Iterator<Item = (Part, &[D])> {
        let whole = self.parts.is_none().then(|| (Part::WHOLE, self.kept.all()));
        whole.into_iter().chain(self.parts.as_deref().into_iter().flat_map(|parts| parts.all()))
    }

    /// The first use of some bytes that an act has to come after, races looked for, and that is so.
    #[inline]
    pub(super) fn find(&self, act: Act, part: Part, is_so: impl Fn(&D) -> bool) -> Option<&D> {
        match &self.parts {
            _ if self.is_empty() => None,
            None => self.kept.find(act, is_so),
            Some(parts) => parts.find(part, |kept| kept.find(act, &is_so)),
        }
    }

    /// Adds a use, in place of those that it stands for. `replaced` gets those.
    #[inline]
    pub(super) fn add(
        &mut self,
        new: D,
        part: Part,
        is_before: impl Fn(&D) -> bool,
        mut replaced: impl FnMut(Replaced<D>),
    ) {
        let mut replaced = |part, place, used| replaced(Replaced { used, part, place });
        match part.is_whole() && self.is_whole() {
            true => self.kept.add(new, is_before, |place, used| replaced(part, place, used)),
            false => self.change(part, |segment, kept| {
                kept.add(new, &is_before, |place, used| replaced(segment, place, used));
            }),
        }
    }

    /// Drops a use of a part.
    pub(super) fn remove(&mut self, old: &D, part: Part) {
        self.change(part, |_, kept| kept.remove(old));
    }

    /// Adds a use that another one replaced, which was removed.
    pub(super) fn put_back(&mut self, Replaced { used, part, place }: Replaced<D>) {
        self.change(part, |_, kept| kept.put_back(place, used));
    }

    /// Adds a use, without looking for those that it stands for.
    pub(super) fn push(&mut self, new: D, part: Part) {
        self.change(part, |_, kept| kept.push(new));
    }

    /// Adds a use of all bytes in place of one of its kind, if there is such.
    pub(super) fn replace(&mut self, new: D, is_same: impl Fn(&D) -> bool) {
        self.change(Part::WHOLE, |_, kept| kept.replace(new, &is_same));
    }

    /// Drops uses.
    pub(super) fn retain(&mut self, stays: impl Fn(&D) -> bool) {
        self.change(Part::WHOLE, |_, kept| kept.retain(&stays));
    }

    /// As [`retain`](Self::retain), of what need not be asked about again.
    pub(super) fn settle(&mut self, stays: impl Fn(&D) -> bool) {
        self.retain(stays);
        self.parts.iter_mut().for_each(|parts| parts.settled());
    }

    /// Whether parts are used by themselves, and settling them would cost no more than was done since the last time.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.is_due())
    }

    /// Whether all bytes have the same uses.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.parts.is_none() || self.is_empty()
    }

    fn change(&mut self, part: Part, mut change: impl FnMut(Part, &mut Kept<D>)) {
        if part.is_whole() && self.is_whole() {
            return change(part, &mut self.kept);
        }
        let whole = || Box::new(Parts::new(std::mem::replace(&mut self.kept, Kept::new())));
        let mut parts = self.parts.take().unwrap_or_else(whole);
        parts.change(part, change);
        match parts.is_whole() {
            true => self.kept = parts.into_whole(),
            false => {
                self.kept = Kept::new();
                if let Some(first) = parts.of(Part::WHOLE).next() {
                    self.kept.push(*first);
                }
                self.parts = Some(parts);
            }
        }
    }
}
