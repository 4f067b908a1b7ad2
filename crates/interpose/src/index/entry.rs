//! What is known of an allocation.

use millpond_core::ids::AllocId;
use millpond_core::op::Memory;

/// How memory was made, which says how it is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// In the order of a stream.
    Ordered,
    /// At once, of a device: its free waits for the device.
    Device,
    /// At once, of no device alone: its free waits for the device.
    Managed,
    /// At once, of the host.
    Host,
    /// By a mapping or an import, whose end waits for nothing.
    Mapped,
    /// By an alloc node of a graph.
    Node,
}

/// An allocation, in half a line of memory.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Entry {
    /// Its first address.
    pub(crate) start: u64,
    /// The first address behind it.
    pub(crate) end: u64,
    /// Its name.
    pub(super) id: AllocId,
    pub(super) generation: u32,
    /// In which context it was made, by number.
    pub(crate) home: u32,
    /// How it was made.
    pub(crate) kind: Kind,
    /// Whether its place is its own: it is not freed yet, or is an alloc node's, which the next launch allocates again.
    pub(crate) is_live: bool,
    /// Whether it can be used now: an alloc node's memory can from the launch to the free.
    pub(crate) is_allocated: bool,
    /// Whether an address in it means it and nothing else: it can be used, and is not a mapping.
    pub(super) is_plain: bool,
}

const _: () = assert!(size_of::<Entry>() == 32);

impl Entry {
    /// Its number.
    #[inline]
    pub(crate) fn id(&self) -> AllocId {
        self.id
    }

    /// Its name.
    #[inline]
    pub(crate) fn memory(&self) -> Memory {
        Memory { id: self.id, generation: u64::from(self.generation) }
    }

    /// Whether an address is its own: freed memory of the host has none.
    #[inline]
    pub(super) fn is_at(&self, at: u64) -> bool {
        self.start <= at && at < self.end && (self.is_live || self.kind != Kind::Host)
    }

    /// Whether an address is its own, and nothing else is to be looked at: live memory, and no mapping.
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

    /// Whether all bytes of a part of the space are its own.
    pub(super) fn has_all(&self, base: u64, bits: u64) -> bool {
        self.start <= base && base + ((1 << bits) - 1) < self.end
    }

    /// Whether it has bytes in a part of the space that another one has not.
    pub(super) fn has_beside(&self, other: &Entry, base: u64, bits: u64) -> bool {
        let (from, last) = (self.start.max(base), (self.end - 1).min(base + ((1 << bits) - 1)));
        from <= last && !(other.start <= from && last < other.end)
    }
}
