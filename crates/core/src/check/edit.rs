//! The edits of a program that settle findings by adding the edges that the findings name.

use super::finding::Finding;
use crate::life::Kind;

/// The edges to add to settle a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Edit {
    /// The later side's stream waits for events that are recorded on the streams of all other sides, at or after their
    /// operations. A host synchronises with those events instead. A process learns it from the process that knows.
    Order,
    /// An edge from each node that has to come first to the later node.
    Edge,
}

impl Edit {
    /// Returns a stable name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Edit::Order => "order",
            Edit::Edge => "edge",
        }
    }
}

impl Finding {
    /// Returns the edges to add to settle the finding, or `None` if edges would not settle it. The [help](Self::help)
    /// then says what to change.
    pub fn edit(&self) -> Option<Edit> {
        match (self.kind, self.graph) {
            (Kind::CaptureUnjoined, _) => Some(Edit::Order),
            _ if self.missing.is_empty() => None,
            (_, Some(_)) => Some(Edit::Edge),
            (_, None) => Some(Edit::Order),
        }
    }
}
