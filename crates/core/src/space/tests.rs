//! Tests of the chunks of a space, by example.

use super::*;
use crate::units::MIB;

const G: u64 = 2 * MIB;

fn space_with(sizes: &[u64]) -> Space {
    let mut space = Space::new(0, G);
    let mut at = 0;
    for &granules in sizes {
        let id = space.plan();
        space.created(id, granules * G);
        space.mapped(id, at, 0);
        at += granules * G;
    }
    space
}

#[test]
fn a_chunk_idles_when_its_last_block_goes() {
    let mut space = space_with(&[1, 2]);
    space.pin(Range::new(G - 512, 1024));
    space.pin(Range::new(0, 512));
    assert_eq!(space.idle(), 0);
    space.unpin(Range::new(G - 512, 1024));
    assert_eq!(space.idle_chunks().collect::<Vec<_>>(), [ChunkId(1)]);
    space.unpin(Range::new(0, 512));
    assert_eq!(space.idle_chunks().collect::<Vec<_>>(), [ChunkId(1), ChunkId(0)]);
    space.audit(|_| 0, 0).unwrap();
}

#[test]
fn an_old_mapping_closes_its_granules_until_it_is_taken_away() {
    let mut space = space_with(&[2]);
    let old = space.moved(ChunkId(0), 8 * G, 1);
    assert_eq!(old, Range::new(0, 2 * G));
    assert_eq!((space.at(0), space.at(8 * G)), (None, Some(ChunkId(0))));
    space.audit(|range| u32::from(range.start == 8 * G), 2).unwrap();
    space.opened(ChunkId(0), old);
    assert_eq!(space.chunk(ChunkId(0)).aliases, 0);
    space.unpin(Range::new(8 * G, 512));
    space.unmapped(ChunkId(0));
    assert_eq!((space.reserved(), space.spares()), (2 * G, &[ChunkId(0)][..]));
    space.destroyed(ChunkId(0));
    assert_eq!((space.reserved(), space.reserved_high()), (0, 2 * G));
    space.audit(|_| 0, 0).unwrap();
}

#[test]
fn stretches_are_found_over_chunks_and_holes() {
    let space = space_with(&[1, 1]);
    assert_eq!(space.same_until(512, 10 * G), (true, 2 * G));
    assert_eq!(space.same_until(512, G + 1), (true, G + 1));
    assert_eq!(space.same_until(2 * G, 10 * G), (false, 10 * G));
}
