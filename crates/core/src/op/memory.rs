//! Accesses to memory, and the names of memory in operations.
//!
//! Plain data. Depends on no order.

use crate::ids::{AllocId, DeviceId};

/// The kind of access of an operation to an allocation.
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
    /// Returns `true` if two uses of the same bytes need an order: one of them is a write. A free among the uses
    /// (another process's) is not a write.
    #[inline]
    pub fn conflicts(self, earlier: Act) -> bool {
        earlier == Act::Write || (self == Act::Write && earlier != Act::Free)
    }

    /// Returns the past participle, for a table: `read`, `freed`.
    pub fn past(self) -> &'static str {
        match self {
            Act::Allocate => "allocated",
            Act::Read => "read",
            Act::Write => "written",
            Act::Free => "freed",
        }
    }

    /// Returns a noun with its article: `a read`.
    pub fn noun(self) -> &'static str {
        match self {
            Act::Allocate => "its allocation",
            Act::Read => "a read",
            Act::Write => "a write",
            Act::Free => "its free",
        }
    }
}

/// The name of one allocation, made by a stream, the host, or an alloc node of a graph.
///
/// A number is used again after a free, with the next generation, so a name is *stale* if it is older than the latest
/// generation of its number. Memory of an alloc node is named once, by the operation that adds the node. Outside its
/// graph, the name means the allocation that the latest launch made ([`What::Take`](super::What::Take) gives that
/// allocation a name of its own).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Memory {
    /// The number.
    pub id: AllocId,
    /// The generation: counts the allocations with this number.
    pub generation: u64,
}

impl Memory {
    /// Returns the first allocation with a number.
    pub fn first(id: u32) -> Self {
        Memory { id: AllocId(id), generation: 0 }
    }
}

/// A read or a write of bytes of an allocation: [`Act::Read`] or [`Act::Write`].
///
/// A use of no bytes (a pointer one past the end) is not an access and is not recorded as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The memory.
    pub memory: Memory,
    /// Read or write. Anything else is treated as a write.
    pub act: Act,
    /// The bytes.
    pub part: Part,
}

impl Access {
    /// Makes an access to all bytes of the memory.
    #[inline]
    pub fn whole(memory: Memory, act: Act) -> Self {
        Access { memory, act, part: Part::WHOLE }
    }
}

/// A range of bytes of an allocation, relative to its start: at least one byte. A use of no bytes is not an access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Part {
    from: u64,
    to: u64,
}

impl Part {
    /// All bytes, independent of the size.
    pub const WHOLE: Part = Part { from: 0, to: u64::MAX };

    /// Makes the bytes from `from` up to `to`, without `to`. Returns `None` if there are none.
    #[inline]
    pub fn new(from: u64, to: u64) -> Option<Part> {
        (from < to).then_some(Part { from, to })
    }

    /// Returns the same bytes of an allocation of `bytes` bytes: [`WHOLE`](Self::WHOLE) if that is all of them.
    #[inline]
    pub fn within(self, bytes: u64) -> Part {
        if self.from == 0 && self.to >= bytes { Part::WHOLE } else { self }
    }

    /// Returns the first byte.
    #[inline]
    pub fn from(self) -> u64 {
        self.from
    }

    /// Returns the first byte after it.
    #[inline]
    pub fn to(self) -> u64 {
        self.to
    }

    /// Returns the bytes of both parts and those in between.
    pub fn joined(self, other: Part) -> Part {
        Part { from: self.from.min(other.from), to: self.to.max(other.to) }
    }

    /// Returns `true` if it is [`WHOLE`](Self::WHOLE).
    #[inline]
    pub fn is_whole(self) -> bool {
        self == Part::WHOLE
    }

    /// Returns `true` if both parts have a byte in common.
    #[inline]
    pub fn overlaps(self, other: Part) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// The access that work of a device has to memory of another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Reach {
    /// No access.
    #[default]
    None,
    /// Read access.
    Read,
    /// Read and write access.
    ReadWrite,
}

/// The kind of an immediate allocation, which is outside the order of streams.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// Device memory (CUDA: `cudaMalloc`). Not allowed while a capture forbids unsafe calls. Kernels of other devices
    /// need [access](super::What::PeerAccess).
    Device(DeviceId),
    /// As device memory, but all devices have access, or the access is not known: managed or mapped memory (CUDA:
    /// `cudaMallocManaged`, `cuMemMap`).
    Managed,
    /// Host memory, pinned or pageable, that the device reads or writes.
    Host,
}
