//! The table from numbers of memory to lifetimes. Each entry also has the newest use of its lifetime: if a stream
//! repeats a use of the same memory, the use is judged and noted in that one cache line.
//!
//! A use *repeats* the one before if the same stream does the same again and has learned nothing in between. If the one
//! before was right, so is this one, which takes its place. Such a use is noted in its entry only. The history is
//! *behind* until the use is written back to it. Invariant **written-back**: code that looks at a history finds it not
//! behind (`Lives::at` asserts that); code that changes a history first ends the repetition in its entry; code that
//! makes a number refer to something else gets the use that the history lacks.
//!
//! The simple version is a map of names. Here small numbers, which nearly all are, are indices of an array. Decides no
//! verdict: a use that repeats nothing is judged by the history.

use rustc_hash::FxHashMap;

use crate::graph::GraphAllocId;
use crate::ids::{AllocId, ChainIndex, GraphId, Point, Seq, StreamId};
use crate::life::{Site, Use};
use crate::op::{Access, Act, Memory, Place};

/// The index of a lifetime in its table. It is used again.
pub(super) type LifeId = u32;

/// Numbers below this are looked up in an array, because recorders give small numbers.
const DENSE: usize = 1 << 18;

/// Stands for no index in the list of numbers whose histories are behind.
const NONE: u32 = u32::MAX;

/// The thing that a name refers to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    /// A lifetime.
    Life(LifeId),
    /// A lifetime of another process, by a lease.
    Lease(LifeId),
    /// The memory of an alloc node.
    Node {
        /// The graph.
        graph: GraphId,
        /// The allocation in that graph.
        alloc: GraphAllocId,
    },
    /// A free, by its number in the order of frees.
    Freed(u64),
    /// Nothing: the operation that would have made it was refused.
    Void,
}

/// A lifetime, and its newest use if that may be repeated.
#[derive(Clone, Copy, Debug)]
struct Newest {
    life: LifeId,
    /// `true` if there is a use that may be repeated.
    is_there: bool,
    /// The act of that use. It can be the allocation: any use by its stream repeats that.
    act: Act,
    /// The index of the number in the list of those whose histories are behind, or [`NONE`].
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

/// The thing that a number refers to: see [`Named`].
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

/// The result of looking up a name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// The thing that it refers to.
    Named(Named),
    /// The number has a later lifetime by now.
    Stale,
    /// The name is not known: it was never given, or its memory was freed long ago.
    Unknown,
}

/// The entries of all numbers, and the numbers whose histories are behind.
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

    /// Returns the lifetime that a number refers to, with its newest use.
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

    /// Returns the thing that a name refers to.
    #[inline]
    pub(super) fn find(&self, memory: Memory) -> Found {
        match self.entry(memory.id) {
            Some(entry) if entry.generation == memory.generation => Found::Named(entry.named()),
            Some(entry) if entry.generation > memory.generation => Found::Stale,
            _ => Found::Unknown,
        }
    }

    /// Returns the lifetime that a number refers to, whatever its generation.
    pub(super) fn life_of(&self, id: AllocId) -> Option<LifeId> {
        match self.entry(id)?.named() {
            Named::Life(life) | Named::Lease(life) => Some(life),
            _ => None,
        }
    }

    /// Makes a name refer to something. If its number referred to a lifetime whose history is behind, returns the use
    /// that this history lacks.
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

    /// Makes a number refer to nothing. If it referred to a lifetime whose history is behind, returns the use that this
    /// history lacks.
    #[must_use]
    pub(super) fn remove(&mut self, id: AllocId) -> Option<(LifeId, Use)> {
        let lacking = self.take(id);
        match self.dense.get_mut(id.index()) {
            Some(entry) => *entry = None,
            None => drop(self.sparse.remove(&id)),
        }
        lacking
    }

    /// Returns `true` if an access by a stream repeats what the stream did before. `learned` is the position at which
    /// the stream last learned something.
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

    /// Notes the newest use of a history, or its allocation. A later use by the name of the lifetime may repeat it.
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

    /// Ends the repetition, because the history of the lifetime changes. Returns the use that the history lacks.
    #[inline]
    pub(super) fn end(&mut self, id: AllocId, life: LifeId) -> Option<Use> {
        // An entry that is behind also has such a use.
        let newest = self.newest_mut(id).filter(|newest| newest.life == life && newest.is_there)?;
        newest.is_there = false;
        if newest.behind == NONE { None } else { self.take(id).map(|lacking| lacking.1) }
    }

    /// Returns the use that the history of the number's lifetime lacks, if that history is behind. It is then not
    /// behind any more.
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

    /// Returns a number whose history is behind.
    #[inline]
    pub(super) fn any_behind(&self) -> Option<AllocId> {
        self.behind.last().copied()
    }

    /// Returns `true` if a number refers to this lifetime and its history is behind.
    pub(super) fn is_behind(&self, id: AllocId, life: LifeId) -> bool {
        matches!(self.entry(id), Some(Entry { leads: Leads::Life(newest), .. })
            if newest.life == life && newest.behind != NONE)
    }

    /// Returns the address of the entry of the first number, and the distance in bytes from one entry to the next.
    #[inline]
    pub(super) fn places(&self) -> (*const u8, usize) {
        (self.dense.as_ptr().cast(), size_of::<Option<Entry>>())
    }

    /// Returns how many numbers there is room for.
    pub(super) fn len(&self) -> usize {
        self.dense.len() + self.sparse.len()
    }
}
