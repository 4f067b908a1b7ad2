//! Nodes that may start before the kernel before them has completed (CUDA: a programmatic edge, which a kernel has to
//! each kernel that it would come after).
//!
//! Such a node starts once those kernels have started: after what *they* had to come after, and after every node before
//! it that is no kernel. Whatever streams and waits the edges came from makes no difference. The simple version walks
//! back over all early nodes before it. Here each keeps the last nodes that have completed when it starts, so that a
//! chain of them takes no longer with each. Knows nodes and edges.

use std::sync::Arc;

use super::graph::{Graph, NodeKind};
use super::node::{NodeId, Work};

/// The last nodes that have completed when a node starts early.
pub type CompletedNodes = Arc<[NodeId]>;

impl Graph {
    /// What has completed when a node starts early after `tails`; `early` says it of those that did so themselves.
    pub fn completed_before<'e>(
        &self,
        tails: &[NodeId],
        early: impl Fn(NodeId) -> Option<&'e CompletedNodes>,
    ) -> CompletedNodes {
        if let [tail] = tails
            && let Some(completed) = early(*tail)
        {
            return Arc::clone(completed);
        }
        let mut completed = Vec::new();
        for &tail in tails {
            match (early(tail), self.node(tail)) {
                (Some(before), _) => completed.extend_from_slice(before),
                (None, Some(node)) if self.is_kernel(tail) => completed.extend_from_slice(&node.before),
                _ => completed.push(tail),
            }
        }
        completed.sort_unstable();
        completed.dedup();
        completed.into()
    }

    /// Whether a node is a kernel that may still run when one starts early after `tails`, where these have completed.
    pub fn may_run(&mut self, node: NodeId, tails: &[NodeId], completed: &[NodeId]) -> bool {
        let is_kernel = self.is_kernel(node);
        let index = self.refresh();
        let is_before = |ends: &[NodeId]| ends.iter().any(|&end| index.reaches_or_is(node, end));
        is_kernel && is_before(tails) && !is_before(completed)
    }

    fn is_kernel(&self, node: NodeId) -> bool {
        self.node(node).is_some_and(|node| matches!(node.kind, NodeKind::Work(Work::Kernel)))
    }
}
