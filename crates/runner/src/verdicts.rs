//! What the library's refusals are to the checker.

use millpond::Error;
use millpond::error::{Invalid, Nearest};
use millpond_core::check::Kind;
use millpond_core::graph::{CaptureError as CaptureRule, GraphError as GraphRule};
use millpond_core::op::Act;

/// What the library's refusal is to the checker; none where it follows from an earlier one.
///
/// # Panics
/// It is no verdict: memory, the driver or the device is the reason.
pub fn kind_of(error: &Error, act: Act) -> Option<Kind> {
    let before = if act == Act::Free { Kind::FreeBeforeAlloc } else { Kind::UseBeforeAlloc };
    let after = if act == Act::Free { Kind::DoubleFree } else { Kind::UseAfterFree };
    Some(match error {
        Error::Violation(violation) => violation.kind,
        Error::InvalidArgument(invalid) => match &**invalid {
            Invalid::Pointer { nearest: Nearest::OfGraph { .. }, .. } => before,
            Invalid::Stale | Invalid::Pointer { .. } => after,
            Invalid::NoAccess { .. } | Invalid::InUse { .. } => Kind::NoAccess,
            Invalid::Overlap { .. } => Kind::Aliased,
            other => panic!("not a verdict: {other}"),
        },
        Error::Capture(capture) => match &**capture {
            millpond::error::CaptureError::Rule { rule, .. } => match rule {
                CaptureRule::Invalidated(_) => return None,
                CaptureRule::Unjoined { .. } => Kind::CaptureUnjoined,
                CaptureRule::Isolation(_) => Kind::CaptureIsolation,
                CaptureRule::Merge { .. } => Kind::CaptureMerge,
                CaptureRule::CapturedEvent(_) => Kind::CapturedEvent,
                CaptureRule::Unsupported { .. } | CaptureRule::Implicit(_) | CaptureRule::LegacyStream => {
                    Kind::CaptureUnsupported
                }
                _ => Kind::CaptureState,
            },
            millpond::error::CaptureError::Uncapturable { .. } => Kind::CaptureUnsupported,
            millpond::error::CaptureError::NotGraphMemory { .. } => Kind::CaptureForeignFree,
            millpond::error::CaptureError::NotLaunched { .. } => before,
            other => panic!("not a verdict: {other}"),
        },
        Error::Graph(graph) => match &**graph {
            millpond::error::GraphError::Change(GraphRule::FreedAlready { .. })
            | millpond::error::GraphError::FreedByOther { .. } => Kind::DoubleFree,
            millpond::error::GraphError::ChildTwice(_)
            | millpond::error::GraphError::Copy(_)
            | millpond::error::GraphError::Update(_)
            | millpond::error::GraphError::Change(_)
            | millpond::error::GraphError::MadeAnew { .. }
            | millpond::error::GraphError::Symbolic(_)
            | millpond::error::GraphError::SymbolicCapture(_) => Kind::GraphRefused,
            millpond::error::GraphError::Unfreed(_) => Kind::UnfreedLaunch,
            millpond::error::GraphError::NotLive { act: Act::Free, freed: Some(_), .. } => Kind::DoubleFree,
            millpond::error::GraphError::NotLive { freed: Some(_), .. } => Kind::UseAfterFree,
            millpond::error::GraphError::NotLive { act: Act::Free, .. } => Kind::FreeBeforeAlloc,
            millpond::error::GraphError::NotLive { .. } => Kind::UseBeforeAlloc,
            millpond::error::GraphError::Freed { .. } => Kind::UseAfterFree,
            other => panic!("not a verdict: {other}"),
        },
        other => panic!("not a verdict: {other}"),
    })
}

/// Whether a refusal may be of memory that is not there because its graph, or a launch, was refused: the checker says
/// that once, and the library each time.
pub(crate) fn may_be_unmade(error: &Error, kind: Kind, has_launched: bool) -> bool {
    match kind {
        Kind::UseBeforeAlloc | Kind::FreeBeforeAlloc => {
            !matches!(error, Error::Violation(violation) if violation.earlier.is_some())
        }
        Kind::UseAfterFree | Kind::DoubleFree => has_launched,
        _ => false,
    }
}
