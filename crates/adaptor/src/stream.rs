//! A stream that both libraries know. Work that uses Millpond's memory is declared here and submitted by the library.
//!
//! Invariant **declared-first**: a closure gets memory only after its use has been checked. The use is recorded
//! whatever the closure's result is, because part of its work may have been submitted.

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

/// An adopted stream of the library's. It has all of [`millpond::Stream`]: allocation, free, events, captures.
///
/// Clones name the same stream. It stays open as long as one of them, or one of either library's own handles, exists.
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

/// The result of a closure, or its panic.
type Outcome<R, E> = Result<Result<R, E>, Box<dyn Any + Send>>;

impl<L: Library> Stream<L> {
    pub(crate) fn new(ours: millpond::Stream, theirs: Arc<L::Stream>) -> Self {
        Self { ours, theirs }
    }

    /// Returns the library's own stream. Work submitted to it without [`run`](Self::run) must not touch Millpond's
    /// memory.
    pub fn theirs(&self) -> &Arc<L::Stream> {
        &self.theirs
    }

    /// Submits work that uses memory, through the library: copies and fills, launches. The accesses are checked as by
    /// [`millpond::Stream::enqueue`]. Then `submit` runs at once, on this thread. It gets the library's stream and the
    /// memory, as the adaptor's `In` for a read and `Out` for a write.
    ///
    /// While `submit` runs, the stream is locked: it must not use this [`Stream`], nor drop a buffer. It must not begin
    /// a capture either: its work is assumed to run once.
    ///
    /// A launch is `unsafe` as always in the library: of Millpond's memory, its kernel touches only the declared
    /// accesses in the declared way, and it goes to the stream that the closure gets.
    ///
    /// # Errors
    /// Millpond's errors, with a violation, before anything is submitted. [`Fault::Submit`] with the closure's error.
    /// Also if the stream captures: host memory that a captured copy reads may be gone when the graph is launched. For
    /// captures there is [`enqueue`](Self::enqueue).
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

    /// As [`run`](Self::run), also in captures: the closure's work becomes a node, which each launch runs.
    ///
    /// # Errors
    /// As of [`run`](Self::run), except for captures.
    ///
    /// # Safety
    /// In a capture, all other memory that the work uses, on the host and on the device, must exist at each launch.
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

    /// As [`millpond::Stream::capture`], for closures that use [`enqueue`](Self::enqueue): captures the work of
    /// `record` on this stream. Returns the graph, and the result of `record`.
    ///
    /// # Errors
    /// The error of `record`; as of [`millpond::Stream::capture`].
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
            // Neither an error nor a panic of the closure may prevent the use from being recorded (declared-first).
            Ok(catch_unwind(AssertUnwindSafe(|| submit(&self.theirs, views))))
        };
        // SAFETY: the views put their work into this stream, or between the work that is in it before and after. They
        // touch the declared memory only. For launches, the caller promises this.
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
