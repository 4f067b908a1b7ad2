//! Counts the invariants of graph memory again: for tests, and from time to time in builds with debug assertions.

use super::{Backing, Tenant};
use crate::ids::ChunkId;
use crate::units::Range;

impl Backing {
    /// Audits, in builds with debug assertions, after as many changes as an audit examines chunks and granules.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[inline]
    pub(super) fn audit_in_turn(&mut self) {
        if cfg!(debug_assertions) {
            self.unaudited += 1;
            if self.unaudited > self.chunks.len() + self.pages.len() {
                self.unaudited = 0;
                self.audit();
            }
        }
    }

    /// Checks the tables against a new count.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn audit(&self) {
        let (mut used, mut reserved) = (0, 0);
        for (at, chunk) in self.chunks.iter().enumerate() {
            let id = ChunkId(at as u32);
            reserved += if chunk.is_there { self.granularity } else { 0 };
            let pages = chunk.places.iter().map(|place| &self.pages[place]);
            used += if pages.clone().any(|page| page.arena.is_some()) { self.granularity } else { 0 };
            assert!(pages.clone().all(|page| page.chunk == id), "a place names a page of the chunk");
            assert_eq!(chunk.pins, pages.clone().map(|page| page.pins).sum::<u32>(), "COUNTED: pins of {id}");
            assert!(pages.filter(|page| page.pins > 0).count() <= 1, "KEPT: one allocation's place at most");
            assert!(chunk.is_there || chunk.places.is_empty(), "what is mapped is there");
            if let Tenant::Arena(arena) = chunk.tenant {
                let own = chunk.places.iter().filter(|place| self.pages[place].arena == Some(arena));
                assert_eq!(own.count(), 1, "a tenant has the chunk at one place");
            }
        }
        assert_eq!((used, reserved), (self.statistics.used, self.statistics.reserved), "COUNTED: statistics");
        for (at, page) in &self.pages {
            assert!(self.chunks[page.chunk.index()].places.contains(at), "a page's chunk is mapped there");
            assert_eq!(page.arena.is_none(), self.spare.contains(at), "SPARE");
            assert!(page.arena.is_some() || page.pins == 0, "SPARE: nothing is unfreed there");
        }
        assert!(self.spare.iter().all(|at| self.pages.contains_key(at)), "SPARE: it has memory");
        for (arena, tenure) in &self.arenas {
            let is_settled = |at: &u64| {
                self.pages.get(at).is_some_and(|page| self.chunks[page.chunk.index()].tenant == Tenant::Arena(*arena))
            };
            let strange = tenure.granules.iter().filter(|(at, _)| !is_settled(at)).count();
            assert_eq!(tenure.strange, strange, "COUNTED: strange");
            for (at, _) in &tenure.granules {
                let granule = Range::new(*at, self.granularity);
                let unfreed = tenure.unfreed.iter().filter(|range| range.overlaps(granule)).count();
                let pins = self.pages.get(at).map_or(0, |page| page.pins);
                assert_eq!(pins as usize, unfreed, "COUNTED: pins at {at:#x}");
                assert!(pins == 0 || is_settled(at), "KEPT: the arena is the tenant under what is unfreed");
            }
        }
    }
}
