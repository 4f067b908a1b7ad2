//! What is done to memory, and how an operation names the memory.
//!
//! Plain data. Knows no order.

use crate::ids::{AllocId, DeviceId};

/// What an operation does to an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Act {
    /// Allocates it.
    #[default]
    Allocate,
    /// Reads it.
    Read,
    /// Writes it.
    Write,
    /// Frees it.
    Free,
}

impl Act {
    /// Whether two uses of the same bytes need an order: one of them writes. A free that is among the uses (another
    /// process's) is not a write.
    #[inline]
    pub fn conflicts(self, earlier: Act) -> bool {
        earlier == Act::Write || (self == Act::Write && earlier != Act::Free)
    }

    /// In the past, for a table: `read`, `freed`.
    pub fn past(self) -> &'static str {
        match self {
            Act::Allocate => "allocated",
            Act::Read => "read",
            Act::Write => "written",
            Act::Free => "freed",
        }
    }

    /// As a thing: `a read`.
    pub fn noun(self) -> &'static str {
        match self {
            Act::Allocate => "its allocation",
            Act::Read => "a read",
            Act::Write => "a write",
            Act::Free => "its free",
        }
    }
}

/// The name of one life of an allocation, whoever made it: a stream, the host, or an alloc node of a graph.
///
/// Numbers are given out again after a free, with the next generation; so a name that is older than its number's
/// latest is *stale*. Memory of an alloc node is named once, by the operation that makes the node; outside its graph
/// the name means the life that the latest launch began ([`What::Take`](super::What::Take) gives that life a name of
/// its own).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Memory {
    /// The number.
    pub id: AllocId,
    /// Which of its lives, counted up.
    pub generation: u64,
}

impl Memory {
    /// The first life with a number.
    pub fn first(id: u32) -> Self {
        Memory { id: AllocId(id), generation: 0 }
    }
}

/// What an operation does to the bytes of an allocation: [`Act::Read`] or [`Act::Write`].
///
/// A use of no bytes (a pointer one past the end) is not an access and is not recorded as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The memory.
    pub memory: Memory,
    /// Read or write; anything else is taken for a write.
    pub act: Act,
    /// Which bytes of it.
    pub part: Part,
}

impl Access {
    /// An access to all bytes of the memory.
    #[inline]
    pub fn whole(memory: Memory, act: Act) -> Self {
        Access { memory, act, part: Part::WHOLE }
    }
}

/// Bytes of an allocation, from its start: at least one. A use of none is not an access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Part {
    from: u64,
    to: u64,
}

impl Part {
    /// All bytes, however many there are.
    pub const WHOLE: Part = Part { from: 0, to: u64::MAX };

    /// The bytes from `from` on, before `to`; `None` where there are none.
    #[inline]
    pub fn new(from: u64, to: u64) -> Option<Part> {
        (from < to).then_some(Part { from, to })
    }

    /// The same bytes of an allocation of so many: [`WHOLE`](Self::WHOLE) where they are all.
    #[inline]
    pub fn within(self, bytes: u64) -> Part {
        if self.from == 0 && self.to >= bytes { Part::WHOLE } else { self }
    }

    /// The first byte.
    #[inline]
    pub fn from(self) -> u64 {
        self.from
    }

    /// The first byte behind it.
    #[inline]
    pub fn to(self) -> u64 {
        self.to
    }

    /// The bytes of both, and those between.
    pub fn joined(self, other: Part) -> Part {
        Part { from: self.from.min(other.from), to: self.to.max(other.to) }
    }

    /// Whether it is all bytes.
    #[inline]
    pub fn is_whole(self) -> bool {
        self == Part::WHOLE
    }

    /// Whether both have a byte.
    #[inline]
    pub fn overlaps(self, other: Part) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// What work of a device may do with memory of another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Reach {
    /// Nothing.
    #[default]
    None,
    /// Read it.
    Read,
    /// Read and write it.
    ReadWrite,
}

/// Who makes memory at once, outside the order of streams.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// A device (CUDA: `cudaMalloc`): not allowed while a capture forbids unsafe calls. Kernels of other devices need
    /// [access](super::What::PeerAccess).
    Device(DeviceId),
    /// As a device, with access for devices that is not known or all have: managed or mapped memory
    /// (CUDA: `cudaMallocManaged`, `cuMemMap`).
    Managed,
    /// The host: pinned or pageable memory that the device reads or writes.
    Host,
}
