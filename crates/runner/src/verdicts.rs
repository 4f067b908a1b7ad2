//! Maps the library's refusals to the checker's kinds.

use millpond::Error;
use millpond::error::{Invalid, Nearest};
use millpond_core::check::Kind;
use millpond_core::op::Act;

/// `cudaErrorStreamCaptureInvalidated`.
const INVALIDATED: u32 = 901;

/// Returns the checker's kind for the library's refusal, or `None` if it follows from an earlier one.
///
/// # Panics
/// It is not a verdict: the reason is memory, the driver or the device.
pub fn kind_of(error: &Error, act: Act) -> Option<Kind> {
    Some(match error {
        Error::Violation(violation) if violation.code == Some(INVALIDATED) => return None,
        Error::Violation(violation) => violation.kind,
        Error::InvalidArgument(invalid) => match &**invalid {
            Invalid::Pointer { nearest: Nearest::OfGraph { .. }, .. } | Invalid::NotLaunched { .. } => {
                Kind::before_alloc(act)
            }
            Invalid::Stale | Invalid::Pointer { .. } => Kind::after_free(act),
            Invalid::Uncapturable { .. } => Kind::CaptureUnsupported,
            Invalid::SymbolicCapture(_) => Kind::GraphRefused,
            other => panic!("not a verdict: {other}"),
        },
        other => panic!("not a verdict: {other}"),
    })
}

/// Returns `true` if a refusal may be about memory that does not exist because its graph, or a launch, was refused. The
/// checker reports that once, and the library each time.
pub(crate) fn may_be_unmade(error: &Error, kind: Kind, has_launched: bool) -> bool {
    match kind {
        Kind::UseBeforeAlloc | Kind::FreeBeforeAlloc => {
            !matches!(error, Error::Violation(violation) if violation.earlier.is_some())
        }
        Kind::UseAfterFree | Kind::DoubleFree => has_launched,
        _ => false,
    }
}
