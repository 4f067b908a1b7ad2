//! A device with streams, and a list of every use of a chunk or an address. The promises of graph memory are checked
//! against that list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millpond_core::graph::{ArenaKey, Backing, BackingStep};
use millpond_core::ids::{ChainIndex, ChunkId, Point};
use millpond_core::order::{Chain, Completed, Knows, Snapshot};
use millpond_core::pool::Frontier;
use millpond_core::units::{MIB, Range};

pub(crate) const GRANULE: u64 = 2 * MIB;

/// The work that the host knows to have completed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Over(pub(crate) Vec<Snapshot>);

impl Completed for Over {
    fn is_over(&self, point: Point) -> bool {
        self.0.iter().any(|snapshot| snapshot.covers(point))
    }
}

/// A device with streams that remembers every use.
pub(crate) struct World {
    pub(crate) backing: Backing,
    pub(crate) streams: Vec<Chain>,
    pub(crate) over: Over,
    snapshots: BTreeMap<Point, Snapshot>,
    /// Address -> chunk, as the steps left it.
    pub(crate) mapped: BTreeMap<u64, ChunkId>,
    there: BTreeSet<ChunkId>,
    /// All uses of each chunk and of each address.
    chunk_uses: BTreeMap<ChunkId, Vec<Point>>,
    address_uses: BTreeMap<u64, Vec<Point>>,
    pub(crate) last: BTreeMap<ArenaKey, Point>,
    /// The unfreed allocations: their addresses, and the launch that allocated them.
    pub(crate) unfreed: Vec<(ArenaKey, Range, Point)>,
    pub(crate) steps: usize,
}

impl World {
    pub(crate) fn new(streams: u32) -> Self {
        World {
            backing: Backing::new(GRANULE),
            streams: (0..streams).map(|chain| Chain::new(ChainIndex(chain), 0, Arc::default())).collect(),
            over: Over::default(),
            snapshots: BTreeMap::new(),
            mapped: BTreeMap::new(),
            there: BTreeSet::new(),
            chunk_uses: BTreeMap::new(),
            address_uses: BTreeMap::new(),
            last: BTreeMap::new(),
            unfreed: Vec::new(),
            steps: 0,
        }
    }

    pub(crate) fn submit(&mut self, stream: usize) -> Point {
        let point = self.streams[stream].submit();
        self.snapshots.insert(point, self.streams[stream].snapshot());
        point
    }

    pub(crate) fn wait(&mut self, stream: usize, point: Point) {
        let snapshot = self.snapshots[&point].clone();
        self.streams[stream].wait(&snapshot);
    }

    pub(crate) fn join(&mut self, stream: usize, other: usize) {
        let snapshot = self.streams[other].snapshot();
        self.streams[stream].wait(&snapshot);
    }

    pub(crate) fn synchronize(&mut self, stream: usize) {
        self.over.0.push(self.streams[stream].snapshot());
    }

    /// Takes the steps, but the `fail`-th one fails. Returns `true` if none failed.
    pub(crate) fn step(&mut self, fail: Option<usize>) -> bool {
        for number in 0.. {
            let Some(step) = self.backing.next_step().cloned() else { break };
            self.steps += 1;
            if Some(number) == fail {
                self.backing.failed();
                self.backing.audit();
                return false;
            }
            match step {
                BackingStep::Create { chunk } => {
                    assert!(self.there.insert(chunk), "created twice");
                    self.chunk_uses.insert(chunk, Vec::new());
                }
                BackingStep::Map { chunk, at, .. } => {
                    assert!(self.there.contains(&chunk));
                    assert_eq!(self.mapped.insert(at, chunk), None, "something is mapped there");
                    self.address_uses.insert(at, Vec::new());
                }
                BackingStep::Unmap { chunk, at } => {
                    assert_eq!(self.mapped.remove(&at), Some(chunk));
                    assert!(self.address_uses[&at].iter().all(|point| self.over.is_over(*point)), "still in use");
                    assert!(!self.is_pinned(at), "KEPT: unmapped under an unfreed allocation");
                }
                BackingStep::Destroy { chunk } => {
                    assert!(!self.mapped.values().any(|mapped| *mapped == chunk), "destroyed while mapped");
                    assert!(self.there.remove(&chunk));
                }
            }
            self.backing.applied();
        }
        self.backing.audit();
        true
    }

    pub(crate) fn is_pinned(&self, at: u64) -> bool {
        self.unfreed.iter().any(|(_, range, _)| range.overlaps(Range::new(at, GRANULE)))
    }

    /// Plans the memory. Waits if it is blocked.
    pub(crate) fn bind(&mut self, arenas: &[ArenaKey], stream: usize) -> Frontier {
        loop {
            match self.backing.bind(arenas, &self.streams[stream], &self.over) {
                Ok(waits) => return waits,
                Err(blocked) => {
                    self.backing.audit();
                    let snapshots = blocked.after.points().map(|point| self.snapshots[&point].clone());
                    self.over.0.extend(snapshots);
                }
            }
        }
    }

    /// Retires the arena of a graph that was destroyed.
    pub(crate) fn retire(&mut self, arena: ArenaKey) {
        (0..self.streams.len()).for_each(|stream| self.synchronize(stream));
        let mapped = self.mapped.len();
        self.backing.retire(arena);
        self.backing.audit();
        assert_eq!((self.backing.next_step(), self.mapped.len()), (None, mapped), "what is mapped stays");
    }

    /// Gives the addresses of an arena back.
    pub(crate) fn close(&mut self, arena: ArenaKey, range: Range) {
        self.retire(arena);
        while !self.backing.vacate(range) {
            self.step(None);
        }
        self.backing.audit();
        assert!(self.backing.is_vacant(range) && !self.mapped.keys().any(|at| range.contains(*at)));
    }

    /// Launches as a caller does, and checks the promises of LEGAL and KEPT against the lists.
    pub(crate) fn launch(
        &mut self,
        exec: ArenaKey,
        cover: &[Range],
        outputs: &[Range],
        stream: usize,
        fail: Option<usize>,
    ) -> bool {
        if self.backing.unfreed(exec).iter().any(|unfreed| cover.iter().any(|own| own.overlaps(*unfreed))) {
            assert!(cover.iter().flat_map(|own| granules(&[*own])).any(|at| self.is_pinned(at)));
            return false;
        }
        if let Some(&last) = self.last.get(&exec) {
            self.wait(stream, last);
        }
        let waits = self.bind(&[exec], stream);
        if !self.step(fail) {
            return false;
        }
        for point in waits.points() {
            self.wait(stream, point);
        }
        let pinned: BTreeSet<ChunkId> =
            self.mapped.iter().filter(|(at, _)| self.is_pinned(**at)).map(|(_, chunk)| *chunk).collect();
        let mut used = BTreeSet::new();
        for at in granules(cover) {
            let chunk = self.mapped[&at];
            assert!(used.insert(chunk), "one chunk at two places of one launch");
            assert!(!pinned.contains(&chunk), "KEPT");
            let knows = |point: &Point| self.streams[stream].covers(*point) || self.over.is_over(*point);
            assert!(self.chunk_uses[&chunk].iter().all(knows), "LEGAL: {chunk} at {at:#x}");
            assert!(self.address_uses[&at].iter().all(knows), "an address is still in use");
        }
        let point = self.submit(stream);
        self.touch(cover, point);
        self.last.insert(exec, point);
        self.backing.launched(&[exec], point, outputs.iter().copied());
        self.backing.audit();
        self.unfreed.extend(outputs.iter().map(|range| (exec, *range, point)));
        true
    }

    pub(crate) fn touch(&mut self, ranges: &[Range], point: Point) {
        for at in granules(ranges) {
            let chunk = self.mapped[&at];
            self.chunk_uses.get_mut(&chunk).unwrap().push(point);
            self.address_uses.get_mut(&at).unwrap().push(point);
        }
    }

    pub(crate) fn free(&mut self, number: usize, stream: usize) {
        let (_, range, launch) = self.unfreed.swap_remove(number);
        self.wait(stream, launch);
        let point = self.submit(stream);
        self.touch(&[range], point);
        self.backing.freed(range, point);
        self.backing.audit();
    }

    pub(crate) fn trim(&mut self) {
        self.backing.trim(&self.over);
        self.step(None);
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.backing.statistics().reserved
    }
}

pub(crate) fn granules(ranges: &[Range]) -> BTreeSet<u64> {
    let of = |range: &Range| (range.start / GRANULE..range.end().div_ceil(GRANULE)).map(|it| it * GRANULE);
    ranges.iter().flat_map(of).collect()
}
