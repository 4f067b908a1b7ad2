//! Which findings are settled by edges that they name.

use super::finding::Finding;
use crate::life::Kind;

/// What is added to settle a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Edit {
    /// The later side's stream waits for events that are recorded on the streams of all other sides, at or after their
    /// operations. A host synchronises them instead; a process learns of it from the process that knows.
    Order,
    /// An edge from each node that has to come first to the later one.
    Edge,
}

impl Edit {
    /// A stable name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Edit::Order => "order",
            Edit::Edge => "edge",
        }
    }
}

impl Finding {
    /// What is added to settle it; none where edges would not: then the [help](Self::help) says what to change.
    pub fn edit(&self) -> Option<Edit> {
        match (self.kind, self.graph) {
            (Kind::CaptureUnjoined, _) => Some(Edit::Order),
            _ if self.missing.is_empty() => None,
            (_, Some(_)) => Some(Edit::Edge),
            (_, None) => Some(Edit::Order),
        }
    }
}
