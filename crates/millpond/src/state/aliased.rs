//! Accesses of one operation that are in each other's way.

use millpond_core::check::Act;
use millpond_core::op::Part;
use smallvec::SmallVec;

/// Nearly all launches declare few accesses.
pub(crate) type Few<T> = SmallVec<[T; 4]>;

/// The first access to bytes that an access before it has, too, where one of them writes: of accesses to some memory,
/// sorted by that and by their first byte.
pub(crate) fn find_aliased<M: PartialEq>(accesses: impl Iterator<Item = (M, Act, Part)>) -> Option<usize> {
    // The ends of the uses and of the writes so far: whoever begins before one of them overlaps.
    let (mut last, mut used, mut written) = (None, 0, 0);
    for (at, (memory, act, part)) in accesses.enumerate() {
        if last.as_ref() != Some(&memory) {
            (last, used, written) = (Some(memory), 0, 0);
        }
        if part.from() < if act == Act::Write { used } else { written } {
            return Some(at);
        }
        used = used.max(part.to());
        if act == Act::Write {
            written = written.max(part.to());
        }
    }
    None
}
