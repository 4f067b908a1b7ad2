//! Bytes that an operation names twice, once to write them: what may do so.
//!
//! CUDA lets a kernel read and write the same bytes. Slices of Rust do not, and a copy between overlapping bytes is
//! undefined. Knows no allocation.

use millpond_core::check::{Finding, Side};
use millpond_core::op::{Act, Part, Trust, aliased_with, find_aliased};

use crate::names::error::{Error, Invalid};
use crate::state::access::Access;

/// What uses the declared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    /// A closure, which is given slices.
    Closure,
    /// A copy between what it reads and what it writes.
    Copy,
    /// Nothing that is given the memory, or one fill.
    Declared,
    /// Foreign code, which is given addresses. Its unordered accesses pass.
    Foreign,
    /// As `Foreign`, of an adaptor that makes slices of its own of them.
    ForeignSlices,
}

impl Job {
    /// Whether unordered accesses of one allocation pass: they may touch different bytes.
    pub(crate) fn may_race(self) -> bool {
        matches!(self, Job::Foreign | Job::ForeignSlices)
    }

    /// What is believed of it.
    pub(crate) fn trust(self) -> Trust {
        if self.may_race() { Trust::Races } else { Trust::None }
    }

    /// The place of the first access that may not be beside those before it: of accesses sorted by their memory and
    /// their first byte.
    #[inline]
    pub(crate) fn find_aliased<A: Access, M: PartialEq>(
        self,
        accesses: impl Iterator<Item = (M, Act, Part)>,
    ) -> Option<usize> {
        let may_alias = match self {
            // Slices have a size: accesses that make none only say what is used.
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
