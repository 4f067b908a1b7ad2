//! Runs each operation with the library and with the checker, and compares their refusals.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond::Error;
use millpond_core::check::Kind as Rule;
use millpond_core::ids::{HostId, StreamId};
use millpond_core::op::{Access, Names, Op, Place, Trust, What};
use millpond_runner::{Cannot, Refusal, Work};

use super::Thread;
use crate::finding::finding;
use crate::kind::Kind;
use crate::model::Order;
use crate::text;

/// The largest number of refused operations of a program that the model checks.
const WRONG: usize = 12;

/// Returns `true` if a rule is about captures. A capture of another thread may cause such a refusal, and may end this
/// thread's capture.
fn is_of_captures(rule: Rule) -> bool {
    use Rule::{
        CaptureForeignFree, CaptureIsolation, CaptureMerge, CaptureState, CaptureUnjoined, CaptureUnsupported,
        CapturedEvent,
    };
    matches!(
        rule,
        CaptureForeignFree
            | CaptureIsolation
            | CaptureMerge
            | CaptureState
            | CaptureUnjoined
            | CaptureUnsupported
            | CapturedEvent
    )
}

impl Thread<'_> {
    /// Makes and logs the next operation.
    fn next(&mut self, what: What) -> Op {
        let op = Op { host: HostId(0), place: Place::Line(self.ops.len() as u32 + 1), what };
        let number = match &op.what {
            What::GraphNode { graph, .. } => self.nodes.get(&graph.0).copied().unwrap_or(0),
            _ => 0,
        };
        self.stage.say(self.number, format_args!("{}", text::line(&op, number)));
        self.ops.push(op.clone());
        op
    }

    /// Returns `true` if every verdict must be the checker's.
    pub(super) fn is_exact(&self) -> bool {
        self.stage.is_exact() && !self.has_lost_track
    }

    /// Runs an operation. Returns `true` if it is done.
    pub(super) fn perform(&mut self, what: What) -> bool {
        self.perform_with(what, None)
    }

    /// Runs an operation with this work. Returns `true` if it is done.
    pub(super) fn perform_with(&mut self, what: What, work: Option<Work>) -> bool {
        let op = self.next(what);
        self.has_failed = false;
        let refused = self.run.found().refused.len();
        let done = match work {
            Some(work) => self.run.step_with(&op, work),
            None => self.run.step(&op),
        };
        match done {
            Ok(()) => {
                let said = &self.run.found().verdict;
                let mut new: BTreeSet<Refusal> = said.difference(&self.by_runner).copied().collect();
                self.by_runner.extend(&new);
                let is_refused = self.run.found().refused.len() > refused;
                // An operation that was not done had this line before, and may have been refused for the same rule.
                if is_refused && new.is_empty() {
                    let line = self.ops.len() as u32;
                    new.extend(said.iter().filter(|it| it.line == line));
                }
                // In a capture that another thread has made invalid, a refusal is not a verdict.
                let is_quiet = is_refused && new.is_empty();
                if is_quiet && self.stage.setting.threads > 1 && self.stage.setting.has(Kind::Capture) {
                    return self.not_done("in a capture that is invalid");
                }
                self.compare(op, new)
            }
            Err(Cannot::Memory(why)) => {
                if !matches!(op.what, What::Alloc { .. } | What::GraphLaunch { .. } | What::GraphUpload { .. }) {
                    finding(&format!("{}: {why}", text::line(&op, 0)));
                }
                self.not_done(&why)
            }
            Err(Cannot::Failed(error)) => {
                self.is_failure(&error);
                self.has_failed = true;
                self.not_done(&error.to_string());
                // It may have been done in part.
                let is_plain = matches!(
                    op.what,
                    What::Alloc { .. }
                        | What::StreamCreate { .. }
                        | What::PoolCreate { .. }
                        | What::Launch { .. }
                        | What::EventRecord { .. }
                        | What::EventWait { .. }
                );
                if !is_plain {
                    self.lose_track();
                }
                false
            }
            Err(Cannot::Ask(why)) => self.not_done(&why),
        }
    }

    /// Handles an operation for which the library was called directly, not by the runner.
    pub(super) fn perform_by(&mut self, what: What, act: millpond_core::op::Act, result: Result<(), Error>) -> bool {
        let op = self.next(what);
        let mut new = BTreeSet::new();
        match result {
            Err(error @ (Error::Driver(_) | Error::DeviceLost { .. })) => {
                self.is_failure(&error);
                self.not_done(&error.to_string());
                self.lose_track();
                return false;
            }
            Err(error) => {
                if let Some(kind) = millpond_runner::kind_of(&error, act) {
                    new.insert(Refusal { line: self.ops.len() as u32, kind });
                }
            }
            Ok(()) => {}
        }
        self.compare(op, new)
    }

    /// Runs an operation with both, without comparing their answers.
    pub(super) fn end_quietly(&mut self, what: What) {
        self.lose_track();
        let op = self.next(what);
        drop(self.run.step(&op));
        self.by_runner.extend(&self.run.found().verdict);
        self.checker.check(&op, &Names::default(), &mut Vec::new());
        self.followed.push(self.ops.len() - 1);
    }

    /// Runs an operation with the checker only.
    pub(super) fn tell(&mut self, what: What) {
        let op = self.next(what);
        self.checker.check(&op, &Names::default(), &mut Vec::new());
    }

    /// Handles a direct call of the library that is right. Only failures that were injected are allowed.
    pub(super) fn is_fine<T>(&mut self, call: &str, result: Result<T, Error>) -> Option<T> {
        self.stage.say(self.number, format_args!("# {call}"));
        match result {
            Ok(it) => Some(it),
            Err(error @ (Error::Driver(_) | Error::DeviceLost { .. })) => {
                self.is_failure(&error);
                None
            }
            Err(Error::Violation(finding))
                if finding.kind.is_about_captures()
                    && self.stage.setting.has(Kind::Capture)
                    && self.stage.setting.threads > 1 =>
            {
                None
            }
            Err(error) => finding(&format!("{call}: refused, and it is right: {}", error.report())),
        }
    }

    /// Checks that a failure was injected.
    fn is_failure(&self, error: &Error) {
        let is_meant = match error {
            Error::DeviceLost { .. } => self.stage.ground.is_any_lost(),
            _ => {
                let was_struck = self.stage.devices.iter().any(|it| !it.driver.struck().is_empty());
                self.stage.setting.has(Kind::Fail) && was_struck
            }
        };
        if !is_meant {
            finding(&format!("nothing was to fail: {}", error.report()));
        }
    }

    /// From now on the library may know more than the checker. The model can be asked up to here.
    pub(super) fn lose_track(&mut self) {
        self.ask_the_model();
        self.has_lost_track = true;
    }

    /// Removes the current operation, which was not done. The checker is not asked.
    fn not_done(&mut self, why: &str) -> bool {
        self.stage.say(self.number, format_args!("# not done: {}", why.replace('\n', " ")));
        self.stage.ground.figures.refusals.fetch_add(1, Ordering::Relaxed);
        self.ops.pop();
        false
    }

    /// Lets the checker do what the library has done or refused, and compares. `new` has the library's new refusals.
    fn compare(&mut self, op: Op, new: BTreeSet<Refusal>) -> bool {
        // Another thread may be capturing, or may be using the memory whose access is revoked.
        let may_be_anothers = match op.what {
            What::PoolAccess { .. } => true,
            _ => self.stage.setting.has(Kind::Capture) && new.iter().all(|it| is_of_captures(it.kind)),
        };
        if self.stage.setting.threads > 1 && !new.is_empty() && may_be_anothers {
            return self.not_done("for what another thread does");
        }
        let mut findings = Vec::new();
        let is_done = self.checker.check(&op, &Names::default(), &mut findings);
        let found = findings.iter().filter(|it| !it.kind.is_advice() && it.kind != Rule::Leak);
        let found: BTreeSet<Refusal> =
            found.map(|it| Refusal { line: it.line().unwrap_or(0), kind: it.kind }).collect();
        // A graph is refused at the lines of its nodes, each time for the same ones.
        if found.difference(&self.refused).eq(new.difference(&self.refused)) {
            self.refused.extend(&found);
            if !is_done || !found.is_empty() {
                // The model has no operation that shows an error inside a graph.
                let is_inside = matches!(op.what, What::Instantiate { .. } | What::ExecUpdate { .. });
                let is_order = found.iter().all(|it| it.kind.is_about_order());
                let is_wrong = !found.is_empty() && is_order && !is_inside;
                let list = if is_wrong { &mut self.wrong } else { &mut self.followed };
                list.push(self.ops.len() - 1);
            }
            if !found.is_empty() {
                let kinds: Vec<&str> = found.iter().map(|it| it.kind.name()).collect();
                self.stage.say(self.number, format_args!("# refused: {}", kinds.join(", ")));
                self.stage.ground.figures.refusals.fetch_add(1, Ordering::Relaxed);
            }
            if let (What::GraphNode { graph, .. }, true) = (&op.what, is_done) {
                *self.nodes.entry(graph.0).or_default() += 1;
            }
            return is_done && new.is_empty();
        }
        if !self.is_exact() && !found.is_empty() {
            if new.is_empty() {
                return self.accept(op);
            }
            // About this operation the library knows more.
            self.followed.push(self.ops.len() - 1);
            return false;
        }
        let words = |all: &BTreeSet<Refusal>| match all.iter().map(|it| it.kind.name()).collect::<Vec<_>>().as_slice() {
            [] => "accepts it".to_owned(),
            all => format!("refuses it: {}", all.join(", ")),
        };
        let checker = words(&found);
        let sentence = findings.first().map_or(String::new(), |it| format!("\n{}", it.sentence));
        finding(&format!("the library {}; the checker {checker}: {}{sentence}", words(&new), text::line(&op, 0)));
    }

    /// Accepts an operation, because the library knew more than the checker. The checker does it without an order
    /// check.
    fn accept(&mut self, op: Op) -> bool {
        self.stage.say(self.number, format_args!("# accepted, after what others did"));
        self.followed.push(self.ops.len() - 1);
        let what = match op.what {
            What::Launch { stream, accesses, name, .. } => What::Launch { stream, accesses, name, trust: Trust::Order },
            What::Copy { stream, accesses } => What::Launch { stream, accesses, name: None, trust: Trust::Order },
            What::Free { memory, stream, .. } => What::Free { memory, stream, trust: Trust::Order },
            What::FreeNow { memory } => What::Drop { memory },
            What::PoolAccess { .. } => {
                // The last uses of the memory have completed. The checker must know that, or it refuses the operation
                // again.
                self.synchronize(0);
                op.what
            }
            other => {
                // The operation has changed more than can be followed.
                let is_a_launch = matches!(other, What::GraphLaunch { .. });
                self.has_failed = is_a_launch;
                self.lose_track();
                return !is_a_launch;
            }
        };
        let op = Op { what, ..op };
        self.checker.check(&op, &Names::default(), &mut Vec::new())
    }

    /// Returns `None` if a use on a stream is in order, else the streams that it must come after and does not.
    pub(super) fn misses(&mut self, stream: StreamId, accesses: &[Access]) -> Option<Vec<StreamId>> {
        let what = What::Launch { stream, accesses: accesses.into(), trust: Trust::None, name: None };
        let op = Op { host: HostId(0), place: Place::Unknown, what };
        let found = self.checker.judge_launch(&op, &Names::default()).err()?;
        Some(found.missing.iter().filter_map(|edge| edge.after.stream).collect())
    }

    /// Checks with the model. Accepted operations must be in order, and reused memory must come after its former uses.
    /// Operations that were refused for their order must be out of order.
    pub(super) fn ask_the_model(&self) {
        // The model has the operations of one thread only. It does not know what other threads waited for.
        if !self.is_exact() {
            return;
        }
        let is_done = |at: &usize| !self.wrong.contains(at) && !self.followed.contains(at);
        let upto = |end: usize| (0..end).filter(is_done).map(|at| self.ops[at].clone()).collect::<Vec<_>>();
        let Some(order) = Order::of(&upto(self.ops.len())) else { return };
        self.stage.ground.figures.modelled.fetch_add(1, Ordering::Relaxed);
        if let Some(what) = order.fault() {
            finding(&format!("accepted, and the model finds it out of order: {what}"));
        }
        for (pending, born) in &self.reused {
            let kernel = self.kernels.iter().find(|(done, _)| Arc::ptr_eq(done, &pending.kernel));
            if kernel.is_some_and(|(_, kernel)| !order.is_before(*kernel, *born)) {
                pending.is_unordered();
            }
        }
        for at in self.wrong.iter().take(WRONG) {
            let mut ops = upto(*at);
            // The work of a capture that has not ended runs in no launch.
            let begun = ops.iter().filter(|op| matches!(op.what, What::CaptureBegin { .. })).count();
            let ended = ops.iter().filter(|op| matches!(op.what, What::CaptureEnd { .. })).count();
            ops.push(self.ops[*at].clone());
            if begun == ended && Order::of(&ops).is_some_and(|order| order.fault().is_none()) {
                finding(&format!("refused, and the model finds it in order: {}", text::line(&self.ops[*at], 0)));
            }
        }
    }
}
