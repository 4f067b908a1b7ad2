//! The legacy default stream and the streams that are ordered with it, live: what core's rule
//! (`core/order/default_streams.rs`) asks for is done behind each stream's own lock, for the order and for the device.
//!
//! A blocking stream notes itself with its first operation after the legacy stream's last, the legacy stream takes the
//! notes; its end is published with a new epoch, so that others learn of it with their next operation. Locks: the
//! legacy default stream's state may be held while another stream's is taken, never the other way round.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::order::Snapshot;
use millpond_core::order::default_streams::Ties;
use millpond_driver::locks::lock;
use millpond_driver::{Driver, RawMark};

use crate::clock::mark::Mark;
use crate::clock::progress::Progress;
use crate::names::error::{Error, Result};
use crate::state::context::Context;
use crate::state::stream::{State, StreamShared};

impl StreamShared {
    /// Puts later work after a snapshot, for the order and for the device; nothing where that is known.
    #[inline]
    pub(crate) fn wait_for(&self, state: &mut State, snapshot: &Snapshot, mark: RawMark) -> Result<()> {
        if state.chain.knows_of(snapshot) {
            return Ok(());
        }
        self.context.driver.wait(self.raw, mark)?;
        state.chain.wait(snapshot);
        Ok(())
    }

    /// As [`wait_for`](Self::wait_for), for an event of another device.
    #[cold]
    pub(crate) fn wait_foreign(&self, state: &mut State, snapshot: &Snapshot, mark: &Mark, of: &Context) -> Result<()> {
        self.context.check_peers(of)?;
        self.context.meet(of);
        if !state.chain.knows_of(snapshot) {
            self.context.wait_foreign(self.raw, mark)?;
            state.chain.wait(snapshot);
        }
        Ok(())
    }

    /// As [`wait_for`](Self::wait_for), after all work that another chain has by now.
    pub(crate) fn wait_for_chain(&self, state: &mut State, snapshot: &Snapshot, progress: &Progress) -> Result<()> {
        if state.chain.knows_of(snapshot) {
            return Ok(());
        }
        let driver = &*self.context.driver;
        progress.with_mark(driver, |mark| driver.wait(self.raw, mark))?;
        state.chain.wait(snapshot);
        Ok(())
    }

    /// What the rule of the default streams asks of this stream.
    #[inline]
    pub(crate) fn ties<'s>(&'s self, state: &'s mut State) -> Tied<'s> {
        Tied { stream: self, state }
    }

    fn gather_one(&self, state: &mut State, stream: &StreamShared) -> Result<()> {
        let mut other = stream.state.lock();
        if other.is_closed {
            // Its end is in `ended`, or will be: see the caller.
            return Ok(());
        }
        let end = stream.end(&mut other);
        self.wait_for_chain(state, &end, &stream.progress)?;
        // It must note itself again with its next operation.
        other.is_noted = false;
        other.epoch = 0;
        Ok(())
    }
}

/// A stream under its lock: see [`StreamShared::ties`].
pub(crate) struct Tied<'s> {
    stream: &'s StreamShared,
    state: &'s mut State,
}

impl Ties for Tied<'_> {
    type Refused = Error;

    fn follow(&mut self) -> Result<()> {
        let legacy = &self.stream.context.legacy;
        if legacy.is_used.load(Ordering::Acquire)
            && let Some((snapshot, progress)) = &*lock(&legacy.last)
        {
            self.stream.wait_for_chain(self.state, snapshot, progress)?;
        }
        Ok(())
    }

    fn note(&mut self) {
        if !std::mem::replace(&mut self.state.is_noted, true) {
            self.stream.context.legacy.note(self.stream.me.clone());
        }
    }

    fn gather(&mut self) -> Result<()> {
        let Self { stream, state } = self;
        stream.context.graphs.refuse_legacy_use(&stream.context)?;
        let legacy = &stream.context.legacy;
        let blocking = std::mem::take(&mut lock(&legacy.noted).blocking);
        for (i, other) in blocking.iter().enumerate() {
            if let Err(error) = other.upgrade().map_or(Ok(()), |other| stream.gather_one(state, &other)) {
                lock(&legacy.noted).blocking.extend_from_slice(&blocking[i..]);
                return Err(error);
            }
        }
        // After the loop: a stream that it found closed has its end in `ended` once this succeeds, also where the
        // driver refused to mark that end before.
        stream.context.close_rest()?;
        let mut noted = lock(&legacy.noted);
        // From here on this chain knows of them itself.
        if let Some(over) = noted.over.take() {
            state.chain.learn_base(over.base());
        }
        while let Some((snapshot, mark)) = noted.ended.last() {
            stream.wait_for(state, snapshot, mark.raw)?;
            noted.ended.pop();
        }
        Ok(())
    }

    #[cold]
    fn publish(&mut self) {
        let (legacy, last) = (&self.stream.context.legacy, self.state.chain.snapshot());
        *lock(&legacy.last) = Some((last, Arc::clone(&self.stream.progress)));
        legacy.is_used.store(true, Ordering::Release);
        self.stream.context.epoch.advance();
    }
}
