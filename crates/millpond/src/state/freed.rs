//! Where a life ended; while it goes on, where the life before it in the same place did.
//!
//! The free stays where it is when the next life begins: only its act is not a free any more. So it is known for a
//! name that is one life old, and no life is longer for it. Knows no allocation.

use millpond_core::check::{Act, Site, Use};

/// See the module.
#[derive(Debug)]
pub(crate) struct Freed(Use);

impl Freed {
    /// Of a place that has had no life yet.
    pub(crate) fn nowhere(nowhere: Use) -> Self {
        Self(Use { site: Site { act: Act::Free, ..nowhere.site }, ..nowhere })
    }

    /// The free of the life that is there, once it has happened.
    #[inline]
    pub(crate) fn now(&self) -> Option<Use> {
        self.is_some().then_some(self.0)
    }

    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        matches!(self.0.site.act, Act::Free)
    }

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        !self.is_some()
    }

    /// The life ends.
    #[inline]
    pub(crate) fn end(&mut self, free: Use) {
        debug_assert!(free.site.act == Act::Free, "a life ends by a free");
        self.0 = free;
    }

    /// Another life begins.
    #[inline]
    pub(crate) fn begin(&mut self) {
        debug_assert!(self.is_some(), "one-owner: what begins a life is freed");
        self.0.site.act = Act::Allocate;
    }

    /// The free of the life before; unknown once that of this one is in its place.
    #[cold]
    pub(crate) fn before(&self) -> Option<Use> {
        self.is_none().then_some(Use { site: Site { act: Act::Free, ..self.0.site }, ..self.0 })
    }
}
