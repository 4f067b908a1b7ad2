//! What the library's refusals are to the checker.

use millpond::{Error, Invalid, Nearest};
use millpond_core::check::Kind;
use millpond_core::graph::{CaptureError as CaptureRule, GraphError as GraphRule};
use millpond_core::op::Act;

/// What the library's refusal is to the checker; none where it follows from an earlier one.
pub(super) fn kind_of(error: &Error, act: Act) -> Option<Kind> {
    let before = if act == Act::Free { Kind::FreeBeforeAlloc } else { Kind::UseBeforeAlloc };
    let after = if act == Act::Free { Kind::DoubleFree } else { Kind::UseAfterFree };
    Some(match error {
        Error::Violation(violation) => violation.kind,
        Error::InvalidArgument(invalid) => match &**invalid {
            Invalid::Pointer { nearest: Nearest::OfGraph { .. }, .. } => before,
            Invalid::Stale | Invalid::Pointer { .. } => after,
            Invalid::NoAccess { .. } => Kind::NoAccess,
            Invalid::Aliased { .. } => Kind::Aliased,
            other => panic!("not a verdict: {other}"),
        },
        Error::Capture(capture) => match &**capture {
            millpond::CaptureError::Rule(rule) => match rule {
                CaptureRule::Invalidated(_) => return None,
                CaptureRule::Unjoined { .. } => Kind::CaptureUnjoined,
                CaptureRule::Isolation(_) => Kind::CaptureIsolation,
                CaptureRule::Merge { .. } => Kind::CaptureMerge,
                CaptureRule::Unsupported { .. }
                | CaptureRule::Implicit(_)
                | CaptureRule::LegacyStream
                | CaptureRule::CapturedEvent(_) => Kind::CaptureUnsupported,
                _ => Kind::CaptureState,
            },
            millpond::CaptureError::Uncapturable { .. } => Kind::CaptureUnsupported,
            millpond::CaptureError::NotGraphMemory { .. } => Kind::CaptureForeignFree,
            millpond::CaptureError::NotLaunched { .. } => before,
            other => panic!("not a verdict: {other}"),
        },
        Error::Graph(graph) => match &**graph {
            millpond::GraphError::Change(GraphRule::FreedAlready { .. })
            | millpond::GraphError::FreedByOther { .. } => Kind::DoubleFree,
            millpond::GraphError::ChildTwice(_)
            | millpond::GraphError::Update(_)
            | millpond::GraphError::Change(_)
            | millpond::GraphError::MadeAnew { .. }
            | millpond::GraphError::Symbolic(_)
            | millpond::GraphError::SymbolicCapture(_) => Kind::GraphRefused,
            millpond::GraphError::Unfreed(_) => Kind::UnfreedLaunch,
            millpond::GraphError::AddressesTaken { .. } => Kind::SharedAddresses,
            millpond::GraphError::NotLive { act: Act::Free, freed: Some(_), .. } => Kind::DoubleFree,
            millpond::GraphError::NotLive { freed: Some(_), .. } => Kind::UseAfterFree,
            millpond::GraphError::NotLive { act: Act::Free, .. } => Kind::FreeBeforeAlloc,
            millpond::GraphError::NotLive { .. } => Kind::UseBeforeAlloc,
            millpond::GraphError::Freed { .. } => Kind::UseAfterFree,
            millpond::GraphError::Outlived { .. } => after,
            other => panic!("not a verdict: {other}"),
        },
        other => panic!("not a verdict: {other}"),
    })
}
