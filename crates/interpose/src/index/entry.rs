//! An allocation, as the index knows it.

use millpond_core::ids::AllocId;
use millpond_core::op::Memory;

/// The way in which memory was allocated, which decides how it is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Stream-ordered.
    Ordered,
    /// Immediate, of a device: its free waits for the device.
    Device,
    /// Immediate, managed: its free waits for the device.
    Managed,
    /// Immediate, of the host.
    Host,
    /// From a mapping or an import, whose end waits for nothing.
    Mapped,
    /// From an alloc node of a graph.
    Node,
}

/// An allocation, in half a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Entry {
    /// The first address.
    pub(crate) start: u64,
    /// The first address after it.
    pub(crate) end: u64,
    /// Its name, together with `generation`.
    pub(super) id: AllocId,
    pub(super) generation: u32,
    /// The number of the context in which it was made.
    pub(crate) home: u32,
    /// The way in which it was allocated.
    pub(crate) kind: Kind,
    /// `true` while the addresses belong to it: it is not freed yet, or it is an alloc node's, which the next launch
    /// allocates again.
    pub(crate) is_live: bool,
    /// `true` while it can be used. An alloc node's memory can be used from the launch to the free.
    pub(crate) is_allocated: bool,
    /// `true` if an address in it needs no further checks: it is allocated, and is not a mapping.
    pub(super) is_plain: bool,
}

const _: () = assert!(size_of::<Entry>() == 32);

impl Entry {
    /// Returns its number.
    #[inline]
    pub(crate) fn id(&self) -> AllocId {
        self.id
    }

    /// Returns its name.
    #[inline]
    pub(crate) fn memory(&self) -> Memory {
        Memory { id: self.id, generation: u64::from(self.generation) }
    }

    /// Returns `true` if the address is in the allocation. Freed host memory has no addresses.
    #[inline]
    pub(super) fn is_at(&self, at: u64) -> bool {
        self.start <= at && at < self.end && (self.is_live || self.kind != Kind::Host)
    }

    /// Returns `true` if the address is in the allocation and needs no further checks: it is allocated, and is not a
    /// mapping.
    #[inline]
    pub(crate) fn is_plainly_at(&self, at: u64) -> bool {
        (self.start <= at) & (at < self.end) & self.is_plain
    }

    pub(super) fn set_live(&mut self, is_live: bool) {
        self.is_live = is_live;
        self.set_allocated(is_live);
    }

    pub(super) fn set_allocated(&mut self, is_allocated: bool) {
        self.is_allocated = is_allocated;
        self.is_plain = is_allocated && self.kind != Kind::Mapped;
    }

    /// Returns `true` if it has all bytes of the piece of `1 << bits` bytes at `base`.
    pub(super) fn has_all(&self, base: u64, bits: u64) -> bool {
        self.start <= base && base + ((1 << bits) - 1) < self.end
    }

    /// Returns `true` if it has bytes of that piece that `other` does not have.
    pub(super) fn has_beside(&self, other: &Entry, base: u64, bits: u64) -> bool {
        let (from, last) = (self.start.max(base), (self.end - 1).min(base + ((1 << bits) - 1)));
        from <= last && !(other.start <= from && last < other.end)
    }
}
