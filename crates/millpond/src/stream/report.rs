//! The handling of a violation: the operation is refused, or the violation is reported and the operation goes on.
//!
//! An operation that goes on must not use memory while other work uses it: slices of that memory would overlap. So the
//! missing edge is added, and the program goes on as if it had been right. A trace has the refused operation, the edge,
//! and the operation again.

use std::sync::Arc;

use millpond_core::check::{Act, Edge, Finding, Kind, Side};
use millpond_core::ids::StreamId;
use millpond_core::order::{Host, Knows};
use millpond_driver::Driver;

use crate::clock::hosts;
use crate::names::error::{Error, Result};
use crate::names::shadow;
use crate::names::violations::Violations;
use crate::state::context::Context;
use crate::state::stream::{State, StreamShared};
use crate::trace::tracer::Tracer;

impl Context {
    /// Reports a violation, if that is the setting, and returns it then. No lock is held.
    #[cold]
    pub(crate) fn report<'e>(&self, error: &'e Error) -> Option<&'e Finding> {
        let (Violations::Report(reporter), Error::Violation(violation)) = (&self.violations, error) else {
            return None;
        };
        reporter.call(violation);
        Some(violation)
    }
}

/// The result of adding an edge.
enum Followed {
    New,
    /// The edge was there.
    Known,
    /// The edge cannot be added.
    Not,
}

/// Says if a refusal is in the trace. If it is written under the locks under which it was decided, operations of other
/// threads come before both the decision and its entry, or after both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Noted {
    /// It can be written after those locks are released: nothing that is done later makes it right.
    #[default]
    Later,
    Here,
    /// It is to be decided again: the process has synchronised meanwhile, and the trace has that.
    Anew,
}

impl Tracer {
    /// Traces a violation under the locks under which it is decided. `has_news` returns `true` if the process has
    /// learned something since the decision.
    #[cold]
    pub(crate) fn refused_here(
        tracer: Option<&Arc<Tracer>>,
        error: &Error,
        has_news: impl FnOnce(&Host) -> bool,
        write: impl FnOnce(&Tracer),
    ) -> Noted {
        // A refusal that depends on other processes is decided again once their messages were received.
        let Some(tracer) = tracer.filter(|_| error.is_verdict() && !error.is_foreign()) else { return Noted::Later };
        let write = || shadow::judged(Some(error), || write(tracer));
        if hosts::write_refusal(has_news, write) { Noted::Here } else { Noted::Anew }
    }
}

impl StreamShared {
    /// As [`Tracer::refused_here`], for an operation of this stream.
    #[cold]
    pub(crate) fn refused_here(&self, state: &State, error: &Error, write: impl FnOnce(&Tracer)) -> Noted {
        Tracer::refused_here(self.context.tracer.as_ref(), error, |host| state.chain.has_news(host), write)
    }

    /// Reports a violation, if that is the setting, and adds the missing edges. Returns `true` if the operation is to
    /// be tried again. If all edges were there by then, that is so only once, and `known` is set. No lock is held.
    #[cold]
    pub(crate) fn add_missing_waits(&self, error: &mut Error, known: &mut bool) -> bool {
        self.context.shorten_help(error);
        let Some(violation) = self.context.report(error) else { return false };
        let is_order = violation.kind.is_order() || violation.kind == Kind::AutoFreeBeforeUse;
        // Memory that was freed is gone, whatever is waited for. The stream does not wait for other processes and
        // devices.
        let is_ours = |side: &Side| side.process.is_none() && side.stream.is_some_and(|it| it.device().is_none());
        if !is_order || violation.earlier.as_ref().is_none_or(|earlier| earlier.act == Some(Act::Free)) {
            return false;
        }
        let mut is_new = false;
        for Edge { after, .. } in &violation.missing {
            match after.stream.filter(|_| is_ours(after)).map(|stream| self.follow(stream)) {
                Some(Ok(Followed::New)) => is_new = true,
                Some(Ok(Followed::Known)) => {}
                _ => return false,
            }
        }
        // Another thread may have added all of them meanwhile.
        is_new || !std::mem::replace(known, true)
    }

    /// Traces an operation that was refused, if the program is wrong.
    #[cold]
    pub(crate) fn note_refused(&self, error: &Error, write: impl FnOnce(&Arc<Tracer>)) {
        Tracer::refused(self.tracer(), error, write);
    }

    /// Returns the tracer of the stream's operations.
    pub(crate) fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.context.tracer.as_ref()
    }

    /// Puts later work of this stream after all work of another.
    fn follow(&self, stream: StreamId) -> Result<Followed> {
        let other = self.context.streams().into_iter().find(|it| it.id == stream && it.id != self.id);
        let mut end = None;
        if let Some(other) = other {
            let mut state = other.state.lock();
            // A stream that had joined a capture keeps it until its next call.
            if state.capture.as_ref().is_some_and(|capture| capture.is_open()) {
                return Ok(Followed::Not);
            }
            if !state.is_closed {
                // The last point decides if the edge is new, because a record of a shared stream is always a new point.
                let last = state.chain.last();
                end = Some((last, other.record(&mut state)?));
            }
        }
        let ends = match end {
            Some(end) => vec![end],
            // It is closed, perhaps since just now. Its end is among those that no host has waited for.
            None => self.context.in_flight.ended().into_iter().map(|end| (end.0.point(), end)).collect(),
        };
        let mut state = self.state.lock();
        let mut followed = Followed::Known;
        for (last, (snapshot, event)) in &ends {
            if !state.chain.covers(*last) {
                self.context.driver.wait(self.raw, event.raw)?;
                state.chain.wait(snapshot);
                followed = Followed::New;
            }
        }
        if let (Followed::New, Some(tracer)) = (&followed, &self.context.tracer) {
            tracer.followed(self.id, stream);
        }
        Ok(followed)
    }
}
