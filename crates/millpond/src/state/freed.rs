//! The free that ended a lifetime. While the lifetime goes on: the free of the lifetime before it in the same place.
//!
//! The free stays in place when the next lifetime begins, and only its act is changed. So it is known for a name that
//! is one lifetime old, and takes no more space. Depends on no allocation.

use millpond_core::check::{Act, Site, Use};

/// The last free in a place. See the module.
#[derive(Debug)]
pub(crate) struct Freed(Use);

impl Freed {
    /// Returns the value for a place that has had no lifetime yet.
    pub(crate) fn nowhere(nowhere: Use) -> Self {
        Self(Use { site: Site { act: Act::Free, ..nowhere.site }, ..nowhere })
    }

    /// Returns the free of the present lifetime, once it has happened.
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

    /// Ends the lifetime.
    #[inline]
    pub(crate) fn end(&mut self, free: Use) {
        debug_assert!(free.site.act == Act::Free, "a life ends by a free");
        self.0 = free;
    }

    /// Begins another lifetime.
    #[inline]
    pub(crate) fn begin(&mut self) {
        debug_assert!(self.is_some(), "one-owner: what begins a life is freed");
        self.0.site.act = Act::Allocate;
    }

    /// Returns the free of the previous lifetime. It is unknown once the free of the present one is in its place.
    #[cold]
    pub(crate) fn before(&self) -> Option<Use> {
        self.is_none().then_some(Use { site: Site { act: Act::Free, ..self.0.site }, ..self.0 })
    }
}
