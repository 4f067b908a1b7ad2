//! How the checker is asked in all of these tests.

use millpond_core::check::{Checker, Done, Finding, Reason, Refusal, Settings};
use millpond_core::op::{Names, Op};

use super::program::Kinds;

/// Violations alone are looked for.
pub(crate) const VIOLATIONS: Settings = Settings { races: true, leaks: false, advice: false };

impl Kinds {
    /// Programs of streams, events and memory; some have host threads, and some streams that end.
    pub(crate) fn of(seed: u64) -> Self {
        let (hosts, ends) = (seed.is_multiple_of(3), seed.is_multiple_of(5));
        Kinds { graphs: false, memory_nodes: false, parts: false, hosts, ends }
    }
}

/// A step: what it has done, and why it was refused if it was.
pub(crate) fn step(checker: &mut Checker, op: &Op, names: &Names) -> (Done, Option<Reason>) {
    match checker.step(op, names) {
        Ok(done) => (done, None),
        Err(refusal) => {
            let Refusal { reason, done } = *refusal;
            (done, Some(reason))
        }
    }
}

/// As [`step`]; the device has at once what is done.
pub(crate) fn step_at_once(checker: &mut Checker, op: &Op, names: &Names) -> (Done, Option<Reason>) {
    let (done, reason) = step(checker, op, names);
    if let Some((stream, point)) = done.stream.zip(done.point) {
        checker.advance(stream, point.seq, names);
    }
    (done, reason)
}

/// What a refusal found; none where it follows from another one.
pub(crate) fn finding(reason: Option<Reason>) -> Option<Finding> {
    match reason {
        Some(Reason::Finding(finding)) => Some(*finding),
        _ => None,
    }
}
