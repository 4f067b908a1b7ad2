//! Frees without a stream: by the host, which must have synchronised with all uses (CUDA: `cudaFree`).
//!
//! Knows what the host has synchronised with; nothing of streams but the names in sites.

use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;
use millpond_core::check::{Act, Fault, Use};
use millpond_core::ids::StreamId;
use millpond_core::order::{Host, op_at};
use millpond_core::pool::{Freed, Frontier};
use millpond_driver::process;

use crate::clock::hosts;
use crate::names::error::{Error, Invalid, Nearest, Result};
use crate::names::shadow;
use crate::names::stream_names::side;
use crate::state::allocation::{Owned, site, violation};
use crate::state::ends::{free_import, free_in_graph};
use crate::state::listening::{Listening, check_free};
use crate::state::origin::Origin;
use crate::state::pool::PoolShared;
use crate::stream::refused::Refused;
use crate::stream::release::not_launched;
use crate::stream::report::Noted;
use crate::trace::tracer::Tracer;
use crate::{Buffer, Device};

impl Device {
    /// Frees a buffer at once, without a stream (CUDA: `cudaFree` of stream-ordered memory). Nothing waits: the host
    /// must have synchronised with everything that uses it.
    ///
    /// # Errors
    /// A violation, with the buffer, where the host does not know that some use has completed.
    #[track_caller]
    pub fn free<T: Pod>(&self, buffer: Buffer<T>) -> std::result::Result<(), Refused<T>> {
        let caller = Location::caller();
        let (owned, count) = buffer.into_owned();
        let Some(owned) = owned else { return Ok(()) };
        self.free_now(&owned, caller).map_err(|error| {
            let refused = Refused { error, buffer: Buffer::new(Some(owned), count) };
            self.context().report(&refused.error);
            refused
        })
    }

    /// Frees memory at once by its address (CUDA: `cudaFree`). Null is fine and has no effect.
    ///
    /// # Errors
    /// [`Invalid::Pointer`](crate::error::Invalid::Pointer) where it is not the start of a live allocation; a violation
    /// as for [`free`](Self::free).
    #[track_caller]
    pub fn free_address(&self, address: u64) -> Result<()> {
        let caller = Location::caller();
        if address == 0 {
            return Ok(());
        }
        let context = self.context();
        let owned =
            PoolShared::find_on(context, address).or_else(|error| self.refuse_address(address, error, caller))?;
        self.free_now(&owned, caller).inspect_err(|error| {
            context.report(error);
        })
    }

    /// Refuses to free an address where no live allocation begins.
    #[cold]
    fn refuse_address(&self, address: u64, error: Error, caller: &'static Location<'static>) -> Result<Owned> {
        let context = self.context();
        let refuse = || match error.invalid() {
            // A capture forbids the call, whatever becomes of a graph's memory before its first launch.
            Some(Invalid::Pointer { nearest: Nearest::OfGraph { .. }, .. }) if !context.graphs.was_freed(address) => {
                context.graphs.refuse_unsafe("free")
            }
            _ => Ok(()),
        };
        let error = refuse().err().unwrap_or(error);
        let tracer = context.tracer.as_ref();
        if let Some((tracer, memory)) = tracer.and_then(|it| Some((it, context.freed_at(it, address)?))) {
            shadow::judged(Some(&error), || tracer.free_now_of(memory, caller));
        }
        Err(error)
    }

    pub(crate) fn free_now(&self, owned: &Owned, caller: &'static Location<'static>) -> Result<()> {
        let context = self.context();
        let mut is_settled = false;
        loop {
            let mut noted = Noted::default();
            let Err(mut error) = self.free_now_once(owned, caller, &mut noted) else { return Ok(()) };
            if error.is_foreign() && !std::mem::replace(&mut is_settled, true) {
                Listening::of(&owned.allocation);
            } else if noted != Noted::Anew {
                if noted == Noted::Later {
                    Tracer::refused(context.tracer.as_ref(), &error, |tracer| tracer.free_owned(owned, None, caller));
                }
                context.shorten_help(&mut error);
                return Err(error);
            }
        }
    }

    fn free_now_once(&self, owned: &Owned, caller: &'static Location<'static>, noted: &mut Noted) -> Result<()> {
        process::refuse_forked()?;
        let Owned { allocation, generation, .. } = owned;
        if allocation.device != self.context().number {
            return Err(allocation.elsewhere(self.name().to_string()));
        }
        let later = site(Act::Free, StreamId::HOST, 0, caller);
        if let Origin::Captured(session) = &allocation.origin {
            // If the capture made no graph, or the graph is gone, there is no memory that a capture forbids to free.
            if self.context().graphs.node_from(owned.address).is_some_and(|(graph, _)| graph == session.id) {
                self.context().graphs.refuse_unsafe("free")?;
            }
            return Err(not_launched(allocation, later));
        }
        // A capture forbids a free of live memory only: another free is refused anyway, and the capture goes on. The
        // captures are locked before a lifetime, so that the lifetime is read again below.
        let graphs = &self.context().graphs;
        if graphs.may_forbid() && allocation.life().is_live(*generation) {
            graphs.refuse_unsafe("free")?;
        }
        let base = hosts::base();
        let mut life = allocation.life();
        if life.generation != *generation {
            return Err(allocation.stale_name(&life, *generation, side(allocation.device, later)).into());
        }
        let checked = match life.freed.now() {
            Some(free) => Err(Fault::after_free(free, Act::Free)),
            None => check_free(allocation, &life, &*base),
        };
        if let Err(fault) = checked {
            let Use { point, site } = fault.earlier;
            let is_node = self.context().chains.find(point.chain).is_some_and(|it| it.is_of_launches());
            let known = (!is_node && !base.covers(point))
                .then(|| op_at(base.seen(point.chain)).saturating_sub(op_at(point.seq).saturating_sub(site.op)));
            let error = violation(self.context().number, (allocation, &life), fault, later, known).into();
            let (tracer, has_news) = (self.context().tracer.as_ref(), |host: &Host| !Arc::ptr_eq(host.base(), &base));
            *noted = Tracer::refused_here(tracer, &error, has_news, |it| it.free_owned(owned, None, caller));
            return Err(error);
        }
        let point = life.history.born().point;
        life.freed.end(Use { point, site: later });
        if let Some(tracer) = &self.context().tracer {
            tracer.free_now(allocation.id, *generation, caller);
        }
        if allocation.is_import() {
            free_import(allocation, life, None);
            return Ok(());
        }
        let Origin::Pool(pool) = &allocation.origin else {
            free_in_graph(allocation, life, Frontier::EMPTY);
            return Ok(());
        };
        let bytes = life.bytes;
        drop(life);
        pool.take_back(Arc::clone(allocation), Freed::after(Frontier::EMPTY), bytes);
        Ok(())
    }
}
