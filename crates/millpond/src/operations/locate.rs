//! Lookup of memory by address, for pointers from outside: the live allocation that starts there, or else what is there
//! or nearest, and its state.
//!
//! Cold throughout: a valid pointer is found by one look at its pool. Depends on pools, graphs, imports and the other
//! devices of the process; decides nothing.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::op::Memory as TracedMemory;
use millpond_core::pool::{Located, Neighbour};
use millpond_driver::{Driver, process};

use crate::graph::{find_in_graphs, freed_in_graphs};
use crate::names::error::{Error, Invalid, Nearest, Result};
use crate::names::shadow;
use crate::state::allocation::{Allocation, Owned};
use crate::state::context::Context;
use crate::state::peers;
use crate::state::pool::{Heap, PoolShared};
use crate::state::stream::StreamShared;
use crate::trace::tracer::Tracer;

impl Heap {
    /// Returns the allocation that was freed last at the address, if its entry has not served again since.
    fn freed_at(&self, pointer: u64) -> Option<&Arc<Allocation>> {
        self.vacated().find(|it| it.life().range.start == pointer)
    }
}

impl PoolShared {
    /// Returns the live allocation that starts at `pointer`, or else what is there.
    fn find(&self, pointer: u64) -> std::result::Result<Arc<Allocation>, Nearest> {
        let heap = self.lock();
        let describe = |it: Neighbour| {
            let allocation = heap.allocation_in(it.block);
            allocation.map_or_else(|| "an allocation in the making".to_owned(), |it| it.describe(&it.life()))
        };
        match heap.pool.locate(pointer) {
            Located::Outside => Err(Nearest::Outside { nearest: None }),
            Located::Held { block, offset } => match heap.allocation_in(block.block) {
                Some(it) if offset == 0 && it.life().freed.is_none() => Ok(Arc::clone(it)),
                Some(it) if offset == 0 => Err(Nearest::Freed { allocation: it.describe(&it.life()) }),
                _ => Err(Nearest::Inside { allocation: describe(block), offset }),
            },
            Located::Free { below, above } => Err(match heap.freed_at(pointer) {
                Some(it) => Nearest::Freed { allocation: it.describe(&it.life()) },
                None => Nearest::Between {
                    below: below.map(|it| (describe(it), pointer - it.range.end())),
                    above: above.map(|it| (describe(it), it.range.start - pointer)),
                },
            }),
        }
    }

    /// Returns the lifetime that was freed last of those that began at `pointer`, if nothing is live there.
    #[cold]
    pub(crate) fn freed_on(context: &Context, pointer: u64) -> Option<(Arc<Allocation>, u64)> {
        let pool = context.pools().into_iter().find(|pool| pool.contains(pointer))?;
        let heap = pool.lock();
        let allocation = match heap.pool.locate(pointer) {
            Located::Held { block, offset: 0 } => heap.allocation_in(block.block),
            Located::Free { .. } => heap.freed_at(pointer),
            _ => None,
        }?;
        let life = allocation.life();
        life.freed.now().map(|_| (Arc::clone(allocation), life.generation))
    }

    /// Returns the live allocation that is nearest to an address outside of the library's memory, and the distance to
    /// it.
    fn nearest(&self, pointer: u64) -> Option<(String, u64)> {
        let heap = self.lock();
        let live = heap.allocations().filter_map(|it| {
            let life = it.life();
            life.freed.is_none().then(|| (it, life.range.distance(pointer)))
        });
        let (allocation, bytes) = live.min_by_key(|(_, bytes)| *bytes)?;
        let described = allocation.describe(&allocation.life());
        Some((described, bytes))
    }

    /// Returns the live allocation of the device that starts at `pointer`: of a pool, of a graph, or an import.
    pub(crate) fn find_on(context: &Context, pointer: u64) -> Result<Owned> {
        process::refuse_forked()?;
        let nearest = match Self::find_here(context, pointer) {
            Ok(owned) => return Ok(owned),
            Err(Nearest::Outside { .. }) => Self::find_foreign(context, pointer).unwrap_or_else(|| {
                let live = context.pools().into_iter().filter_map(|pool| pool.nearest(pointer));
                Nearest::Outside { nearest: live.min_by_key(|(_, bytes)| *bytes) }
            }),
            Err(nearest) => nearest,
        };
        Err(Invalid::Pointer { pointer, nearest }.into())
    }

    /// Returns the live allocation of a pool that contains `pointer`, and its size in bytes.
    pub(crate) fn find_around(context: &Context, pointer: u64) -> Option<(Owned, u64)> {
        let pool = context.pools().into_iter().find(|pool| pool.contains(pointer))?;
        let heap = pool.lock();
        let Located::Held { block, offset } = heap.pool.locate(pointer) else { return None };
        let allocation = heap.allocation_in(block.block)?;
        let life = allocation.life();
        if life.freed.is_some() || offset >= life.bytes {
            return None;
        }
        let (generation, address) = (life.generation, block.range.start);
        Some((Owned { allocation: Arc::clone(allocation), generation, address }, life.bytes))
    }

    fn find_here(context: &Context, pointer: u64) -> std::result::Result<Owned, Nearest> {
        match context.pools().iter().find(|pool| pool.contains(pointer)) {
            Some(pool) => {
                let allocation = pool.find(pointer)?;
                let generation = allocation.life().generation;
                Ok(Owned { allocation, generation, address: pointer })
            }
            None => match context.find_import_at(pointer) {
                Err(Nearest::Outside { .. }) => find_in_graphs(context, pointer),
                found => found,
            },
        }
    }

    /// Returns what another device of the process has at an address. Devices whose addresses are made up are not asked.
    #[cold]
    fn find_foreign(context: &Context, pointer: u64) -> Option<Nearest> {
        context.driver.peer()?;
        // One at a time, because a device is kept open while it is asked.
        let others = peers::numbers_of_peers().into_iter().filter(|number| *number != context.number);
        others.filter_map(peers::find).find_map(|other| {
            let what = match Self::find_here(&other, pointer) {
                Ok(owned) => owned.allocation.describe(&owned.allocation.life()),
                Err(Nearest::Outside { .. }) => return None,
                Err(nearest) => nearest.to_string(),
            };
            Some(Nearest::OtherDevice { device: other.name(), what })
        })
    }
}

impl Context {
    /// Returns the name that a trace has for memory that starts at an address and is not live. A forked child process
    /// writes no trace.
    #[cold]
    pub(crate) fn freed_at(&self, tracer: &Tracer, address: u64) -> Option<TracedMemory> {
        process::refuse_forked().ok()?;
        match PoolShared::freed_on(self, address) {
            Some((allocation, generation)) => Some(tracer.memory(allocation.id, generation)),
            None => freed_in_graphs(self, tracer, address),
        }
    }
}

impl StreamShared {
    /// As [`note_refused`](Self::note_refused), for a free by address of memory that was freed before.
    #[cold]
    pub(crate) fn note_second_free(&self, error: &Error, address: u64, caller: &'static Location<'static>) {
        let Some(tracer) = self.tracer() else { return };
        if let Some(memory) = self.context.freed_at(tracer, address) {
            shadow::judged(Some(error), || tracer.free_of(memory, self.id, caller));
        }
    }
}
