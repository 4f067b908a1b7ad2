//! The parts of a device with the context that they are of: the types by which the rest of the crate names them.
//!
//! Also the methods of allocations, lives and captures that depend on where memory is from: they know all of these
//! types, and each part alone does not.

use std::sync::Arc;

use millpond_core::check::Site;
use millpond_core::graph::GraphAllocId;
use millpond_core::op::Quoted;
use millpond_core::order::{Chain, Knows};
use millpond_core::units::Bytes;

use crate::names::error::{Error, Holder, Invalid};
use crate::names::stream_names;
use crate::state::context::Context;
use crate::state::{allocation, arena, imported, origin, pool, session, shelves, stream};
use crate::trace::callers;
use crate::trace::tracer::Tracer;

pub(crate) type Allocation = allocation::Allocation<Context>;
pub(crate) type Life = allocation::Life<Context>;
pub(crate) type Owned = allocation::Owned<Context>;
pub(crate) type Origin = origin::Origin<Context>;
pub(crate) type Imported = imported::Imported<Context>;
pub(crate) type Arena = arena::Arena<Context>;
pub(crate) type Session = session::Session<Context>;
pub(crate) type CapturedAt = session::CapturedAt<Context>;
pub(crate) type PoolShared = pool::PoolShared<Context>;
pub(crate) type Heap = pool::Heap<Context>;
pub(crate) type Closing = pool::Closing<Context>;
pub(crate) type StreamShared = stream::StreamShared<Context>;
pub(crate) type State = stream::State<Context>;
pub(crate) type Shelved = shelves::Shelved<Context>;

impl Owned {
    /// Gives the life a name, for messages, where it goes on: whether it does. Where it is allocated in a capture, its
    /// alloc node has the name, too.
    pub(crate) fn set_name(&self, name: &str) -> bool {
        let name: Arc<str> = name.into();
        let Self { allocation, generation, .. } = self;
        let session = if let Origin::Captured(session) = &allocation.origin { Some(session) } else { None };
        if let Some(session) = session {
            session.context.graphs.name_captured(session, GraphAllocId(allocation.index), &name);
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

impl Allocation {
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

    /// The allocation in words: its name, size, and where it was made or freed.
    pub(crate) fn describe(&self, life: &Life) -> String {
        // Who did it, and where.
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

impl Life {
    /// Whether what `chain` does next frees it, with nothing more to look at: memory of a pool that is not lent.
    #[inline]
    pub(crate) fn is_plainly_freed(&self, allocation: &Allocation, generation: u64, chain: &Chain) -> bool {
        self.is_plainly_live(allocation, generation) && self.is_over_for(chain, false)
    }

    /// Whether all that was done to it comes before what `chain` does next, and with `own` was done there.
    #[inline(always)]
    pub(crate) fn is_over_for(&self, chain: &Chain, own: bool) -> bool {
        self.history.all_points(|point| chain.has_taken(point)) || (!own && self.is_before(chain))
    }

    #[inline(never)]
    fn is_before(&self, chain: &Chain) -> bool {
        self.history.all_points(|point| chain.covers(point))
    }

    /// Whether it is this life that lives: memory of a pool that no other process has.
    #[inline]
    pub(crate) fn is_plainly_live(&self, allocation: &Allocation, generation: u64) -> bool {
        matches!(allocation.origin, Origin::Pool(_)) && self.is_unlent(generation)
    }

    /// Whether it is this life that lives, and no other process has it.
    #[inline(always)]
    pub(crate) fn is_unlent(&self, generation: u64) -> bool {
        self.lent.is_none() && self.freed.is_none() && self.generation == generation
    }
}

impl StreamShared {
    /// What messages call it.
    #[cold]
    pub(crate) fn title(&self) -> String {
        stream_names::title(self.context.number, self.id)
    }

    /// What messages call it where several devices are in question.
    #[cold]
    pub(crate) fn titled(&self) -> String {
        format!("{} of {}", self.title(), self.context.name())
    }

    /// It is closed.
    pub(crate) fn close_name(&self) {
        stream_names::close(self.context.number, self.id);
    }
}

impl Session {
    /// Who writes down what its streams do.
    pub(crate) fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.context.tracer.as_ref().filter(|_| self.is_traced)
    }
}

impl CapturedAt {
    pub(crate) fn device(&self) -> u32 {
        self.session.context.number
    }
}

impl PoolShared {
    /// An entry for its table.
    #[cold]
    pub(crate) fn new_entry(self: &Arc<Self>, index: u32) -> Arc<Allocation> {
        let number = self.context.alloc_numbers.take();
        Arc::new(Allocation::new(number, index, self.context.number, Origin::Pool(Arc::clone(self))))
    }

    /// What messages call it where several devices are in question.
    #[cold]
    pub(crate) fn titled(&self) -> String {
        format!("{} of {}", self.id, self.context.name())
    }

    /// The largest live allocations, for a report.
    pub(crate) fn largest(&self, heap: &Heap, count: usize) -> Vec<Holder> {
        let mut live: Vec<_> = heap.allocations().filter(|it| it.life().freed.is_none()).collect();
        live.sort_by_key(|it| std::cmp::Reverse(it.life().bytes));
        live.truncate(count);
        let holder = |it: &Arc<Allocation>| {
            let life = it.life();
            Holder { allocation: it.describe(&life), range: life.range }
        };
        live.into_iter().map(holder).collect()
    }
}
