//! A window in a capture through which foreign code is seen: the device's own stream captures, and what reaches it by
//! whatever way becomes what one node does.
//!
//! A window is open while [`enqueue`](crate::Stream::enqueue) runs its closure; one that a
//! [`declare`](crate::Stream::declare) opens stays open until the stream's next call. In between the device's stream
//! does not capture, so that streams of one capture need not know each other there: their order is the graph's.
//!
//! Invariant **no-peeking**: while a window is open, nothing of Millpond goes to the device's stream.

use millpond_core::graph::NodeId;
use millpond_driver::{Driver, RawGraph, RawStream};

use crate::names::error::{Invalid, Result};
use crate::pool::shell::TRIES;
use crate::state::context::Context;
use crate::state::stream::{State, StreamShared};
use crate::stream::payload::Payload;

/// A stream of the device that captures, until this goes.
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

    /// The one that [`leave`](Self::leave) left.
    fn left(context: &'c Context, raw: RawStream) -> Self {
        Self { context, raw, is_open: true }
    }

    /// It stays open for as long as the stream's state says so.
    fn leave(mut self) {
        self.is_open = false;
    }

    /// What was seen.
    fn close(mut self) -> Result<Option<RawGraph>> {
        self.is_open = false;
        let mut refused = None;
        for _ in 0..TRIES {
            match self.context.driver.end_capture(self.raw) {
                Ok(seen) => return Ok(seen),
                // The first refusal is the reason: where it ended the capture, the next only says so.
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.expect("there was a try").into())
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // What was captured is not wanted.
            let _ = Window::left(self.context, self.raw).close().map(|seen| Payload::seen(self.context, seen));
        }
    }
}

impl StreamShared {
    /// Captures what `submit` gives to the device's stream.
    pub(crate) fn capture_foreign<R>(&self, payload: &mut Payload, submit: impl FnOnce() -> Result<R>) -> Result<R> {
        if !self.context.driver.has_graphs() {
            return Err(Invalid::Uncapturable { call: "enqueue" }.into());
        }
        let window = Window::open(&self.context, self.raw)?;
        let result = submit()?;
        *payload = Payload::seen(&self.context, window.close()?);
        Ok(result)
    }

    /// Adds a node by `add`, whose work is what comes to the stream until its next call.
    pub(crate) fn open_window(&self, state: &mut State, add: impl FnOnce() -> Result<NodeId>) -> Result<()> {
        let window = Window::open(&self.context, self.raw)?;
        state.window = Some(add()?);
        window.leave();
        Ok(())
    }

    /// Ends the window that the last call left open.
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
