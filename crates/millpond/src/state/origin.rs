//! The origins of memory: pools, other processes, graphs, captures, the host.

use std::sync::Arc;

use crate::graph::arena::Arena;
use crate::names::device_name::DeviceName;
use crate::state::context::Context;
use crate::state::numbers::AllocNumbers;
use crate::state::pool::PoolShared;
use crate::state::session::Session;
use crate::trace::tracer::Tracer;

/// The origin of an allocation.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A pool, by its table.
    Pool(Arc<PoolShared>),
    /// Another process.
    Imported(Arc<Imported>),
    /// An alloc node of a graph. Each launch of the graph begins a lifetime.
    Graph(Arc<Arena>),
    /// An alloc node that a capture has recorded. It has no lifetime of its own.
    Captured(Arc<Session>),
    /// Host memory of a pinned buffer.
    Pinned(Arc<Pinning>),
}

impl Origin {
    /// Returns the numbers to which the allocation's number is given back.
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
    /// `true` if it may be written.
    pub(crate) can_write: bool,
}

/// The owner of pinned host memory: the parts of its device that the memory needs.
#[derive(Debug)]
pub(crate) struct Pinning {
    pub(crate) numbers: Arc<AllocNumbers>,
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) device: DeviceName,
}
