//! What numbers of memory lead to, and the newest use of what lives beside it: what a stream does again and again to
//! the same memory is judged and noted in that one line of memory.
//!
//! A use *repeats* the one before where the same stream does the same again and has learned nothing in between: then
//! whatever held for that one holds for this one, which takes its place. Such a use is noted in its line only; the
//! history is *behind* until the use is written back to it. Invariant **written-back**: whoever looks at a history
//! finds it not behind (`Lives::at` asserts that); whoever changes it ends its line; whoever makes a number lead
//! elsewhere is handed what the history lacks.
//!
//! The simple version is a map of names. Here small numbers, which nearly all are, are places in an array. Knows no
//! verdict: what does not repeat anything is for the history to judge.

use rustc_hash::FxHashMap;

use crate::graph::GraphAllocId;
use crate::ids::{AllocId, ChainIndex, GraphId, Point, Seq, StreamId};
use crate::life::{Site, Use};
use crate::op::{Access, Act, Memory, Place};

/// A life by its place in the table; recycled.
pub(super) type LifeId = u32;

/// Numbers below this are looked up in an array: recorders give small numbers.
const DENSE: usize = 1 << 18;

/// Stands for no place in the list of those that are behind.
const NONE: u32 = u32::MAX;

/// What a name leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    /// A life.
    Life(LifeId),
    /// Another process's life, held.
    Lease(LifeId),
    /// The memory of an alloc node.
    Node {
        /// The graph.
        graph: GraphId,
        /// Which of its allocations.
        alloc: GraphAllocId,
    },
    /// Nothing any more: the number of the free, counted up.
    Freed(u64),
    /// Nothing: what would have made it was refused.
    Void,
}

/// A life, and its newest use where that may be repeated.
#[derive(Clone, Copy, Debug)]
struct Newest {
    life: LifeId,
    /// Whether there is one that may be repeated.
    is_there: bool,
    /// The birth counts: any use by its stream repeats that.
    act: Act,
    /// Where the number is listed among those whose histories are behind, if it is.
    behind: u32,
    chain: ChainIndex,
    stream: StreamId,
    seq: Seq,
    op: u64,
    place: Place,
}

impl Newest {
    fn none(life: LifeId) -> Self {
        let (chain, stream, seq, op, place) = (ChainIndex(0), StreamId(0), 0, 0, Place::Unknown);
        Self { life, is_there: false, act: Act::Allocate, behind: NONE, chain, stream, seq, op, place }
    }

    fn newest(&self) -> Use {
        let Newest { chain, seq, act, stream, op, place, .. } = *self;
        Use { point: Point { chain, seq }, site: Site { act, stream, op, place } }
    }
}

/// What a number leads to: see [`Named`].
#[derive(Clone, Copy, Debug)]
enum Leads {
    Life(Newest),
    Lease(LifeId),
    Node(GraphId, GraphAllocId),
    Freed(u64),
    Void,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Entry {
    generation: u64,
    leads: Leads,
}

const _: () = assert!(size_of::<Option<Entry>>() == 64, "a line of memory");

impl Entry {
    #[inline]
    fn named(&self) -> Named {
        match self.leads {
            Leads::Life(Newest { life, .. }) => Named::Life(life),
            Leads::Lease(life) => Named::Lease(life),
            Leads::Node(graph, alloc) => Named::Node { graph, alloc },
            Leads::Freed(number) => Named::Freed(number),
            Leads::Void => Named::Void,
        }
    }
}

/// What looking a name up says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// What it leads to.
    Named(Named),
    /// The number has a later life by now.
    Stale,
    /// Nothing is known by this name: never made, or freed long ago.
    Unknown,
}

/// The lines of all numbers, and whose histories are behind.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    dense: Vec<Option<Entry>>,
    sparse: FxHashMap<AllocId, Entry>,
    behind: Vec<AllocId>,
}

impl Numbers {
    #[inline]
    fn entry(&self, id: AllocId) -> Option<&Entry> {
        match self.dense.get(id.index()) {
            Some(entry) => entry.as_ref(),
            None => self.sparse.get(&id),
        }
    }

    /// What a number leads to, where that is a life.
    #[inline]
    fn newest_mut(&mut self, id: AllocId) -> Option<&mut Newest> {
        let entry = match self.dense.get_mut(id.index()) {
            Some(entry) => entry.as_mut(),
            None => self.sparse.get_mut(&id),
        };
        match entry {
            Some(Entry { leads: Leads::Life(newest), .. }) => Some(newest),
            _ => None,
        }
    }

    /// What a name leads to.
    #[inline]
    pub(super) fn find(&self, memory: Memory) -> Found {
        match self.entry(memory.id) {
            Some(entry) if entry.generation == memory.generation => Found::Named(entry.named()),
            Some(entry) if entry.generation > memory.generation => Found::Stale,
            _ => Found::Unknown,
        }
    }

    /// The life that a number leads to, whatever its generation.
    pub(super) fn life_of(&self, id: AllocId) -> Option<LifeId> {
        match self.entry(id)?.named() {
            Named::Life(life) | Named::Lease(life) => Some(life),
            _ => None,
        }
    }

    /// Makes a name lead somewhere; what the history lacks that its number led to.
    #[must_use]
    pub(super) fn put(&mut self, memory: Memory, named: Named) -> Option<(LifeId, Use)> {
        let lacking = self.take(memory.id);
        let leads = match named {
            Named::Life(life) => Leads::Life(Newest::none(life)),
            Named::Lease(life) => Leads::Lease(life),
            Named::Node { graph, alloc } => Leads::Node(graph, alloc),
            Named::Freed(number) => Leads::Freed(number),
            Named::Void => Leads::Void,
        };
        let (at, entry) = (memory.id.index(), Entry { generation: memory.generation, leads });
        if at >= DENSE {
            self.sparse.insert(memory.id, entry);
            return lacking;
        }
        if at >= self.dense.len() {
            self.dense.resize((at + 1).next_power_of_two(), None);
        }
        self.dense[at] = Some(entry);
        lacking
    }

    /// A number leads nowhere; what the history lacks that it led to.
    #[must_use]
    pub(super) fn remove(&mut self, id: AllocId) -> Option<(LifeId, Use)> {
        let lacking = self.take(id);
        match self.dense.get_mut(id.index()) {
            Some(entry) => *entry = None,
            None => drop(self.sparse.remove(&id)),
        }
        lacking
    }

    /// Whether an access of a stream, that learned something last at `learned`, repeats what it did before.
    #[inline]
    pub(super) fn is_repeated(&self, access: &Access, chain: ChainIndex, learned: Seq) -> bool {
        let Access { memory, act, part } = access;
        match self.entry(memory.id) {
            Some(Entry { generation, leads: Leads::Life(newest) }) => {
                *generation == memory.generation
                    && newest.is_there
                    && newest.chain == chain
                    && newest.seq >= learned
                    && (newest.act == *act || newest.act == Act::Allocate)
                    && part.is_whole()
            }
            _ => false,
        }
    }

    /// Notes a use that repeats the one before.
    #[inline]
    pub(super) fn repeat(&mut self, id: AllocId, Use { point, site }: Use) {
        let next = self.behind.len() as u32;
        let Some(newest) = self.newest_mut(id) else { return };
        (newest.seq, newest.op, newest.place, newest.act, newest.stream) =
            (point.seq, site.op, site.place, site.act, site.stream);
        if newest.behind == NONE {
            newest.behind = next;
            self.behind.push(id);
        }
    }

    /// The history of a life has this as its newest use, or begins with it: it may be repeated by the life's name.
    #[inline]
    pub(super) fn note(&mut self, memory: Memory, life: LifeId, Use { point, site }: Use) {
        if !matches!(self.find(memory), Found::Named(Named::Life(named)) if named == life) {
            return;
        }
        let Some(newest) = self.newest_mut(memory.id) else { return };
        debug_assert!(newest.behind == NONE, "what is behind is written back first");
        let (Point { chain, seq }, Site { act, stream, op, place }) = (point, site);
        *newest = Newest { life, is_there: true, act, behind: NONE, chain, stream, seq, op, place };
    }

    /// The history of a life changes: what it lacks is handed out, and nothing repeats what was before.
    #[inline]
    pub(super) fn end(&mut self, id: AllocId, life: LifeId) -> Option<Use> {
        // One that is behind is there.
        let newest = self.newest_mut(id).filter(|newest| newest.life == life && newest.is_there)?;
        newest.is_there = false;
        if newest.behind == NONE { None } else { self.take(id).map(|lacking| lacking.1) }
    }

    /// What the history of the life lacks that a number leads to, if it is behind.
    pub(super) fn take(&mut self, id: AllocId) -> Option<(LifeId, Use)> {
        let newest = self.newest_mut(id).filter(|newest| newest.behind != NONE)?;
        let (at, lacking) = (std::mem::replace(&mut newest.behind, NONE), (newest.life, newest.newest()));
        self.behind.swap_remove(at as usize);
        if let Some(moved) = self.behind.get(at as usize).copied()
            && let Some(newest) = self.newest_mut(moved)
        {
            newest.behind = at;
        }
        Some(lacking)
    }

    /// The number of one whose history is behind.
    #[inline]
    pub(super) fn any_behind(&self) -> Option<AllocId> {
        self.behind.last().copied()
    }

    /// Whether the history of the life is behind that a number leads to.
    pub(super) fn is_behind(&self, id: AllocId, life: LifeId) -> bool {
        matches!(self.entry(id), Some(Entry { leads: Leads::Life(newest), .. })
            if newest.life == life && newest.behind != NONE)
    }

    /// Where it is kept what the first number leads to, and how far behind that what each next one does.
    #[inline]
    pub(super) fn places(&self) -> (*const u8, usize) {
        (self.dense.as_ptr().cast(), size_of::<Option<Entry>>())
    }

    /// How many numbers there is room for.
    pub(super) fn len(&self) -> usize {
        self.dense.len() + self.sparse.len()
    }
}
