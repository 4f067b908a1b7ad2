//! Graph memory of a device: which physical chunks lie under which launch.
//!
//! A graph and its copies have addresses of their own, an *arena*, and no memory; a launch needs both. All chunks have
//! the size of one granule, so that any serves anywhere. A chunk mapped in one arena stays there, and may be mapped in
//! another as well: two launches may use one chunk where one of them is ordered before the other, and then what is
//! reserved is what the largest of them needs, not the sum. An unfreed allocation keeps its chunks to itself. Launches
//! that use one arena come one after the other; the caller sees to that. What is mapped at the addresses of an arena
//! that is gone stays there ([`retire`](Backing::retire)): whoever has those addresses next finds it mapped.
//!
//! The simple version looks at each granule's chunk at each launch. Departure: a chunk remembers who used it last (its
//! *tenant*), and an arena that is still the tenant of all its chunks is launched without looking at any of them.
//! (Chunks of one size cost a map call for each granule once; larger ones would not fit each other's places.)
//!
//! How a launch goes: [`bind`](Backing::bind), again where something must be waited for first; carry out
//! [`next_step`](Backing::next_step)s one by one, each followed by [`applied`](Backing::applied) or
//! [`failed`](Backing::failed); make the launching stream wait for the points that `bind` returned; launch; then
//! [`launched`](Backing::launched) with its point. An upload ends with [`uploaded`](Backing::uploaded).
//!
//! Knows points by [`Knows`](crate::order::Knows) and [`Completed`]; nothing of graphs but their addresses, nothing of
//! drivers. Never waits: the caller does, where it holds no locks.
//!
//! Invariants, re-derived by [`audit`](Backing::audit):
//! * LEGAL: a chunk serves a launch only if its last use is ordered before the launch, or over.
//! * KEPT: a chunk under an unfreed allocation serves no other arena, and is not unmapped there.
//! * STEPWISE: the state changes when a step has succeeded. A step that fails loses nothing.
//! * COUNTED: `strange`, `pins`, and the statistics are what a count finds.
//! * SPARE: a granule is spare where it has memory and no owner; then nothing is unfreed there.

mod audit;
mod bind;
mod steps;

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ids::{ChunkId, Point};
use crate::order::Completed;
use crate::pool::Frontier;
use crate::units::Range;

pub use steps::BackingStep;

/// The addresses of a graph and its copies, as their owner counts them; a number is never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ArenaKey(pub u64);

/// A launch cannot be bound yet: addresses are to be unmapped that these points still use. Wait until they have
/// completed, behind all locks that their work may want, and bind again. No memory has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocked {
    /// The points.
    pub after: Frontier,
    /// Where binding again will do without, and the launch will wait on the device for memory that others use: how
    /// often the host has waited in vain, in a row.
    pub in_vain: Option<u32>,
}

/// What graph memory takes, in bytes (CUDA: `cudaGraphMemAttributeType`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackingStatistics {
    /// Physical memory mapped under the addresses of at least one graph that is there. A free does not change it, a
    /// trim does.
    pub used: u64,
    /// The most that was used since the last reset.
    pub used_high: u64,
    /// All physical memory held for graphs.
    pub reserved: u64,
    /// The most that was reserved since the last reset.
    pub reserved_high: u64,
}

/// Who used a chunk last.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Tenant {
    /// The last launch in an arena.
    Arena(ArenaKey),
    /// Launches up to these points.
    Past(Frontier),
}

#[derive(Clone, Debug)]
struct Chunk {
    is_there: bool,
    /// The granules where it is mapped.
    places: SmallVec<[u64; 2]>,
    tenant: Tenant,
    /// Other uses to come after: frees of allocations on it, and earlier tenants until the present one has launched.
    also: Frontier,
    /// Unfreed allocations on it.
    pins: u32,
    /// The bind that took it last.
    taken: u64,
}

/// A granule that has memory.
#[derive(Clone, Debug)]
struct Page {
    chunk: ChunkId,
    /// Its owner; the last one, where it is spare.
    arena: Option<ArenaKey>,
    /// Unfreed allocations on it.
    pins: u32,
}

/// An arena that is used.
#[derive(Clone, Debug)]
struct Tenure {
    /// The granules that need memory, rising, and whether outputs lie there.
    granules: Vec<(u64, bool)>,
    /// Its last launch or upload.
    last: Frontier,
    /// Frees of its outputs since.
    freed: Frontier,
    /// Its granules without a chunk of which it is the tenant.
    strange: usize,
    /// Its unfreed allocations.
    unfreed: Vec<Range>,
    /// Whether it got chunks since its last launch.
    is_new: bool,
    /// How often in a row its launches were made to wait for memory that others use.
    delays: u32,
}

/// Graph memory of one device: see the module.
#[derive(Clone, Debug)]
pub struct Backing {
    granularity: u64,
    chunks: Vec<Chunk>,
    vacant: Vec<ChunkId>,
    pages: FxHashMap<u64, Page>,
    /// The spare granules.
    spare: BTreeSet<u64>,
    arenas: FxHashMap<ArenaKey, Tenure>,
    steps: VecDeque<BackingStep>,
    binds: u64,
    statistics: BackingStatistics,
    /// Changes since the last audit, in builds with debug assertions.
    unaudited: usize,
}

impl Backing {
    /// No memory, on a device of this mapping granularity (a power of two, in bytes).
    pub fn new(granularity: u64) -> Self {
        Self {
            granularity,
            chunks: Vec::new(),
            vacant: Vec::new(),
            pages: FxHashMap::default(),
            spare: BTreeSet::new(),
            arenas: FxHashMap::default(),
            steps: VecDeque::new(),
            binds: 0,
            statistics: BackingStatistics::default(),
            unaudited: 0,
        }
    }

    /// An instance with addresses in `arena` is made: from now on launches in the arena need memory there, too.
    /// `cover` is [`Exec::cover`](super::Exec::cover), as far as it lies in the arena.
    ///
    /// # Panics
    /// Where steps are left.
    pub fn enroll(&mut self, arena: ArenaKey, cover: &[(Range, bool)]) {
        assert!(self.steps.is_empty(), "STEPWISE: all steps were applied");
        let tenure = self.arenas.entry(arena).or_insert_with(|| Tenure {
            granules: Vec::new(),
            last: Frontier::EMPTY,
            freed: Frontier::EMPTY,
            strange: 0,
            unfreed: Vec::new(),
            is_new: false,
            delays: 0,
        });
        let known = tenure.granules.len();
        for &(range, is_output) in cover {
            let starts = (range.start..range.end()).step_by(self.granularity as usize);
            tenure.granules.extend(starts.map(|at| (at, is_output)));
        }
        // Outputs first, so that what stays of each granule says whether one is there.
        tenure.granules.sort_unstable_by_key(|&(at, is_output)| (at, !is_output));
        tenure.granules.dedup_by_key(|(at, _)| *at);
        tenure.strange += tenure.granules.len() - known;
    }

    /// The unfreed allocations in an arena. Whoever launches there must not have other memory at the same addresses.
    pub fn unfreed(&self, arena: ArenaKey) -> &[Range] {
        self.arenas.get(&arena).map_or(&[], |tenure| &tenure.unfreed)
    }

    /// The launch that [`bind`](Self::bind) made ready was made, at `point` of the launching stream. `outputs` are the
    /// addresses of its unfreed allocations, but for those at whose addresses an earlier launch's were unfreed until
    /// this launch: nothing changes for them.
    ///
    /// # Panics
    /// Where an arena is unknown or steps are left.
    pub fn launched(&mut self, arenas: &[ArenaKey], point: Point, outputs: impl IntoIterator<Item = Range>) {
        self.uploaded(arenas, point);
        for range in outputs {
            let mut owner = None;
            for at in self.granules(range) {
                let page = self.pages.get_mut(&at).expect("bind gave every granule a page");
                page.pins += 1;
                owner = page.arena;
                self.chunks[page.chunk.index()].pins += 1;
            }
            if let Some(arena) = owner {
                self.tenure(arena).unfreed.push(range);
            }
        }
    }

    /// What [`bind`](Self::bind) made ready stays the arenas' for a launch to come: `point` is the upload's.
    ///
    /// # Panics
    /// Where an arena is unknown or steps are left.
    pub fn uploaded(&mut self, arenas: &[ArenaKey], point: Point) {
        assert!(self.steps.is_empty(), "STEPWISE: all steps were applied");
        for &arena in arenas {
            let tenure = self.tenure(arena);
            debug_assert_eq!(tenure.strange, 0, "bind made the arena the tenant of all its chunks");
            tenure.last = point.into();
            tenure.freed = Frontier::EMPTY;
            if std::mem::take(&mut tenure.is_new) {
                // What came before the chunks were taken comes before this launch, or had completed.
                let tenure = &self.arenas[&arena];
                let chunks = tenure.granules.iter().map(|(at, _)| self.pages[at].chunk);
                chunks.for_each(|chunk| self.chunks[chunk.index()].also = Frontier::EMPTY);
            }
        }
        self.audit_in_turn();
    }

    /// An unfreed allocation was freed, after these points. `range` is what [`launched`](Self::launched) got.
    ///
    /// # Panics
    /// Where no such allocation lies there.
    pub fn freed(&mut self, range: Range, after: impl Into<Frontier>) {
        let after = after.into();
        let mut owner = None;
        for at in self.granules(range) {
            let page = self.pages.get_mut(&at).filter(|page| page.pins > 0).expect("an unfreed allocation lies there");
            page.pins -= 1;
            owner = page.arena;
            let chunk = &mut self.chunks[page.chunk.index()];
            chunk.pins -= 1;
            chunk.also.join(&after);
        }
        if let Some(arena) = owner {
            let tenure = self.tenure(arena);
            tenure.freed.join(&after);
            let at = tenure.unfreed.iter().position(|unfreed| *unfreed == range);
            tenure.unfreed.swap_remove(at.expect("the allocation was live"));
        }
        self.audit_in_turn();
    }

    /// The arena goes; all work that used its addresses has completed, and no free of what is unfreed in it will come.
    /// What is mapped there stays, for whoever has the addresses next, and its chunks serve others, until a
    /// [`trim`](Self::trim).
    ///
    /// # Panics
    /// Where steps are left.
    pub fn retire(&mut self, arena: ArenaKey) {
        assert!(self.steps.is_empty(), "STEPWISE: all steps were applied");
        for range in self.unfreed(arena).to_vec() {
            self.freed(range, Frontier::EMPTY);
        }
        for (at, _) in self.arenas.remove(&arena).into_iter().flat_map(|tenure| tenure.granules) {
            let Some(page) = self.pages.get_mut(&at) else { continue };
            page.arena = None;
            let chunk = page.chunk;
            let was_used = self.is_used(chunk);
            self.spare.insert(at);
            self.count_used(chunk, was_used);
            let tenant = &mut self.chunks[chunk.index()].tenant;
            if *tenant == Tenant::Arena(arena) {
                *tenant = Tenant::Past(Frontier::EMPTY);
            }
        }
    }

    /// These addresses are given back; no arena has them. Whether nothing is mapped there any more; else steps were
    /// planned: carry them out and ask again.
    ///
    /// # Panics
    /// Where steps are left.
    pub fn vacate(&mut self, range: Range) -> bool {
        assert!(self.steps.is_empty(), "STEPWISE: all steps were applied");
        let spare = self.spare.range(range.start..range.end());
        self.steps.extend(spare.map(|&at| BackingStep::Unmap { chunk: self.pages[&at].chunk, at }));
        self.steps.is_empty()
    }

    /// Whether nothing is mapped at addresses that no arena has.
    pub fn is_vacant(&self, range: Range) -> bool {
        self.spare.range(range.start..range.end()).next().is_none()
    }

    /// Plans to give back all memory that nothing needs any more: chunks whose last use has completed and on which
    /// nothing is unfreed, of arenas in use, too (CUDA: `cudaDeviceGraphMemTrim`).
    ///
    /// # Panics
    /// Where steps are left.
    pub fn trim(&mut self, completed: &impl Completed) {
        assert!(self.steps.is_empty(), "STEPWISE: all steps were applied");
        for at in 0..self.chunks.len() {
            let (id, chunk) = (ChunkId(at as u32), &self.chunks[at]);
            let is_idle = chunk.is_there && chunk.pins == 0;
            if is_idle && self.last_use(chunk).all(|frontier| frontier.is_over(completed)) {
                self.steps.extend(chunk.places.iter().map(|&at| BackingStep::Unmap { chunk: id, at }));
                self.steps.push_back(BackingStep::Destroy { chunk: id });
            }
        }
    }

    /// What graph memory takes now.
    pub fn statistics(&self) -> BackingStatistics {
        self.statistics
    }

    /// Sets the high mark of used bytes to the current value.
    pub fn reset_used_high(&mut self) {
        self.statistics.used_high = self.statistics.used;
    }

    /// Sets the high mark of reserved bytes to the current value.
    pub fn reset_reserved_high(&mut self) {
        self.statistics.reserved_high = self.statistics.reserved;
    }

    /// Whether some graph that is there has the chunk mapped.
    fn is_used(&self, chunk: ChunkId) -> bool {
        self.chunks[chunk.index()].places.iter().any(|at| !self.spare.contains(at))
    }

    /// After a change to the places of a chunk.
    fn count_used(&mut self, chunk: ChunkId, was_used: bool) {
        match (was_used, self.is_used(chunk)) {
            (false, true) => {
                self.statistics.used += self.granularity;
                self.statistics.used_high = self.statistics.used_high.max(self.statistics.used);
            }
            (true, false) => self.statistics.used -= self.granularity,
            _ => {}
        }
    }

    /// The granules that `range` lies in.
    fn granules(&self, range: Range) -> impl Iterator<Item = u64> + use<> {
        let granularity = self.granularity;
        (range.start / granularity..range.end().div_ceil(granularity)).map(move |granule| granule * granularity)
    }

    fn tenure(&mut self, arena: ArenaKey) -> &mut Tenure {
        self.arenas.get_mut(&arena).expect("the arena is in use")
    }

    /// What must come before the next use of a chunk: its tenant's launch, and the frees since.
    fn last_use<'a>(&'a self, chunk: &'a Chunk) -> impl Iterator<Item = &'a Frontier> {
        let launch = match &chunk.tenant {
            Tenant::Arena(arena) => &self.arenas[arena].last,
            Tenant::Past(after) => after,
        };
        [launch, &chunk.also].into_iter()
    }
}
