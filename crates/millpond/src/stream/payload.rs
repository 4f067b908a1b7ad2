//! The work of a node, and the work that it will do once its memory has addresses.
//!
//! Depends on addresses and the work at them, not on the order. A node of a graph with symbolic addresses names memory
//! by its place among the node's accesses, and each instance makes the same work at its own addresses.

use std::sync::Arc;

use millpond_core::graph::{Exec as CoreExec, FlatNode, Memory, Work};
use millpond_core::op::NodeOp;
use millpond_driver::{DriverError, RawGraph};
use smallvec::SmallVec;

use crate::names::error::Result;
use crate::state::access::{Access, movable, repeated};
use crate::state::context::Context;
use crate::stream::external::ExternalEvent;
use crate::stream::kernel::Kernel;
use crate::stream::native::Foreign;
use crate::trace::tracer::Tracer;

/// Work whose addresses each instance gives.
#[derive(Clone)]
pub(crate) struct Late {
    pub(crate) work: LateWork,
    /// One place for each declared access, in order.
    pub(crate) places: SmallVec<[LatePlace; 2]>,
}

/// The work, without its addresses.
#[derive(Clone)]
pub(crate) enum LateWork {
    /// A closure.
    Kernel(Kernel),
    /// Other work, whose addresses are to be filled in.
    Bytes(Box<Payload>),
}

/// The place of an access.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LatePlace {
    /// A known address.
    At(u64),
    /// `offset` bytes into the memory of one of the node's accesses.
    Within { access: u32, offset: u64 },
}

/// The work of a node.
#[derive(Clone)]
pub(crate) enum Payload {
    Nothing,
    Kernel(Kernel),
    HostFunction(Kernel),
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
    },
    /// A copy from bytes that the graph owns.
    Upload {
        to: u64,
        from: Arc<Vec<u8>>,
    },
    Memset {
        at: u64,
        bytes: u64,
        value: u8,
    },
    /// Work that foreign code submitted to a captured stream.
    Foreign(Arc<Foreign>),
    /// Work that foreign code is about to submit to a captured stream.
    Open,
    EventRecord(ExternalEvent),
    EventWait(ExternalEvent),
    /// Work of a graph with symbolic addresses: see [`Late`].
    Late(Arc<Late>),
}

/// The target of a declared operation, with the addresses that it has there. Code must look at the target to get at the
/// addresses.
pub(crate) enum To<'a, P> {
    /// The operation goes to the device, on this stream.
    Device(P),
    /// The operation goes into a graph, as the work of a node.
    Graph(&'a mut Payload, P),
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Payload::Nothing => "Nothing",
            Payload::Kernel(_) => "Kernel",
            Payload::HostFunction(_) => "HostFunction",
            Payload::Late(_) => "Late",
            Payload::Copy { .. } => "Copy",
            Payload::Upload { .. } => "Upload",
            Payload::Memset { .. } => "Memset",
            Payload::Foreign(_) => "Foreign",
            Payload::Open => "Open",
            Payload::EventRecord(_) => "EventRecord",
            Payload::EventWait(_) => "EventWait",
        })
    }
}

impl Payload {
    /// Makes the work of a node from the graph of what foreign code submitted to a captured stream, or no work if it
    /// submitted nothing.
    pub(crate) fn seen(context: &Context, graph: Option<RawGraph>) -> Self {
        graph.map_or(Payload::Nothing, |graph| Payload::Foreign(Arc::new(Foreign::new(context, graph))))
    }

    /// Makes a kernel. On a device without memory there are no slices: there the closure is kept and not run.
    pub(crate) fn kernel<A: Access>(
        context: &Context,
        place: A::Place,
        kernel: impl for<'a> FnMut(A::Slice<'a>) + Send + 'static,
    ) -> Self {
        let function = match context.properties.has_memory {
            true => repeated::<A>(place, kernel),
            false => Box::new(move || {
                let _ = &kernel;
            }),
        };
        Payload::Kernel(Kernel::fixed(context, function))
    }

    /// Makes a host function.
    pub(crate) fn host_function(context: &Context, function: impl FnMut() + Send + 'static) -> Self {
        Payload::HostFunction(Kernel::fixed(context, Box::new(function)))
    }

    /// As [`kernel`](Self::kernel), at addresses that each instance gives.
    pub(crate) fn movable_kernel<A: Access>(
        context: &Context,
        place: A::Place,
        kernel: impl for<'a> FnMut(A::Slice<'a>) + Send + 'static,
    ) -> Self {
        let function = match context.properties.has_memory {
            true => movable::<A>(place, kernel),
            false => Box::new(move |_: &[u64]| {
                let _ = &kernel;
            }),
        };
        let work = LateWork::Kernel(Kernel::movable(context, function));
        Payload::Late(Arc::new(Late { work, places: SmallVec::new() }))
    }

    /// Returns the same work at addresses that each instance gives.
    pub(crate) fn late(self, places: SmallVec<[LatePlace; 2]>) -> Self {
        let work = match self {
            Payload::Nothing => return self,
            Payload::Late(late) => late.work.clone(),
            payload => LateWork::Bytes(Box::new(payload)),
        };
        Payload::Late(Arc::new(Late { work, places }))
    }

    pub(crate) fn upload(to: u64, from: Arc<Vec<u8>>) -> Self {
        match from.is_empty() {
            true => Payload::Nothing,
            false => Payload::Upload { to, from },
        }
    }

    /// Returns the operation of the node as a trace has it, with its accesses as the trace has them.
    pub(crate) fn traced(&self, accesses: SmallVec<[millpond_core::op::Access; 2]>) -> NodeOp {
        match self {
            Payload::Kernel(_) | Payload::Foreign(_) | Payload::Open => NodeOp::Kernel(accesses),
            Payload::HostFunction(_) => NodeOp::HostFunction(accesses),
            Payload::Copy { .. } | Payload::Upload { .. } => NodeOp::Copy(accesses),
            Payload::Memset { .. } => NodeOp::Fill(accesses),
            Payload::EventRecord(event) => {
                event.traced().map_or(NodeOp::Empty, |event| Tracer::event_node(event, true))
            }
            Payload::EventWait(event) => event.traced().map_or(NodeOp::Empty, |event| Tracer::event_node(event, false)),
            Payload::Late(late) => match &late.work {
                LateWork::Kernel(_) => NodeOp::Kernel(accesses),
                LateWork::Bytes(payload) => payload.traced(accesses),
            },
            Payload::Nothing if accesses.is_empty() => NodeOp::Empty,
            Payload::Nothing => NodeOp::Kernel(accesses),
        }
    }

    /// Returns the kind of the node in words.
    pub(crate) fn noun(&self) -> &'static str {
        self.work().noun()
    }

    /// Returns the closure that the node runs, if it runs one.
    pub(crate) fn closure(&self) -> Option<&Kernel> {
        match self {
            Payload::Kernel(kernel) | Payload::HostFunction(kernel) => Some(kernel),
            _ => None,
        }
    }

    pub(crate) fn work(&self) -> Work {
        match self {
            Payload::HostFunction(_) => Work::HostFunction,
            Payload::Late(late) => match &late.work {
                LateWork::Kernel(_) => Work::Kernel,
                LateWork::Bytes(payload) => payload.work(),
            },
            Payload::Kernel(_) | Payload::Foreign(_) | Payload::Open => Work::Kernel,
            Payload::Copy { .. } | Payload::Upload { .. } => Work::Copy,
            Payload::Memset { .. } => Work::Memset,
            Payload::Nothing => Work::Empty,
            Payload::EventRecord(event) => Work::EventRecord(event.key()),
            Payload::EventWait(event) => Work::EventWait(event.key()),
        }
    }
}

impl Late {
    /// Returns the work at the addresses of an instance.
    pub(crate) fn at(&self, node: &FlatNode, core: &CoreExec) -> Payload {
        let address = |place: &LatePlace| place.address(node, core);
        let addresses: SmallVec<[u64; 4]> = self.places.iter().map(address).collect();
        let first = addresses.first().copied().unwrap_or_default();
        match &self.work {
            LateWork::Kernel(kernel) => Payload::Kernel(kernel.at(addresses)),
            LateWork::Bytes(payload) => match payload.as_ref() {
                // A copy declares the access that it reads, then the one that it writes.
                Payload::Copy { bytes, .. } => {
                    Payload::Copy { from: first, to: addresses.last().copied().unwrap_or_default(), bytes: *bytes }
                }
                Payload::Upload { from, .. } => Payload::Upload { to: first, from: Arc::clone(from) },
                Payload::Memset { bytes, value, .. } => Payload::Memset { at: first, bytes: *bytes, value: *value },
                other => other.clone(),
            },
        }
    }
}

/// Copies a host slice, for a later copy to the device. The caller chooses the size, and the host may not have so much
/// memory left.
pub(crate) fn staged<T: bytemuck::Pod>(call: &'static str, from: &[T]) -> Result<Arc<Vec<u8>>> {
    let (from, mut staged) = (bytemuck::cast_slice::<T, u8>(from), Vec::new());
    staged.try_reserve_exact(from.len()).map_err(|_| no_room(call, from.len() as u64))?;
    staged.extend_from_slice(from);
    Ok(Arc::new(staged))
}

#[cold]
pub(crate) fn no_room(call: &'static str, bytes: u64) -> DriverError {
    DriverError::Failed { call, reason: format!("the host has no {bytes} B of memory left for the copy") }
}

impl LatePlace {
    fn address(&self, node: &FlatNode, core: &CoreExec) -> u64 {
        let (access, offset) = match *self {
            LatePlace::At(address) => return address,
            LatePlace::Within { access, offset } => (access, offset),
        };
        match node.accesses.get(access as usize).map(|access| access.memory) {
            Some(Memory::Own(alloc)) => {
                let range = core.allocs()[alloc.index()].range.expect("an instance has all its addresses");
                range.start + offset
            }
            _ => unreachable!("no instance is made of what has no address in it"),
        }
    }
}
