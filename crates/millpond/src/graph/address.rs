//! Which alloc node an address means: in a graph, and to who knows of all graphs of a device.
//!
//! Addresses serve again within a graph, so that several of its nodes may have one: the node that was added last is
//! meant. A graph knows its children as they were when they became that.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use millpond_core::graph::{GraphAlloc, GraphAllocId, GraphId};
use millpond_core::units::Range;
use millpond_driver::locks::lock;

use super::body::Body;
use super::registry::Graphs;
use crate::graph::arena::Arena;
use crate::names::count::Count;
use crate::state::named::{MemAllocNode, NodeName};

/// An alloc node, and where its memory is.
type Found = ((GraphId, GraphAllocId), Range);

impl MemAllocNode<u8> {
    /// The name of what was found.
    pub(crate) fn of_address(device: u32, ((graph, alloc), memory): Found) -> Option<Self> {
        let name = NodeName { device, graph, alloc, address: memory.start };
        Some(Self::new(Some(name), Count::of_bytes(memory.bytes)?))
    }
}

impl Body {
    /// The alloc node that an address means here: this graph's, or one of its children.
    pub(crate) fn node_around(&self, address: u64) -> Option<Found> {
        let (id, core) = (self.core.id(), &self.core);
        let own = self.arena.node_around(address).and_then(|found| match found.0 {
            (graph, alloc) if graph == id && core.alloc(alloc).is_some() => Some(found),
            // The arena is that of the graph as it is now.
            _ => {
                let range = |it: &GraphAlloc| Some(Range::new(it.range?.start, it.bytes));
                let memory = core.allocs().filter_map(|(number, it)| Some(((id, number), range(it)?)));
                memory.filter(|(_, memory)| memory.contains(address)).last()
            }
        });
        own.or_else(|| self.children.values().find_map(|child| child.node_around(address)))
    }
}

impl Graphs {
    /// The alloc node that an address means, whichever graph that is of.
    pub(crate) fn node_around(&self, address: u64) -> Option<Found> {
        // Where there never was an arena nothing is locked: each use that C declares asks.
        if self.next_arena.load(Ordering::Acquire) == 0 {
            return None;
        }
        // Let go behind the lock: the last reference to an arena has its addresses with it.
        let arenas: Vec<Arc<Arena>> = lock(&self.arenas).iter().filter_map(Weak::upgrade).collect();
        arenas.iter().find_map(|arena| arena.node_around(address))
    }

    /// Whether an alloc node's memory is live: a launch has left it, and it is not freed.
    pub(crate) fn is_live(&self, node: (GraphId, GraphAllocId)) -> bool {
        self.named(node).is_some_and(|allocation| {
            let life = allocation.life();
            life.was_launched() && life.freed.is_none()
        })
    }
}
