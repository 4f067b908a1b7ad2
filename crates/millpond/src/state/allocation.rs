//! One entry of a pool's table: it holds one allocation after another.
//!
//! An [`Allocation`] is made once and serves for ever: with one block after another, and within a block with one *life*
//! after another, while it passes between the program and a stream's shelf without any shared lock. A generation tells
//! the lives apart. Knows its pool by reference; nothing of streams but their names in sites.
//!
//! Invariant **one-owner**: an allocation is with exactly one of: a live buffer, a shelf, or the table's vacant
//! entries. The pool's table refers to it only to answer questions about pointers and views.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::check::{Act, Edge, Fault, Finding, History, Kind, Known, Site, Subject, Use};
use millpond_core::graph::GraphAllocId;
use millpond_core::ids::{AllocId, BlockId, Point, Slot, StreamId};
use millpond_core::op::{Place, Quoted};
use millpond_core::order::Chain;
use millpond_core::units::{Bytes, Range};

use crate::names::device_name::DeviceName;
use crate::names::error::{Error, Invalid};
use crate::names::stream_names::side;
use crate::state::arena::Arena;
use crate::state::imported::Imported;
use crate::state::lent::Lent;
use crate::state::pool::PoolShared;
use crate::state::session::Session;
use crate::state::stream::StreamShared;
use crate::sync::locks::{Biased, BiasedGuard};
use crate::sync::ranks;
use crate::trace::tracer::Tracer;

/// An entry: its fixed part. Blocks and lives pass through [`life`](Allocation::life).
#[repr(C, align(128))] // No cache line is shared with another entry, which another stream may serve.
pub(crate) struct Allocation {
    pub(crate) origin: Origin,
    /// Where the block of a pool begins, for who owns it.
    address: AtomicU64,
    /// That block.
    block: AtomicU32,
    /// Its place in the table of where it is from.
    pub(crate) index: u32,
    pub(crate) id: AllocId,
    /// The number of its device.
    pub(crate) device: u32,
    life: Biased<{ ranks::LIFE }, Life>,
}

/// Where an allocation is from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// A pool, by its table.
    Pool(Arc<PoolShared>),
    /// Another process.
    Imported(Arc<Imported>),
    /// An alloc node of a graph: each launch of the graph begins a life.
    Graph(Arc<Arena>),
    /// An alloc node that a capture has recorded: it has no life of its own.
    Captured(Arc<Session>),
    /// Host memory, of a pinned buffer.
    Pinned(Arc<Pinning>),
}

/// Whose host memory is.
#[derive(Debug)]
pub(crate) struct Pinning {
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) device: DeviceName,
}

/// One life of an allocation, in one block. What each alloc and free needs comes first, so that it is two pairs of
/// cache lines with what is fixed; the uses are last.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Life {
    pub(crate) generation: u64,
    /// Bytes as asked for.
    pub(crate) bytes: u64,
    /// Other processes that hold it.
    pub(crate) lent: Option<Box<Lent>>,
    /// Its addresses, rounded up to the pool's grain.
    pub(crate) range: Range,
    /// The stream that took the block from the heap: where a drop frees it.
    pub(crate) home: Weak<StreamShared>,
    pub(crate) name: Option<Arc<str>>,
    /// The free, once it has happened.
    pub(crate) freed: Option<Use>,
    pub(crate) history: History,
}

/// What the program owns: one life of an allocation, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    pub(crate) allocation: Arc<Allocation>,
    pub(crate) generation: u64,
    pub(crate) address: u64,
}

/// A life that has begun.
impl From<(Arc<Allocation>, u64)> for Owned {
    #[inline]
    fn from((allocation, generation): (Arc<Allocation>, u64)) -> Self {
        Self { address: allocation.address(), allocation, generation }
    }
}

/// What its holder ends: freed where this is dropped, also while a panic goes through.
pub(crate) struct Kept(Option<Owned>);

impl From<Owned> for Kept {
    fn from(owned: Owned) -> Self {
        Self(Some(owned))
    }
}

impl From<Kept> for Owned {
    fn from(mut kept: Kept) -> Self {
        kept.0.take().expect("it is taken once")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(owned) = self.0.take() {
            PoolShared::drop_allocation(owned);
        }
    }
}

impl Owned {
    /// Gives the life a name, for messages. Where it is allocated in a capture, its alloc node has the name, too.
    pub(crate) fn set_name(&self, name: &str) {
        let name: Arc<str> = name.into();
        let Self { allocation, generation, .. } = self;
        if let Origin::Captured(session) = &allocation.origin {
            session.context.graphs.name_captured(session, GraphAllocId(allocation.index), &name);
        }
        let mut life = allocation.life();
        if life.generation == *generation {
            life.name = Some(Arc::clone(&name));
            if let Some(tracer) = allocation.tracer() {
                tracer.named(allocation.id, *generation, &name);
            }
        }
    }
}

impl Allocation {
    /// An entry that has had no life yet.
    pub(crate) fn new(id: AllocId, index: u32, device: u32, origin: Origin) -> Self {
        let nowhere = Use { point: Point { slot: Slot(0), seq: 0 }, site: Site::default() };
        let life = Life {
            generation: 0,
            range: Range::default(),
            bytes: 0,
            home: Weak::new(),
            name: None,
            lent: None,
            freed: Some(nowhere),
            history: History::new(nowhere),
        };
        Self {
            id,
            index,
            device,
            origin,
            block: AtomicU32::new(0),
            address: AtomicU64::new(0),
            life: Biased::new(life),
        }
    }

    /// What writes down what is done to it, where that is asked for. Memory of a capture is its graph's.
    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        match &self.origin {
            Origin::Pool(pool) => pool.context.tracer.as_deref(),
            Origin::Graph(arena) => arena.context.tracer.as_deref(),
            Origin::Imported(imported) => imported.context.tracer.as_deref(),
            Origin::Pinned(pinning) => pinning.tracer.as_deref(),
            Origin::Captured(_) => None,
        }
    }

    /// Its pool, for what rests on shelves and in heaps: that is from pools.
    #[inline]
    pub(crate) fn pool(&self) -> &Arc<PoolShared> {
        match &self.origin {
            Origin::Pool(pool) => pool,
            _ => unreachable!("one-owner: only allocations of pools are on shelves"),
        }
    }

    /// Tells it from all others, and says in which order several are locked.
    #[inline]
    pub(crate) fn key(&self) -> (u32, AllocId) {
        (self.device, self.id)
    }

    /// Whether it is memory of another process.
    #[inline]
    pub(crate) fn is_import(&self) -> bool {
        matches!(self.origin, Origin::Imported(_))
    }

    /// Whether it is memory of another process that may not be written to.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(&self.origin, Origin::Imported(imported) if !imported.can_write)
    }

    /// Whether a capture has allocated it.
    pub(crate) fn is_of(&self, capture: &Session) -> bool {
        matches!(&self.origin, Origin::Captured(session) if std::ptr::eq(&**session, capture))
    }

    /// Where its block begins. It changes while the heap has it.
    #[inline]
    pub(crate) fn address(&self) -> u64 {
        self.address.load(Ordering::Relaxed)
    }

    /// The block that it has of a pool.
    #[inline]
    pub(crate) fn block(&self) -> BlockId {
        BlockId(self.block.load(Ordering::Relaxed))
    }

    /// It has another block, which begins at `address`.
    #[inline]
    pub(crate) fn set_block(&self, block: BlockId, address: u64) {
        self.block.store(block.0, Ordering::Relaxed);
        self.address.store(address, Ordering::Relaxed);
    }

    /// The present life, to look at or to change.
    #[inline]
    pub(crate) fn life(&self) -> BiasedGuard<'_, { ranks::LIFE }, Life> {
        self.life.lock()
    }

    /// Cold: it is of another device than what it met.
    #[cold]
    pub(crate) fn elsewhere(&self, with: String) -> Error {
        let owner = match &self.origin {
            Origin::Pool(pool) => pool.context.name(),
            Origin::Graph(arena) => arena.context.name(),
            Origin::Captured(session) => session.context.name(),
            Origin::Imported(import) => import.context.name(),
            Origin::Pinned(pinning) => pinning.device.clone(),
        };
        Invalid::OtherDevice { what: format!("{} of {owner}", self.describe(&self.life())), with }.into()
    }

    /// What a violation says it is about.
    pub(crate) fn subject(&self, life: &Life) -> Subject {
        Subject { id: self.id, bytes: life.bytes, name: life.name.as_deref().map(str::to_owned) }
    }

    /// The allocation in words: its name, size, and where it was made or freed.
    pub(crate) fn describe(&self, life: &Life) -> String {
        let place = |site: Site| match site.place.to_string() {
            place if place.is_empty() => String::new(),
            place if matches!(site.place, Place::Process(_)) => format!(" {place}"),
            place => format!(" at {place}"),
        };
        let name =
            life.name.as_deref().map_or_else(|| self.id.to_string(), |name| format!("{} ({})", Quoted(name), self.id));
        match life.freed {
            Some(free) => format!("{name}, {}, freed on {}{}", Bytes(life.bytes), free.site.stream, place(free.site)),
            None => {
                let born = life.history.born().site;
                let made = if self.is_import() { "imported" } else { "allocated" };
                format!("{name}, {}, {made} on {}{}", Bytes(life.bytes), born.stream, place(born))
            }
        }
    }
}

impl Life {
    /// Whether what `chain` does next frees it, with nothing more to look at: memory of a pool that is not lent.
    #[inline]
    pub(crate) fn is_plainly_freed(&self, allocation: &Allocation, generation: u64, chain: &Chain) -> bool {
        self.is_plainly_live(allocation, generation) && self.history.check_free(chain).is_ok()
    }

    /// Whether it is this life that lives: memory of a pool that no other process has.
    #[inline]
    pub(crate) fn is_plainly_live(&self, allocation: &Allocation, generation: u64) -> bool {
        let is_plain = self.lent.is_none() && matches!(allocation.origin, Origin::Pool(_));
        is_plain && self.freed.is_none() && self.generation == generation
    }

    /// A new life begins in the same place.
    #[inline]
    pub(crate) fn begin(&mut self, bytes: u64, born: Use) {
        debug_assert!(self.freed.is_some(), "one-owner: what begins a life is freed");
        self.generation = self.generation.wrapping_add(1);
        self.bytes = bytes;
        self.history.restart(born);
        self.freed = None;
        self.name = None;
        self.lent = None;
    }
}

/// Puts a fault into words; `known` is up to which of its operations the later side comes after the earlier one's
/// stream, and `device` the one that its streams are of, unless they say otherwise.
#[cold]
pub(crate) fn violation(device: u32, subject: Subject, fault: Fault, later: Site, known: Option<u64>) -> Finding {
    let Fault { kind, earlier, ends } = fault;
    let (earlier, later) = (side(device, earlier.site), side(device, later));
    match kind {
        Kind::DoubleFree | Kind::UseAfterFree => Finding::after_free(subject, Some(earlier), later),
        Kind::FreeWhileImported => {
            let process = earlier.process.map_or_else(|| "another process".into(), |it| format!("process {it}"));
            Finding::while_imported(subject, process, earlier, later)
        }
        _ => {
            let missing = ends.iter().map(|end| Edge::of(side(device, end.site), end.point)).collect();
            let others = ends[1..].iter().map(|end| side(device, end.site)).collect();
            let known = known.map(|op| Known { op: Some(op), ..Known::default() });
            Finding::unordered(kind, subject, (earlier, others), missing, later, known)
        }
    }
}

/// The site of an operation.
#[inline]
pub(crate) fn site(act: Act, stream: StreamId, op: u64, caller: &'static std::panic::Location<'static>) -> Site {
    Site { act, stream, op, place: millpond_core::check::Place::Source(caller) }
}
