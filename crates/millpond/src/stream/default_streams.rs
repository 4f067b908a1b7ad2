//! The legacy default stream and the streams that are ordered with it.
//!
//! An operation on the legacy stream comes after everything in all blocking streams, and their later work after it.
//! Both sides are settled lazily: a blocking stream notes itself when it knows everything, the legacy stream takes
//! the notes; its end is published with a new epoch, so that others learn of it with their next operation. Locks: the
//! legacy stream's state may be held while another stream's is taken, never the other way round.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::order::Snapshot;
use millpond_driver::{Driver, RawMark};

use crate::clock::mark::Mark;
use crate::clock::progress::Progress;
use crate::names::error::Result;
use crate::state::context::Context;
use crate::state::stream::{State, StreamShared};
use crate::sync::locks::lock;

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
    pub(crate) fn wait_abroad(&self, state: &mut State, snapshot: &Snapshot, mark: &Mark, of: &Context) -> Result<()> {
        self.context.check_peers(of)?;
        self.context.meet(of);
        if !state.chain.knows_of(snapshot) {
            self.context.wait_abroad(self.raw, mark)?;
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

    /// A blocking stream comes after the legacy stream's last operation, and notes that it has work for its next.
    pub(crate) fn follow_legacy(&self, state: &mut State) -> Result<()> {
        let legacy = &self.context.legacy;
        if legacy.is_used.load(Ordering::Acquire)
            && let Some((snapshot, progress)) = &*lock(&legacy.last)
        {
            self.wait_for_chain(state, snapshot, progress)?;
        }
        if !std::mem::replace(&mut state.is_noted, true) {
            legacy.note(self.me.clone());
        }
        Ok(())
    }

    /// The legacy stream comes after all work of the blocking streams.
    pub(crate) fn gather_blocking(&self, state: &mut State) -> Result<()> {
        let legacy = &self.context.legacy;
        let blocking = std::mem::take(&mut lock(&legacy.noted).blocking);
        for (i, stream) in blocking.iter().enumerate() {
            if let Err(error) = stream.upgrade().map_or(Ok(()), |stream| self.gather_one(state, &stream)) {
                lock(&legacy.noted).blocking.extend_from_slice(&blocking[i..]);
                return Err(error);
            }
        }
        // After the loop: a stream that it found closed has its end in `ended` once this succeeds, also where the
        // driver refused to mark that end before.
        self.context.close_rest()?;
        let mut noted = lock(&legacy.noted);
        // From here on this chain knows of them itself.
        if let Some(over) = noted.over.take() {
            state.chain.hear(over.base());
        }
        while let Some((snapshot, mark)) = noted.ended.last() {
            self.wait_for(state, snapshot, mark.raw)?;
            noted.ended.pop();
        }
        Ok(())
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

    /// The legacy stream has new work: blocking streams wait for it before their next.
    #[cold]
    pub(crate) fn publish_legacy(&self, state: &mut State) {
        let legacy = &self.context.legacy;
        *lock(&legacy.last) = Some((state.chain.snapshot(), Arc::clone(&self.progress)));
        legacy.is_used.store(true, Ordering::Release);
        self.context.hosts.advance();
    }
}
