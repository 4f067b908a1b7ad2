//! What graphs allocate, by address.

use millpond_driver::locks::{Mutex, lock};
use std::collections::BTreeMap;

use millpond::graph::MemAllocNode;

use super::ranks;

/// What a graph's alloc nodes allocate, by address. Of two nodes at one address the later one counts: whatever comes
/// after it in the graph means it.
#[derive(Default)]
pub(crate) struct AllocNodes {
    nodes: Mutex<ranks::AllocNodes, BTreeMap<u64, MemAllocNode<u8>>>,
}

impl AllocNodes {
    pub(crate) fn add(&self, node: MemAllocNode<u8>) {
        if node.address() != 0 {
            lock(&self.nodes).insert(node.address(), node);
        }
    }

    /// The node whose memory an address lies in, and how far.
    pub(crate) fn containing(&self, address: u64) -> Option<(MemAllocNode<u8>, u64)> {
        let nodes = lock(&self.nodes);
        let (start, node) = nodes.range(..=address).next_back()?;
        let offset = address - start;
        (offset < node.len() as u64).then_some((*node, offset))
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<MemAllocNode<u8>> {
        lock(&self.nodes).values().copied().collect()
    }
}
