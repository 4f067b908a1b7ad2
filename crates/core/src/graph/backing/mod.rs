//! Graph memory of a device: the physical chunks under the addresses of launches.
//!
//! A graph and its copies have addresses of their own, an *arena*, but no memory. A launch needs both. All chunks have
//! the size of one granule, so that each fits everywhere. A chunk that is mapped in one arena stays there, and may be
//! mapped in another one as well: two launches may use one chunk if one of them is ordered before the other. What is
//! reserved is then what the largest of them needs, not the sum. An unfreed allocation keeps its chunks to itself.
//! Launches that use one arena come one after the other; the caller ensures it. What is mapped at the addresses of a
//! retired arena stays mapped ([`retire`](Backing::retire)), for the arena that gets those addresses next.
//!
//! The simple version examines the chunk of each granule at each launch. Departure: a chunk remembers its last user
//! (its *tenant*), and an arena that is still the tenant of all its chunks is launched without looking at any of them.
//! (Chunks of one size cost one map call for each granule, once; larger ones would not fit each other's places.)
//!
//! Steps of a launch: call [`bind`](Backing::bind), again after a wait if it is blocked; take each
//! [`next_step`](Backing::next_step), followed by [`applied`](Backing::applied) or [`failed`](Backing::failed); make
//! the launching stream wait for the points that `bind` returned; launch; call [`launched`](Backing::launched) with its
//! point. An upload ends with [`uploaded`](Backing::uploaded).
//!
//! Depends on points by [`Knows`](crate::order::Knows) and [`Completed`], on graphs by their addresses only, and on no
//! driver. Never waits: the caller does, while it holds no locks.
//!
//! Invariants, checked by [`audit`](Backing::audit):
//! * LEGAL: a chunk is used by a launch only if its last use is ordered before the launch, or has completed.
//! * KEPT: a chunk under an unfreed allocation is used by no other arena, and is not unmapped there.
//! * STEPWISE: the state changes when a step has succeeded. A step that fails loses nothing.
//! * COUNTED: `strange`, `pins` and the statistics are what a count finds.
//! * SPARE: a granule is spare if it has memory and no owner. Nothing is unfreed there then.

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

/// The addresses of a graph and its copies, numbered by their owner. A number is never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ArenaKey(pub u64);

/// The error that a launch cannot be bound yet, because these points still use addresses that are to be unmapped. Wait
/// until they have completed, holding no lock that their work may want, and bind again. No memory has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocked {
    /// The points.
    pub after: Frontier,
    /// `Some` if the caller may give up this wait: when it binds again, the launch waits on the device for memory that
    /// others use. The value is how often in a row the host has waited in vain.
    pub in_vain: Option<u32>,
}

/// The memory of graphs, in bytes (CUDA: `cudaGraphMemAttributeType`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackingStatistics {
    /// Physical memory mapped under the addresses of at least one existing graph. A free does not change it; a trim
    /// does.
    pub used: u64,
    /// The most bytes used since the last reset.
    pub used_high: u64,
    /// All physical memory held for graphs.
    pub reserved: u64,
    /// The most bytes reserved since the last reset.
    pub reserved_high: u64,
}

/// The last user of a chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Tenant {
    /// The last launch in an arena that is in use.
    Arena(ArenaKey),
    /// Launches up to these points; no arena is the tenant.
    Past(Frontier),
}

#[derive(Clone, Debug)]
struct Chunk {
    is_there: bool,
    /// The granules at which it is mapped.
    places: SmallVec<[u64; 2]>,
    tenant: Tenant,
    /// Other uses that the next one must come after: frees of allocations on it, and earlier tenants until the present
    /// one has launched.
    also: Frontier,
    /// The number of unfreed allocations on it.
    pins: u32,
    /// The bind that took it last.
    taken: u64,
}

/// A granule that has memory.
#[derive(Clone, Debug)]
struct Page {
    chunk: ChunkId,
    /// Its owner; `None` if it is spare.
    arena: Option<ArenaKey>,
    /// The number of unfreed allocations on it.
    pins: u32,
}

/// An arena that is in use.
#[derive(Clone, Debug)]
struct Tenure {
    /// The granules that need memory, sorted, each with `true` if an output is in it.
    granules: Vec<(u64, bool)>,
    /// Its last launch or upload.
    last: Frontier,
    /// The frees of its outputs since then.
    freed: Frontier,
    /// The number of its granules that have no chunk of which it is the tenant.
    strange: usize,
    /// Its unfreed allocations.
    unfreed: Vec<Range>,
    /// `true` if it got chunks since its last launch.
    is_new: bool,
    /// The number of its launches in a row that were made to wait for memory that others use.
    delays: u32,
}

/// The graph memory of one device: see the module.
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
    /// The number of changes since the last audit, in builds with debug assertions.
    unaudited: usize,
}

impl Backing {
    /// Makes graph memory without chunks, for a device with this mapping granularity (a power of two, in bytes).
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

    /// Records a new instance with addresses in `arena`: from now on launches in the arena need memory there, too.
    /// `cover` is [`Exec::cover`](super::Exec::cover), as far as it is in the arena.
    ///
    /// # Panics
    /// If steps are left.
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
        // Outputs first, so that the entry that is kept for each granule is an output's if there is one.
        tenure.granules.sort_unstable_by_key(|&(at, is_output)| (at, !is_output));
        tenure.granules.dedup_by_key(|(at, _)| *at);
        tenure.strange += tenure.granules.len() - known;
    }

    /// Returns the unfreed allocations in an arena. A launch there must not have other memory at the same addresses.
    pub fn unfreed(&self, arena: ArenaKey) -> &[Range] {
        self.arenas.get(&arena).map_or(&[], |tenure| &tenure.unfreed)
    }

    /// Records the launch for which [`bind`](Self::bind) made the memory ready, at `point` of the launching stream.
    /// `outputs` are the addresses of its unfreed allocations, except where an earlier launch's allocation at the same
    /// addresses was unfreed until this launch: nothing changes there.
    ///
    /// # Panics
    /// If an arena is unknown or steps are left.
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

    /// Records an upload at `point`: the arenas keep the memory that [`bind`](Self::bind) made ready, for a later
    /// launch.
    ///
    /// # Panics
    /// If an arena is unknown or steps are left.
    pub fn uploaded(&mut self, arenas: &[ArenaKey], point: Point) {
        assert!(self.steps.is_empty(), "STEPWISE: all steps were applied");
        for &arena in arenas {
            let tenure = self.tenure(arena);
            debug_assert_eq!(tenure.strange, 0, "bind made the arena the tenant of all its chunks");
            tenure.last = point.into();
            tenure.freed = Frontier::EMPTY;
            if std::mem::take(&mut tenure.is_new) {
                // The uses before the chunks were taken come before this launch, or had completed.
                let tenure = &self.arenas[&arena];
                let chunks = tenure.granules.iter().map(|(at, _)| self.pages[at].chunk);
                chunks.for_each(|chunk| self.chunks[chunk.index()].also = Frontier::EMPTY);
            }
        }
        self.audit_in_turn();
    }

    /// Records that an unfreed allocation was freed, after these points. `range` is as given to
    /// [`launched`](Self::launched).
    ///
    /// # Panics
    /// If there is no such allocation.
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

    /// Removes an arena. All work that used its addresses has completed, and its unfreed allocations will not be freed
    /// any more. The mappings stay, for the arena that gets the addresses next, and the chunks may serve others, until
    /// a [`trim`](Self::trim).
    ///
    /// # Panics
    /// If steps are left.
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

    /// Prepares these addresses, which no arena has, to be given back. Returns `true` if nothing is mapped there any
    /// more. Otherwise it plans steps: take them and call again.
    ///
    /// # Panics
    /// If steps are left.
    pub fn vacate(&mut self, range: Range) -> bool {
        assert!(self.steps.is_empty(), "STEPWISE: all steps were applied");
        let spare = self.spare.range(range.start..range.end());
        self.steps.extend(spare.map(|&at| BackingStep::Unmap { chunk: self.pages[&at].chunk, at }));
        self.steps.is_empty()
    }

    /// Returns `true` if nothing is mapped at these addresses, which no arena has.
    pub fn is_vacant(&self, range: Range) -> bool {
        self.spare.range(range.start..range.end()).next().is_none()
    }

    /// Plans to give back all memory that is not needed any more: chunks whose last use has completed and on which
    /// nothing is unfreed, also those of arenas in use (CUDA: `cudaDeviceGraphMemTrim`).
    ///
    /// # Panics
    /// If steps are left.
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

    /// Returns the current memory of graphs.
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

    /// Returns `true` if an existing graph has the chunk mapped.
    fn is_used(&self, chunk: ChunkId) -> bool {
        self.chunks[chunk.index()].places.iter().any(|at| !self.spare.contains(at))
    }

    /// Updates the statistics after a change to the places of a chunk.
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

    /// Returns the granules that `range` overlaps.
    fn granules(&self, range: Range) -> impl Iterator<Item = u64> + use<> {
        let granularity = self.granularity;
        (range.start / granularity..range.end().div_ceil(granularity)).map(move |granule| granule * granularity)
    }

    fn tenure(&mut self, arena: ArenaKey) -> &mut Tenure {
        self.arenas.get_mut(&arena).expect("the arena is in use")
    }

    /// Returns what must come before the next use of a chunk: its tenant's launch, and the frees since.
    fn last_use<'a>(&'a self, chunk: &'a Chunk) -> impl Iterator<Item = &'a Frontier> {
        let launch = match &chunk.tenant {
            Tenant::Arena(arena) => &self.arenas[arena].last,
            Tenant::Past(after) => after,
        };
        [launch, &chunk.also].into_iter()
    }
}
