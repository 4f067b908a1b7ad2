//! Finds accesses of one operation to the same bytes of which one writes. The source and the target of a copy must
//! not have such bytes, nor may slices that are borrowed for one launch.

use super::memory::{Act, Part};

/// Returns the index of the first access that overlaps an earlier access to the same memory, if one of the two
/// writes. The accesses must be sorted by memory, then by their first byte.
pub fn find_aliased<M: PartialEq>(accesses: impl Iterator<Item = (M, Act, Part)>) -> Option<usize> {
    // The ends of the uses and of the writes so far. An access that begins before one of these ends overlaps.
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

/// Returns the bytes of the first of the accesses before an aliased one that it conflicts with.
pub fn aliased_with<M: PartialEq>(
    mut before: impl Iterator<Item = (M, Act, Part)>,
    (memory, act, part): (M, Act, Part),
) -> Part {
    let is_it = |(of, by, has): &(M, Act, Part)| *of == memory && act.conflicts(*by) && has.overlaps(part);
    before.find(is_it).map_or(part, |(_, _, has)| has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_beside_a_write_of_the_same_bytes_is_found() {
        let part = |from, to| Part::new(from, to).expect("it is a part");
        let read = |memory, from, to| (memory, Act::Read, part(from, to));
        let write = |memory, from, to| (memory, Act::Write, part(from, to));
        let find = |accesses: &[(u32, Act, Part)]| find_aliased(accesses.iter().copied());
        assert_eq!(find(&[read(1, 0, 8), read(1, 4, 12), write(1, 12, 16)]), None);
        assert_eq!(find(&[read(1, 0, 8), read(1, 2, 4), write(1, 6, 9)]), Some(2));
        assert_eq!(find(&[write(1, 0, 8), read(1, 8, 9), read(1, 8, 9)]), None);
        assert_eq!(find(&[write(1, 0, 8), read(1, 7, 9)]), Some(1));
        assert_eq!(find(&[write(1, 0, 8), write(2, 0, 8)]), None);
    }
}
