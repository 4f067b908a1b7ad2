//! Where memory is from: pools, other processes, graphs, captures, the host.

use std::sync::Arc;

use crate::graph::arena::Arena;
use crate::names::device_name::DeviceName;
use crate::state::context::Context;
use crate::state::numbers::AllocNumbers;
use crate::state::pool::PoolShared;
use crate::state::session::Session;
use crate::trace::tracer::Tracer;

/// Where an allocation is from.
#[derive(Debug)]
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

impl Origin {
    /// Where its number goes when it is gone.
    pub(crate) fn numbers(&self) -> &AllocNumbers {
        match self {
            Origin::Pool(pool) => &pool.context.alloc_numbers,
            Origin::Imported(imported) => &imported.context.alloc_numbers,
            Origin::Graph(arena) => &arena.context.alloc_numbers,
            Origin::Captured(session) => &session.context.alloc_numbers,
            Origin::Pinned(pinning) => &pinning.numbers,
        }
    }
}

/// Memory of another process.
#[derive(Debug)]
pub(crate) struct Imported {
    pub(crate) context: Arc<Context>,
    /// Whether it may be written to.
    pub(crate) can_write: bool,
}

/// Whose host memory is.
#[derive(Debug)]
pub(crate) struct Pinning {
    pub(crate) numbers: Arc<AllocNumbers>,
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) device: DeviceName,
}
