//! Graph memory of a device: which physical chunks lie under which launch.
//!
//! An instance has addresses but no memory; a launch needs both. All chunks have the size of one granule, so that any
//! serves anywhere. A chunk mapped under one instance's address stays there, and may be mapped under another's as well:
//! two launches may use one chunk where one of them is ordered before the other, and then what is reserved is what the
//! largest of them needs, not the sum. An unfreed allocation keeps its chunks to itself.
//!
//! The simple version looks at each granule's chunk at each launch. Departure: a chunk remembers who used it last (its
//! *tenant*), and an instance that is still the tenant of all its chunks launches without looking at any of them.
//! (Chunks of one size cost a map call for each granule once; larger ones would not fit each other's places.)
//!
//! How a launch goes: [`bind`](Backing::bind); carry out [`next_step`](Backing::next_step)s one by one, each followed
//! by [`applied`](Backing::applied) or [`failed`](Backing::failed); make the launching stream wait for the points that
//! `bind` returned; launch; then [`launched`](Backing::launched) with its point. An upload ends with
//! [`uploaded`](Backing::uploaded).
//!
//! Knows points by [`Knows`] and [`Completed`]; nothing of graphs but their addresses, nothing of drivers.
//!
//! Invariants, re-derived by [`audit`](Backing::audit):
//! * LEGAL: a chunk serves a launch only if its last use is ordered before the launch, or over.
//! * KEPT: a chunk under an unfreed allocation serves nobody else, and is not unmapped there.
//! * STEPWISE: the state changes when a step has succeeded. A step that fails loses nothing.
//! * COUNTED: `strange`, `pins`, and the statistics are what a count finds.

mod audit;
mod bind;
mod steps;

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::ids::{ChunkId, Point};
use crate::order::Completed;
use crate::pool::Frontier;
use crate::units::Range;

pub use steps::BackingStep;

/// An instance, as its owner counts them; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExecKey(pub u64);

/// Why an instance got no memory, or none yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Another instance that lives has some of these addresses: of the same graph, or of a copy.
    #[error("another instance with the same addresses lives: destroy it first, or use symbolic addresses")]
    AddressesTaken(ExecKey),
    /// An allocation of an earlier launch lies at these addresses and is not freed.
    #[error("an allocation at {at:#x} is not freed")]
    Unfreed {
        /// The granule where it lies.
        at: u64,
    },
}

/// What graph memory takes, in bytes (CUDA: `cudaGraphMemAttributeType`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackingStatistics {
    /// Physical memory mapped under at least one graph's addresses. A free does not change it, a trim does.
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
    /// The last launch of an instance that lives.
    Exec(ExecKey),
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
    /// Unfreed allocations on it.
    pins: u32,
    /// Whose addresses these are; none once the instance is gone.
    exec: Option<ExecKey>,
    /// When the instance is gone: the last uses of the address.
    after: Frontier,
}

/// An instance that lives.
#[derive(Clone, Debug)]
struct Tenure {
    /// Its granules, and whether outputs lie there.
    granules: Vec<(u64, bool)>,
    /// Its last launch or upload.
    last: Frontier,
    /// Frees of its outputs since.
    freed: Frontier,
    /// Its granules without a chunk of which it is the tenant and which nobody pins.
    strange: usize,
    /// Its pages with unfreed allocations.
    pinned: usize,
    /// Whether it got chunks since its last launch.
    is_new: bool,
}

/// Graph memory of one device: see the module.
#[derive(Clone, Debug)]
pub struct Backing {
    granularity: u64,
    chunks: Vec<Chunk>,
    vacant: Vec<ChunkId>,
    pages: FxHashMap<u64, Page>,
    execs: FxHashMap<ExecKey, Tenure>,
    steps: VecDeque<BackingStep>,
    /// Who the steps are for.
    target: Option<ExecKey>,
    binds: u64,
    statistics: BackingStatistics,
}

impl Backing {
    /// No memory, on a device of this mapping granularity (a power of two, in bytes).
    pub fn new(granularity: u64) -> Self {
        Self {
            granularity,
            chunks: Vec::new(),
            vacant: Vec::new(),
            pages: FxHashMap::default(),
            execs: FxHashMap::default(),
            steps: VecDeque::new(),
            target: None,
            binds: 0,
            statistics: BackingStatistics::default(),
        }
    }

    /// An instance begins to live. `cover` is [`Exec::cover`](super::Exec::cover).
    ///
    /// # Errors
    /// [`Refused::AddressesTaken`].
    ///
    /// # Panics
    /// Where the key is in use.
    pub fn enroll(&mut self, exec: ExecKey, cover: &[(Range, bool)]) -> Result<(), Refused> {
        assert!(!self.execs.contains_key(&exec), "a key is used once");
        let mut granules = Vec::new();
        for &(range, is_output) in cover {
            let starts = (range.start..range.end()).step_by(self.granularity as usize);
            granules.extend(starts.map(|at| (at, is_output)));
        }
        granules.sort_unstable();
        for (other, tenure) in &self.execs {
            let taken = |at: &(u64, bool)| tenure.granules.binary_search_by_key(&at.0, |it| it.0).is_ok();
            let (few, many) =
                (granules.first().zip(granules.last()), tenure.granules.first().zip(tenure.granules.last()));
            let meets = few.zip(many).is_some_and(|((a, b), (c, d))| a.0 <= d.0 && c.0 <= b.0);
            if meets && granules.iter().any(taken) {
                return Err(Refused::AddressesTaken(*other));
            }
        }
        let mut tenure = Tenure {
            strange: granules.len(),
            granules,
            last: Frontier::EMPTY,
            freed: Frontier::EMPTY,
            pinned: 0,
            is_new: false,
        };
        self.adopt(exec, &mut tenure);
        self.execs.insert(exec, tenure);
        Ok(())
    }

    /// Pages that an instance before left at the same addresses become this one's. Two of them may be on one chunk
    /// (they were different instances'): only one is adopted, an unfreed one first; the other gives way to the first
    /// launch.
    fn adopt(&mut self, exec: ExecKey, tenure: &mut Tenure) {
        let mut adopted = FxHashSet::default();
        for is_pinned in [true, false] {
            for (at, _) in &tenure.granules {
                let Some(page) = self.pages.get_mut(at).filter(|page| (page.pins > 0) == is_pinned) else { continue };
                tenure.freed.join(&page.after);
                if adopted.insert(page.chunk) {
                    page.exec = Some(exec);
                    tenure.pinned += usize::from(is_pinned);
                }
            }
        }
    }

    /// The launch that [`bind`](Self::bind) made ready was made, at `point` of the launching stream. `outputs` are the
    /// addresses of its unfreed allocations.
    ///
    /// # Panics
    /// Where the instance does not live or steps are left.
    pub fn launched(&mut self, exec: ExecKey, point: Point, outputs: impl IntoIterator<Item = Range>) {
        self.uploaded(exec, point);
        for range in outputs {
            for at in self.granules(range) {
                let page = self.pages.get_mut(&at).expect("bind gave every granule a page");
                page.pins += 1;
                let first = page.pins == 1;
                self.chunks[page.chunk.index()].pins += 1;
                if first {
                    self.chunks[page.chunk.index()].also = Frontier::EMPTY;
                    let tenure = self.tenure(exec);
                    tenure.pinned += 1;
                    tenure.strange += 1;
                }
            }
        }
    }

    /// What [`bind`](Self::bind) made ready stays the instance's for a launch to come: `point` is the upload's.
    ///
    /// # Panics
    /// Where the instance does not live or steps are left.
    pub fn uploaded(&mut self, exec: ExecKey, point: Point) {
        assert!(self.steps.is_empty(), "all steps were applied");
        let tenure = self.tenure(exec);
        debug_assert_eq!(tenure.strange, 0, "bind made the instance the tenant of all its chunks");
        tenure.last = point.into();
        tenure.freed = Frontier::EMPTY;
        if std::mem::take(&mut tenure.is_new) {
            // What came before the chunks were taken comes before this launch, or was over.
            let tenure = &self.execs[&exec];
            let chunks = tenure.granules.iter().map(|(at, _)| self.pages[at].chunk);
            chunks.for_each(|chunk| self.chunks[chunk.index()].also = Frontier::EMPTY);
        }
    }

    /// An unfreed allocation was freed, after these points. `range` is what [`launched`](Self::launched) was told.
    ///
    /// # Panics
    /// Where no unfreed allocation lies there.
    pub fn freed(&mut self, range: Range, after: impl Into<Frontier>) {
        let after = after.into();
        for at in self.granules(range) {
            let page = self.pages.get_mut(&at).filter(|page| page.pins > 0).expect("an unfreed allocation lies there");
            page.pins -= 1;
            let last = page.pins == 0;
            let chunk = &mut self.chunks[page.chunk.index()];
            chunk.pins -= 1;
            chunk.also.join(&after);
            match page.exec {
                None => page.after.join(&after),
                Some(exec) => {
                    let is_tenant = chunk.tenant == Tenant::Exec(exec);
                    let tenure = self.tenure(exec);
                    tenure.freed.join(&after);
                    if last {
                        tenure.pinned -= 1;
                        tenure.strange -= usize::from(is_tenant);
                    }
                }
            }
        }
    }

    /// The instance goes; its unfreed allocations stay. Its memory stays for others until a [`trim`](Self::trim), which
    /// also takes away what is still mapped at its addresses: ask [`is_vacant`](Self::is_vacant) before these are given
    /// back.
    ///
    /// # Panics
    /// Where steps are left.
    pub fn close(&mut self, exec: ExecKey) {
        assert!(self.steps.is_empty(), "all steps were applied");
        let Some(tenure) = self.execs.remove(&exec) else { return };
        let mut after = tenure.last.clone();
        after.join(&tenure.freed);
        for (at, _) in &tenure.granules {
            if let Some(page) = self.pages.get_mut(at).filter(|page| page.exec == Some(exec)) {
                page.exec = None;
                page.after.clone_from(&after);
                let chunk = &mut self.chunks[page.chunk.index()];
                if chunk.tenant == Tenant::Exec(exec) {
                    chunk.tenant = Tenant::Past(tenure.last.clone());
                }
            }
        }
    }

    /// Whether nothing is mapped in a range of addresses.
    pub fn is_vacant(&self, range: Range) -> bool {
        !self.granules(range).any(|at| self.pages.contains_key(&at))
    }

    /// Plans to give back all memory that nothing needs any more: chunks whose last use is over and on which nothing is
    /// unfreed, of instances that live, too (CUDA: `cudaDeviceGraphMemTrim`); and mappings of instances that are gone.
    ///
    /// # Panics
    /// Where steps are left.
    pub fn trim(&mut self, completed: &impl Completed) {
        assert!(self.steps.is_empty(), "all steps were applied");
        for at in 0..self.chunks.len() {
            let (id, chunk) = (ChunkId(at as u32), &self.chunks[at]);
            if !chunk.is_there {
                continue;
            }
            let is_idle = chunk.pins == 0 && self.last_use(chunk).all(|frontier| frontier.is_over(completed));
            for &at in &chunk.places {
                let page = &self.pages[&at];
                let is_left = page.exec.is_none() && page.pins == 0 && page.after.is_over(completed);
                if is_idle || is_left {
                    self.steps.push_back(BackingStep::Unmap { chunk: id, at });
                }
            }
            if is_idle {
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

    /// The granules that `range` lies in.
    fn granules(&self, range: Range) -> impl Iterator<Item = u64> + use<> {
        let granularity = self.granularity;
        (range.start / granularity..range.end().div_ceil(granularity)).map(move |granule| granule * granularity)
    }

    fn tenure(&mut self, exec: ExecKey) -> &mut Tenure {
        self.execs.get_mut(&exec).expect("the instance lives")
    }

    /// What must come before the next use of a chunk: its tenant's launch, and the frees since.
    fn last_use<'a>(&'a self, chunk: &'a Chunk) -> impl Iterator<Item = &'a Frontier> {
        let launch = match &chunk.tenant {
            Tenant::Exec(exec) => &self.execs[exec].last,
            Tenant::Past(after) => after,
        };
        [launch, &chunk.also].into_iter()
    }
}
