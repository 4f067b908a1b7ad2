//! The invariants of graph memory, counted anew. For tests.

use super::{Backing, Tenant};
use crate::ids::ChunkId;

impl Backing {
    /// Re-derives what the tables say.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn audit(&self) {
        let (mut used, mut reserved) = (0, 0);
        for (at, chunk) in self.chunks.iter().enumerate() {
            let id = ChunkId(at as u32);
            reserved += if chunk.is_there { self.granularity } else { 0 };
            used += if chunk.places.is_empty() { 0 } else { self.granularity };
            let pages = chunk.places.iter().map(|place| &self.pages[place]);
            assert!(pages.clone().all(|page| page.chunk == id), "a place names a page of the chunk");
            assert_eq!(chunk.pins, pages.clone().map(|page| page.pins).sum::<u32>(), "COUNTED: pins of {id}");
            assert!(pages.filter(|page| page.pins > 0).count() <= 1, "KEPT: one allocation's place at most");
            assert!(chunk.is_there || chunk.places.is_empty(), "what is mapped is there");
            if let Tenant::Exec(exec) = chunk.tenant {
                let own = chunk.places.iter().filter(|place| self.pages[place].exec == Some(exec));
                assert_eq!(own.count(), 1, "a tenant has the chunk at one place");
            }
        }
        assert_eq!((used, reserved), (self.statistics.used, self.statistics.reserved), "COUNTED: statistics");
        for (at, page) in &self.pages {
            assert!(self.chunks[page.chunk.index()].places.contains(at), "a page's chunk is mapped there");
        }
        for (exec, tenure) in &self.execs {
            let pages = || tenure.granules.iter().map(|(at, _)| self.pages.get(at));
            let is_calm = |tenant: &Tenant, pins| *tenant == Tenant::Exec(*exec) && pins == 0;
            let is_settled = |page: Option<&super::Page>| {
                page.is_some_and(|page| {
                    is_calm(&self.chunks[page.chunk.index()].tenant, page.pins) && page.exec == Some(*exec)
                })
            };
            assert_eq!(tenure.strange, pages().filter(|page| !is_settled(*page)).count(), "COUNTED: strange");
            let pinned = pages().flatten().filter(|page| page.pins > 0).count();
            assert_eq!(tenure.pinned, pinned, "COUNTED: pinned");
        }
    }
}
