//! A stream that both libraries know: work that uses Millpond's memory is declared here, and submitted by the library.
//!
//! Invariant **declared-first**: a closure gets memory only when its use has been checked, and whatever becomes of the
//! closure, the use is recorded: part of its work may have been submitted.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use millpond::error::Invalid;
use millpond::graph::Graph;
use millpond::raw::Queue;

use crate::fault::Fault;
use crate::library::Library;
use crate::views::Views;

/// A stream of the library's, adopted. All of [`millpond::Stream`] is here: allocation, free, events, captures.
///
/// Clones name the same stream. It stays open while one of them, or of either library's own handles, is there.
pub struct Stream<L: Library> {
    ours: millpond::Stream,
    theirs: Arc<L::Stream>,
}

impl<L: Library> Deref for Stream<L> {
    type Target = millpond::Stream;

    fn deref(&self) -> &millpond::Stream {
        &self.ours
    }
}

/// What a closure came to.
type Outcome<R, E> = Result<Result<R, E>, Box<dyn Any + Send>>;

impl<L: Library> Stream<L> {
    pub(crate) fn new(ours: millpond::Stream, theirs: Arc<L::Stream>) -> Self {
        Self { ours, theirs }
    }

    /// The stream as the library knows it. What it is given without [`run`](Self::run) must not touch Millpond's
    /// memory.
    pub fn theirs(&self) -> &Arc<L::Stream> {
        &self.theirs
    }

    /// Submits work that uses memory, by the library: its copies and fills, its launches. The accesses are checked as
    /// by [`millpond::Stream::enqueue`]; then `submit` runs at once, on this thread, with the library's stream and the
    /// memory, as the adaptor's `In` for what is read and `Out` for what is written.
    ///
    /// While `submit` runs the stream is locked: it must not use this [`Stream`], nor drop a buffer. Nor may it begin a
    /// capture: what it submits is taken to be done once.
    ///
    /// A launch is `unsafe` as always in the library: its kernel touches no memory of Millpond's but the declared
    /// accesses in the declared way, and goes to the stream that the closure gets.
    ///
    /// # Errors
    /// Millpond's, with a violation, before anything is submitted. [`Fault::Submit`] with what the closure returned.
    /// The stream captures: host memory that a captured copy reads may be gone when the graph is launched, so captures
    /// take [`enqueue`](Self::enqueue).
    #[track_caller]
    pub fn run<A: Views<L>, R, E>(
        &self,
        accesses: A,
        submit: impl for<'s> FnOnce(&'s Arc<L::Stream>, A::Views<'s>) -> Result<R, E>,
    ) -> Result<R, L::Error>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.declared(accesses, submit, false)
    }

    /// As [`run`](Self::run), in captures as well: what the closure submits becomes a node, and is done by each launch.
    ///
    /// # Errors
    /// As of [`run`](Self::run), but for captures.
    ///
    /// # Safety
    /// In a capture all other memory that the work uses, on the host and on the device, is there at each launch.
    #[track_caller]
    pub unsafe fn enqueue<A: Views<L>, R, E>(
        &self,
        accesses: A,
        submit: impl for<'s> FnOnce(&'s Arc<L::Stream>, A::Views<'s>) -> Result<R, E>,
    ) -> Result<R, L::Error>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.declared(accesses, submit, true)
    }

    /// As [`millpond::Stream::capture`], for closures that [`enqueue`](Self::enqueue): captures what `record` does on
    /// this stream, as a graph, and what `record` returns.
    ///
    /// # Errors
    /// What `record` returns; as of [`millpond::Stream::capture`].
    #[track_caller]
    pub fn capture<R>(&self, record: impl FnOnce(&Self) -> Result<R, L::Error>) -> Result<(Graph, R), L::Error> {
        let mut failed = None;
        let captured = self.ours.capture(|_| {
            record(self).map_err(|error| {
                failed = Some(error);
                Invalid::Uncapturable { call: "capture" }.into()
            })
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(captured?),
        }
    }

    #[track_caller]
    fn declared<A: Views<L>, R, E>(
        &self,
        accesses: A,
        submit: impl for<'s> FnOnce(&'s Arc<L::Stream>, A::Views<'s>) -> Result<R, E>,
        may_capture: bool,
    ) -> Result<R, L::Error>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let work = |queue: &Queue<'_>, place: A::Place| -> millpond::Result<Outcome<R, E>> {
            if queue.is_capturing() && !may_capture {
                return Err(Invalid::Uncapturable { call: "run" }.into());
            }
            // SAFETY: the access was checked, and is recorded at this point of this stream.
            let views = unsafe { A::views(place, &self.theirs) };
            // Neither an error nor a panic of the closure may lose the use (declared-first).
            Ok(catch_unwind(AssertUnwindSafe(|| submit(&self.theirs, views))))
        };
        // SAFETY: the views put their work into this stream, or between what is in it before and after; they touch the
        // declared memory only. Launches are the caller's promise.
        let outcome = unsafe { self.ours.enqueue_slices(accesses, work) }?;
        Ok(outcome.unwrap_or_else(|panic| resume_unwind(panic)).map_err(|error| Fault::Submit(error.into()))?)
    }
}

impl<L: Library> Clone for Stream<L> {
    fn clone(&self) -> Self {
        Self { ours: self.ours.clone(), theirs: Arc::clone(&self.theirs) }
    }
}

impl<L: Library> fmt::Debug for Stream<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("ours", &self.ours).field("theirs", &self.theirs).finish()
    }
}
