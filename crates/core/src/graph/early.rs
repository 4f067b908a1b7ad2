//! Nodes that may start before the kernel before them has completed (CUDA: a programmatic edge, which a kernel has to
//! each kernel that it would come after).
//!
//! Such a node starts once those kernels have started: after what *they* had to come after, and after every node before
//! it that is no kernel. Whatever streams and waits the edges came from makes no difference. Knows nodes and edges.

use rustc_hash::FxHashSet;

use super::graph::{Graph, NodeKind};
use super::node::{NodeId, Work};

impl Graph {
    /// The kernels that may still run when a node starts early after `tails`; `is_early` says which nodes did so
    /// themselves. In the order of their numbers.
    pub fn overlapped(&mut self, tails: &[NodeId], is_early: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
        let (mut open, mut running, mut over) = (tails.to_vec(), Vec::new(), Vec::new());
        let mut seen: FxHashSet<NodeId> = tails.iter().copied().collect();
        while let Some(id) = open.pop() {
            let Some(node) = self.node(id) else { continue };
            match node.kind {
                NodeKind::Work(Work::Kernel) if is_early(id) => {
                    open.extend(node.before.iter().filter(|&&it| seen.insert(it)));
                    running.push(id);
                }
                NodeKind::Work(Work::Kernel) => {
                    over.extend_from_slice(&node.before);
                    running.push(id);
                }
                _ => over.push(id),
            }
        }
        let index = self.refresh();
        running.retain(|&kernel| !over.iter().any(|&node| index.reaches_or_is(kernel, node)));
        running.sort_unstable();
        running
    }
}
