//! A window in a capture for the work of foreign code: the driver's stream captures, and everything that is submitted
//! to it, in whatever way, becomes the work of one node.
//!
//! A window is open while [`enqueue`](crate::Stream::enqueue) runs its closure. A window that
//! [`declare`](crate::Stream::declare) opens stays open until the stream's next call. Between windows the driver's
//! stream does not capture. So the driver need not know that streams are in one capture: the graph has their order.
//!
//! Invariant **no-peeking**: while a window is open, Millpond itself submits nothing to the driver's stream.

use millpond_core::graph::NodeId;
use millpond_driver::{Driver, RawGraph, RawStream};

use crate::names::error::{Invalid, Result};
use crate::pool::shell::TRIES;
use crate::state::context::Context;
use crate::state::stream::{State, StreamShared};
use crate::stream::payload::Payload;

/// A driver's stream that captures, until this is dropped.
pub(crate) struct Window<'c> {
    context: &'c Context,
    raw: RawStream,
    is_open: bool,
}

impl<'c> Window<'c> {
    pub(crate) fn open(context: &'c Context, raw: RawStream) -> Result<Self> {
        context.driver.begin_capture(raw)?;
        Ok(Self { context, raw, is_open: true })
    }

    /// Returns the window that [`leave`](Self::leave) left open.
    fn left(context: &'c Context, raw: RawStream) -> Self {
        Self { context, raw, is_open: true }
    }

    /// Leaves the window open, for as long as the stream's state says so.
    fn leave(mut self) {
        self.is_open = false;
    }

    /// Closes the window and returns the graph of the work that was submitted, if there was any.
    fn close(mut self) -> Result<Option<RawGraph>> {
        self.is_open = false;
        let mut refused = None;
        for _ in 0..TRIES {
            match self.context.driver.end_capture(self.raw) {
                Ok(seen) => return Ok(seen),
                // The first refusal is the reason. If it ended the capture, the next one only says that.
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.expect("there was a try").into())
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // The captured work is thrown away.
            let _ = Window::left(self.context, self.raw).close().map(|seen| Payload::seen(self.context, seen));
        }
    }
}

impl StreamShared {
    /// Captures the work that `submit` submits to the driver's stream.
    pub(crate) fn capture_foreign<R>(&self, payload: &mut Payload, submit: impl FnOnce() -> Result<R>) -> Result<R> {
        if !self.context.driver.has_graphs() {
            return Err(Invalid::Uncapturable { call: "enqueue" }.into());
        }
        let window = Window::open(&self.context, self.raw)?;
        let result = submit()?;
        *payload = Payload::seen(&self.context, window.close()?);
        Ok(result)
    }

    /// Adds a node by `add`. Its work is everything that is submitted to the stream until its next call.
    pub(crate) fn open_window(&self, state: &mut State, add: impl FnOnce() -> Result<NodeId>) -> Result<()> {
        let window = Window::open(&self.context, self.raw)?;
        state.window = Some(add()?);
        window.leave();
        Ok(())
    }

    /// Closes the window that the last call left open.
    #[cold]
    pub(crate) fn close_window(&self, state: &mut State) -> Result<()> {
        let Some(node) = state.window.take() else { return Ok(()) };
        let seen = Window::left(&self.context, self.raw).close();
        match &state.capture {
            Some(session) => self.context.graphs.keep_seen(session, node, seen),
            None => seen.map(|seen| drop(Payload::seen(&self.context, seen))),
        }
    }
}
