//! Finds the alloc node at an address: in one graph, and in all graphs of a device.
//!
//! Addresses are reused within a graph, so several of its nodes may have the same one. The node that was added last is
//! meant. A graph knows each child as the child was when it was added.

use millpond_core::graph::{GraphAlloc, GraphAllocId, GraphId};
use millpond_core::units::Range;
use millpond_driver::locks::lock;
use std::sync::atomic::Ordering;

use super::body::Body;
use super::registry::Graphs;
use crate::names::count::Count;
use crate::state::named::{MemAllocNode, NodeName};

/// An alloc node, and the range of its memory.
type Found = ((GraphId, GraphAllocId), Range);

impl MemAllocNode<u8> {
    /// Returns the name of a found alloc node.
    pub(crate) fn of_address(device: u32, ((graph, alloc), memory): Found) -> Option<Self> {
        let name = NodeName { device, graph, alloc, address: memory.start };
        Some(Self::new(Some(name), Count::of_bytes(memory.bytes)?))
    }
}

impl Body {
    /// Returns the alloc node at an address, in this graph or one of its children.
    pub(crate) fn node_around(&self, address: u64) -> Option<Found> {
        let (id, core) = (self.core.id(), &self.core);
        let own = self.arena.node_around(address).and_then(|found| match found.0 {
            (graph, alloc) if graph == id && core.alloc(alloc).is_some() => Some(found),
            // The arena describes the graph as it is now. This body may be an older copy.
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
    /// Returns the alloc node at an address, in any graph of the device.
    pub(crate) fn node_around(&self, address: u64) -> Option<Found> {
        // Each use that C declares asks here. If no arena was ever made, nothing is locked.
        if self.next_arena.load(Ordering::Acquire) == 0 {
            return None;
        }
        // Dropped after the lock is released: the last reference to an arena frees its addresses.
        let arenas = lock(&self.arenas).live();
        arenas.iter().find_map(|arena| arena.node_around(address))
    }

    /// Returns `true` if an alloc node's memory is live: a launch has left it, and it is not freed.
    pub(crate) fn is_live(&self, node: (GraphId, GraphAllocId)) -> bool {
        self.named(node).is_some_and(|allocation| {
            let life = allocation.life();
            life.was_launched() && life.freed.is_none()
        })
    }
}
