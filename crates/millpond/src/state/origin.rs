//! Where memory is from: pools, other processes, graphs, captures, the host.

use std::sync::Arc;

use crate::names::device_name::DeviceName;
use crate::state::arena::{Arena, Arenas};
use crate::state::imported::Imported;
use crate::state::numbers::AllocNumbers;
use crate::state::pool::{PoolShared, Pools};
use crate::state::session::Session;
use crate::state::types::Numbered;
use crate::trace::tracer::Tracer;

/// Where an allocation is from.
#[derive(Debug)]
pub(crate) enum Origin<C: Pools + Arenas> {
    /// A pool, by its table.
    Pool(Arc<PoolShared<C>>),
    /// Another process.
    Imported(Arc<Imported<C>>),
    /// An alloc node of a graph: each launch of the graph begins a life.
    Graph(Arc<Arena<C>>),
    /// An alloc node that a capture has recorded: it has no life of its own.
    Captured(Arc<Session<C>>),
    /// Host memory, of a pinned buffer.
    Pinned(Arc<Pinning>),
}

impl<C: Pools + Arenas> Numbered for Origin<C> {
    fn numbers(&self) -> &AllocNumbers {
        match self {
            Origin::Pool(pool) => pool.context.alloc_numbers(),
            Origin::Imported(imported) => imported.context.alloc_numbers(),
            Origin::Graph(arena) => arena.context.alloc_numbers(),
            Origin::Captured(session) => session.context.alloc_numbers(),
            Origin::Pinned(pinning) => &pinning.numbers,
        }
    }
}

/// Whose host memory is.
#[derive(Debug)]
pub(crate) struct Pinning {
    pub(crate) numbers: Arc<AllocNumbers>,
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) device: DeviceName,
}
