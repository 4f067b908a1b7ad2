//! What CUDA refuses for graphs with memory nodes, refused here where the program asks for that.
//!
//! Knows a graph's nodes, and how many instances it has.

use millpond_core::graph::NodeKind;
use millpond_driver::locks::lock;

use super::body::Body;
use crate::names::error::Result;
use crate::names::graph_error::GraphError;

fn is_memory(kind: &NodeKind) -> bool {
    matches!(kind, NodeKind::MemAlloc(_) | NodeKind::MemFree(_))
}

impl Body {
    /// Refuses a change that CUDA refuses for graphs with memory nodes, where that is asked for.
    pub(crate) fn check_limits(&self, what: &'static str) -> Result<()> {
        let has_memory = || self.core.nodes().any(|(_, node)| is_memory(&node.kind));
        match self.has_cuda_limits && has_memory() {
            true => Err(GraphError::CudaLimit { what }.into()),
            false => Ok(()),
        }
    }

    /// Refuses a second instance, and one of a clone, where that is asked for.
    pub(crate) fn check_instances(&self) -> Result<()> {
        if !self.originals.is_empty() {
            self.check_limits("be cloned")?;
        }
        match lock(&self.instance).strong_count() {
            0 => Ok(()),
            _ => self.check_limits("have a second instance while one lives"),
        }
    }
}
