//! Bytes that an operation names twice, once to write them: the kinds of work that may do so.
//!
//! CUDA lets a kernel read and write the same bytes. Slices of Rust do not allow that, and a copy between overlapping
//! bytes is undefined. Depends on no allocation.

use millpond_core::check::{Finding, Side};
use millpond_core::op::{Act, Part, Trust, aliased_with, find_aliased};

use crate::names::error::{Error, Invalid};
use crate::state::access::Access;

/// The kind of work that uses the declared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    /// A closure, which gets slices.
    Closure,
    /// A copy between what it reads and what it writes.
    Copy,
    /// A declaration, which gives the memory to no work, or one fill.
    Declared,
    /// Foreign code, which gets addresses. Its unordered accesses are allowed.
    Foreign,
    /// As `Foreign`, for an adaptor that makes its own slices of them.
    ForeignSlices,
}

impl Job {
    /// Returns `true` if unordered accesses of one allocation are allowed: they may touch different bytes.
    pub(crate) fn may_race(self) -> bool {
        matches!(self, Job::Foreign | Job::ForeignSlices)
    }

    /// Returns how much of it is believed without a check.
    pub(crate) fn trust(self) -> Trust {
        if self.may_race() { Trust::Races } else { Trust::None }
    }

    /// Returns the place of the first access that may not stand beside those before it. The accesses are sorted by
    /// their memory and their first byte.
    #[inline]
    pub(crate) fn find_aliased<A: Access, M: PartialEq>(
        self,
        accesses: impl Iterator<Item = (M, Act, Part)>,
    ) -> Option<usize> {
        let may_alias = match self {
            // Slices have a size. Accesses that make none only declare what is used.
            Job::Closure | Job::ForeignSlices => size_of::<A::Slice<'static>>() == 0,
            Job::Copy => false,
            Job::Declared | Job::Foreign => true,
        };
        if may_alias { None } else { find_aliased(accesses) }
    }

    /// The refusal of the access at `at` among these, which are sorted as for [`find_aliased`](Self::find_aliased): to
    /// memory called so, of so many bytes, if they are known.
    #[cold]
    pub(crate) fn aliased<M: PartialEq + Copy>(
        self,
        accesses: &[(M, Act, Part)],
        at: usize,
        (what, size): (String, u64),
        later: Side,
    ) -> Error {
        if self != Job::Copy {
            return Invalid::Aliased { allocation: what }.into();
        }
        let (access, other) = (accesses[at], aliased_with(accesses[..at].iter().copied(), accesses[at]));
        Finding::overlap(&what, size, (access.1, access.2), other, &later.by(), later).into()
    }
}
