//! One entry of a pool's table: it holds one allocation after another.
//!
//! An [`Allocation`] is made once and serves for ever: with one block after another, and within a block with one
//! lifetime (a *life*) after another, while it passes between the program and a stream's cache without any shared lock.
//! The generation tells these lifetimes apart.
//!
//! Invariant **one-owner**: an allocation is owned by exactly one of: a live buffer, a cache, or the table's vacant
//! entries. The pool's table refers to it only to answer questions about pointers and views.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::check::{Act, Edge, Fault, Finding, History, Kind, Known, Side, Site, Subject, Use};
use millpond_core::graph::GraphAllocId;
use millpond_core::ids::{AllocId, BlockId, ChainIndex, Point, StreamId};
use millpond_core::op::Quoted;
use millpond_core::order::{Chain, Knows};
use millpond_core::units::{Bytes, Range};
use millpond_driver::locks::{Biased, BiasedGuard};
use millpond_driver::process;

use crate::graph::name_captured;
use crate::names::error::{Error, Invalid};
use crate::names::stream_names::{self, dropped, is_drop, side};
use crate::state::freed::Freed;
use crate::state::lent::Lent;
use crate::state::numbers::Number;
use crate::state::origin::Origin;
use crate::state::pool::PoolShared;
use crate::state::stream::StreamShared;
use crate::sync::ranks;
use crate::trace::callers;
use crate::trace::tracer::Tracer;

/// The fixed part of an entry. Its blocks and lifetimes change, and are in [`life`](Allocation::life).
#[repr(C, align(128))] // No cache line is shared with another entry, which another stream may serve.
pub(crate) struct Allocation {
    pub(crate) origin: Origin,
    /// The first address of its block of a pool, for the owner.
    address: AtomicU64,
    /// That block.
    block: AtomicU32,
    /// Its index in the table of its origin.
    pub(crate) index: u32,
    pub(crate) id: AllocId,
    /// The number of its device.
    pub(crate) device: u32,
    life: Biased<ranks::Life, Life>,
}

/// One lifetime of an allocation, in one block. The fields that each allocation and free needs come first, so that
/// together with the fixed part they are two pairs of cache lines. The uses are last.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Life {
    pub(crate) generation: u64,
    /// The size in bytes, as requested.
    pub(crate) bytes: u64,
    /// The other processes that hold it.
    pub(crate) lent: Option<Box<Lent>>,
    /// The addresses, rounded up to the pool's grain.
    pub(crate) range: Range,
    /// The stream that took the block from the heap. A drop frees the block there.
    pub(crate) home: Weak<StreamShared>,
    pub(crate) name: Option<Arc<str>>,
    /// The free, once it has happened. Until then, the free of the lifetime before.
    pub(crate) freed: Freed,
    pub(crate) history: History,
}

/// One lifetime of an allocation, owned by the program, and its address.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) allocation: Arc<Allocation>,
    pub(crate) generation: u64,
    pub(crate) address: u64,
}

impl Clone for Owned {
    #[inline]
    fn clone(&self) -> Self {
        Self { allocation: Arc::clone(&self.allocation), ..*self }
    }
}

/// Owns a lifetime that has begun.
impl From<(Arc<Allocation>, u64)> for Owned {
    #[inline]
    fn from((allocation, generation): (Arc<Allocation>, u64)) -> Self {
        Self { address: allocation.address(), allocation, generation }
    }
}

impl Owned {
    /// Gives the lifetime a name, for messages, if it goes on. Returns `true` if it does. If it was allocated in a
    /// capture, its alloc node gets the name, too.
    pub(crate) fn set_name(&self, name: &str) -> bool {
        let name: Arc<str> = name.into();
        let Self { allocation, generation, .. } = self;
        let session = if let Origin::Captured(session) = &allocation.origin { Some(session) } else { None };
        if let Some(session) = session {
            name_captured(session, GraphAllocId(allocation.index), &name);
        }
        let mut life = allocation.life();
        let goes_on = session.map_or_else(|| life.freed.is_none(), |session| session.is_open());
        if life.generation != *generation || !goes_on {
            return false;
        }
        life.name = Some(Arc::clone(&name));
        if let Some(tracer) = allocation.tracer() {
            tracer.named(allocation.id, *generation, &name);
        }
        true
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

impl Allocation {
    /// Makes an entry that has had no lifetime yet.
    pub(crate) fn new(number: Number, index: u32, device: u32, origin: Origin) -> Self {
        let Number { id, generation } = number;
        let nowhere = Use { point: Point { chain: ChainIndex(0), seq: 0 }, site: Site::default() };
        let life = Life {
            generation,
            range: Range::default(),
            bytes: 0,
            home: Weak::new(),
            name: None,
            lent: None,
            freed: Freed::nowhere(nowhere),
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

    /// Returns a key that identifies the allocation. Several allocations are locked in the order of their keys.
    #[inline]
    pub(crate) fn key(&self) -> (u32, AllocId) {
        (self.device, self.id)
    }

    /// Returns the first address of its block. It changes while the heap has the allocation.
    #[inline]
    pub(crate) fn address(&self) -> u64 {
        self.address.load(Ordering::Relaxed)
    }

    /// Returns its block of a pool.
    #[inline]
    pub(crate) fn block(&self) -> BlockId {
        BlockId(self.block.load(Ordering::Relaxed))
    }

    /// Sets the address of an allocation that has no block.
    pub(crate) fn set_address(&self, address: u64) {
        self.address.store(address, Ordering::Relaxed);
    }

    /// Sets another block, which begins at `address`.
    #[inline]
    pub(crate) fn set_block(&self, block: BlockId, address: u64) {
        self.block.store(block.0, Ordering::Relaxed);
        self.address.store(address, Ordering::Relaxed);
    }

    /// Locks the present lifetime, to look at it or to change it.
    #[inline]
    pub(crate) fn life(&self) -> BiasedGuard<'_, Life> {
        self.life.lock()
    }

    /// Returns the free of an earlier lifetime, if that was the last one and the present one goes on.
    #[cold]
    pub(crate) fn free_of(&self, life: &Life, generation: u64) -> Option<Use> {
        life.freed.before().filter(|_| life.generation.wrapping_sub(generation) == 1)
    }

    /// Returns the finding for an act on an earlier lifetime.
    #[cold]
    pub(crate) fn stale_name(&self, life: &Life, generation: u64, later: Side) -> Finding {
        let freed = self.free_of(life, generation).map(|free| side(self.device, free.site));
        let anew = side(self.device, life.history.born().site);
        Finding::stale_name(Subject { bytes: 0, name: None, ..self.subject(life) }, freed, Some(anew), later)
    }

    /// Returns the subject of a violation.
    pub(crate) fn subject(&self, life: &Life) -> Subject {
        Subject { id: self.id, bytes: life.bytes, name: life.name.as_deref().map(str::to_owned) }
    }

    /// Returns the tracer of what is done to it, if that is traced. Memory of a capture is its graph's.
    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        match &self.origin {
            Origin::Pool(pool) => pool.context.tracer.as_deref(),
            Origin::Graph(arena) => arena.context.tracer.as_deref(),
            Origin::Imported(imported) => imported.context.tracer.as_deref(),
            Origin::Pinned(pinning) => pinning.tracer.as_deref(),
            Origin::Captured(_) => None,
        }
    }

    /// Returns its pool, for an allocation in a cache or a heap: those are from pools.
    #[inline]
    pub(crate) fn pool(&self) -> &Arc<PoolShared> {
        match &self.origin {
            Origin::Pool(pool) => pool,
            _ => unreachable!("one-owner: only allocations of pools are on caches"),
        }
    }

    /// Returns `true` if it is memory of another process.
    #[inline]
    pub(crate) fn is_import(&self) -> bool {
        matches!(self.origin, Origin::Imported(_))
    }

    /// Returns `true` if it is memory of another process that may not be written.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(&self.origin, Origin::Imported(imported) if !imported.can_write)
    }

    /// Returns the error for an allocation that is of another device than `with`.
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

    /// Describes the allocation: its name, its size, and where it was allocated or freed.
    pub(crate) fn describe(&self, life: &Life) -> String {
        // The stream and the place of an operation.
        let by = |site: Site| format!("{}{}", stream_names::title(self.device, site.stream), callers::at(site.place));
        let name =
            life.name.as_deref().map_or_else(|| self.id.to_string(), |name| format!("{} ({})", Quoted(name), self.id));
        match life.freed.now() {
            Some(free) => format!("{name}, {}, freed on {}", Bytes(life.bytes), by(free.site)),
            None => {
                let born = life.history.born().site;
                let made = if self.is_import() { "imported" } else { "allocated" };
                format!("{name}, {}, {made} on {}", Bytes(life.bytes), by(born))
            }
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if !process::is_forked() {
            let generation = self.life.get_mut().generation;
            self.origin.numbers().give_back(Number { id: self.id, generation });
        }
    }
}

impl Life {
    /// Returns `true` if a launch has begun a lifetime of this memory, which is an alloc node's.
    pub(crate) fn was_launched(&self) -> bool {
        self.history.born().point.seq > 0
    }

    /// Ends the lifetime with a drop, which is no operation of a stream: it has the point of the last one.
    pub(crate) fn end_dropped(&mut self) {
        let last = self.history.uses().last().copied().unwrap_or(self.history.born());
        self.freed.end(Use { point: last.point, site: dropped(last.site.stream) });
    }

    /// Returns `true` if the life with this generation is the present one and is not freed.
    #[inline]
    pub(crate) fn is_live(&self, generation: u64) -> bool {
        self.generation == generation && self.freed.is_none()
    }

    /// A new life begins in the same place.
    #[inline(always)]
    pub(crate) fn begin(&mut self, bytes: u64, born: Use) {
        self.generation = self.generation.wrapping_add(1);
        self.bytes = bytes;
        self.history.restart(born);
        self.freed.begin();
        if self.name.is_some() || self.lent.is_some() {
            self.strip();
        }
    }

    /// Drops what only few lifetimes have.
    #[cold]
    #[inline(never)]
    fn strip(&mut self) {
        self.name = None;
        self.lent = None;
    }

    /// Returns `true` if everything that was done to it comes before the next operation of `chain`. With `own`, all of
    /// it must be on that chain.
    #[inline(always)]
    pub(crate) fn is_over_for(&self, chain: &Chain, own: bool) -> bool {
        self.history.all_points(|point| chain.has_taken(point)) || (!own && self.is_before(chain))
    }

    #[inline(never)]
    fn is_before(&self, chain: &Chain) -> bool {
        self.history.all_points(|point| chain.covers(point))
    }

    /// Returns `true` if this lifetime is live, and is memory of a pool that no other process has.
    #[inline]
    pub(crate) fn is_plainly_live(&self, allocation: &Allocation, generation: u64) -> bool {
        matches!(allocation.origin, Origin::Pool(_)) && self.is_unlent(generation)
    }

    /// Returns `true` if this lifetime is live, and no other process has it.
    #[inline(always)]
    pub(crate) fn is_unlent(&self, generation: u64) -> bool {
        self.lent.is_none() && self.freed.is_none() && self.generation == generation
    }
}

/// Makes the finding of a fault of a lifetime. `known` is the last operation of the earlier side's stream that the
/// later side comes after. `device` is the device of the streams, unless they name another.
#[cold]
pub(crate) fn violation(
    device: u32,
    (allocation, life): (&Allocation, &Life),
    fault: Fault,
    later: Site,
    known: Option<u64>,
) -> Finding {
    let subject = allocation.subject(life);
    let is_dropped = is_drop(fault.earlier.site);
    let (earlier, later) = (side(device, fault.earlier.site), side(device, later));
    match fault.kind {
        Kind::DoubleFree | Kind::UseAfterFree => {
            let mut finding = Finding::after_free(subject, Some(earlier), later);
            if is_dropped {
                let born = side(allocation.device, life.history.born().site);
                let at = Some(born.spot.to_string()).filter(|spot| !spot.is_empty());
                let at = at.map(|spot| format!(" ({spot})")).unwrap_or_default();
                finding.notes.push(format!("its buffer was dropped; it was allocated on {}{at}", born.title()));
            }
            finding
        }
        Kind::FreeWhileImported => {
            let process = earlier.process.map_or_else(|| "another process".into(), |it| format!("process {it}"));
            Finding::while_imported(subject, process, earlier, later)
        }
        _ => {
            let missing = fault.ends.iter().map(|end| Edge::of(side(device, end.site), end.point)).collect();
            let others = fault.ends[1..].iter().map(|end| side(device, end.site)).collect();
            let known = known.map(|op| Known { op: Some(op), ..Known::default() });
            Finding::unordered(fault.kind, subject, (earlier, others), missing, later, known).met(fault)
        }
    }
}

/// Returns the site of an operation.
#[inline]
pub(crate) fn site(act: Act, stream: StreamId, op: u64, caller: &'static std::panic::Location<'static>) -> Site {
    Site { act, stream, op, place: millpond_core::check::Place::Source(caller) }
}
