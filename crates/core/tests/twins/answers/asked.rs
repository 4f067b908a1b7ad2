//! The settings and steps that all of these tests use.

use millpond_core::check::{Checker, Done, Finding, Reason, Refusal, Settings};
use millpond_core::op::{Names, Op};

use super::program::Kinds;

/// Only violations are looked for.
pub(crate) const VIOLATIONS: Settings = Settings { leaks: false, advice: false, ..Settings::RECORDED };

impl Kinds {
    /// Programs of streams, events and memory. Some have host threads, and some have streams that end.
    pub(crate) fn of(seed: u64) -> Self {
        let (hosts, ends) = (seed.is_multiple_of(3), seed.is_multiple_of(5));
        Kinds { graphs: false, memory_nodes: false, parts: false, hosts, ends }
    }
}

/// Makes a step. Returns its effects, and the reason if it was refused.
pub(crate) fn step(checker: &mut Checker, op: &Op, names: &Names) -> (Done, Option<Reason>) {
    match checker.step(op, names) {
        Ok(done) => (done, None),
        Err(refusal) => {
            let Refusal { reason, done } = *refusal;
            (done, Some(reason))
        }
    }
}

/// As [`step`], and the device confirms the operation at once.
pub(crate) fn step_at_once(checker: &mut Checker, op: &Op, names: &Names) -> (Done, Option<Reason>) {
    let (done, reason) = step(checker, op, names);
    if let Some((stream, point)) = done.stream.zip(done.point) {
        checker.advance(stream, point.seq, names);
    }
    (done, reason)
}

/// Returns the finding of a refusal, or `None` if it follows from another one.
pub(crate) fn finding(reason: Option<Reason>) -> Option<Finding> {
    match reason {
        Some(Reason::Finding(finding)) => Some(*finding),
        _ => None,
    }
}
