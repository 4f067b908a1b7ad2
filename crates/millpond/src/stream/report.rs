//! What becomes of a violation: the operation is refused, or the violation is reported and the operation goes on.
//!
//! Going on cannot mean to let the work loose on memory that other work has: slices of it would overlap. So the edge
//! that is missing is put in, and the program goes on as if it had been right. A trace has the operation as it was
//! refused, the edge, and the operation again.

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
    /// Reports a refusal, where that is the setting. No lock is held.
    #[cold]
    pub(crate) fn report<'e>(&self, error: &'e Error) -> Option<&'e Finding> {
        let (Violations::Report(reporter), Error::Violation(violation)) = (&self.violations, error) else {
            return None;
        };
        reporter.call(violation);
        Some(violation)
    }
}

/// What became of an edge that is put in.
enum Followed {
    New,
    /// It was there.
    Known,
    /// It cannot be put in.
    Not,
}

/// Whether a refusal is in the trace. Where it is written under the locks under which it was decided, what other
/// threads do is before both or behind both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Noted {
    /// It can be written behind those locks: nothing that is done later makes it right.
    #[default]
    Later,
    Here,
    /// It is to be decided anew: the process has synchronised meanwhile, and the trace has that.
    Anew,
}

impl Tracer {
    /// Has a violation written down where it is decided, by who asks with `has_news` whether the process has learned
    /// something since.
    #[cold]
    pub(crate) fn refused_here(
        tracer: Option<&Arc<Tracer>>,
        error: &Error,
        has_news: impl FnOnce(&Host) -> bool,
        write: impl FnOnce(&Tracer),
    ) -> Noted {
        // What waits for other processes is asked again once their messages were received.
        let Some(tracer) = tracer.filter(|_| error.is_verdict() && !error.is_foreign()) else { return Noted::Later };
        let write = || shadow::judged(Some(error), || write(tracer));
        if hosts::write_refusal(has_news, write) { Noted::Here } else { Noted::Anew }
    }
}

impl StreamShared {
    /// As [`Tracer::refused_here`], of an operation of this stream.
    #[cold]
    pub(crate) fn refused_here(&self, state: &State, error: &Error, write: impl FnOnce(&Tracer)) -> Noted {
        Tracer::refused_here(self.context.tracer.as_ref(), error, |host| state.chain.has_news(host), write)
    }

    /// Reports a refusal, where that is the setting, and puts in what is missing. Whether the operation is to be tried
    /// again: once also where it was there by then, which `known` says. No lock is held.
    #[cold]
    pub(crate) fn add_missing_waits(&self, error: &mut Error, known: &mut bool) -> bool {
        self.context.shorten_help(error);
        let Some(violation) = self.context.report(error) else { return false };
        let is_order = violation.kind.is_order() || violation.kind == Kind::AutoFreeBeforeUse;
        // After its free memory is gone, whatever is waited for. Other processes and devices are not made to wait for.
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
        // Another thread may have put all of it in meanwhile.
        is_new || !std::mem::replace(known, true)
    }

    /// Has an operation written down that was refused, if it is the program that is wrong.
    #[cold]
    pub(crate) fn note_refused(&self, error: &Error, write: impl FnOnce(&Arc<Tracer>)) {
        Tracer::refused(self.tracer(), error, write);
    }

    /// Who writes the stream's operations down.
    pub(crate) fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.context.tracer.as_ref()
    }

    /// Puts later work of this stream after all work of another.
    fn follow(&self, stream: StreamId) -> Result<Followed> {
        let other = self.context.streams().into_iter().find(|it| it.id == stream && it.id != self.id);
        let mut end = None;
        if let Some(other) = other {
            let mut state = other.state.lock();
            if state.capture.is_some() {
                return Ok(Followed::Not);
            }
            if !state.is_closed {
                // A record of a shared stream is always new: that alone would not help.
                let last = state.chain.last();
                end = Some((last, other.record(&mut state)?));
            }
        }
        let ends = match end {
            Some(end) => vec![end],
            // It is closed, perhaps this moment: its end is among those that were not waited for.
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
