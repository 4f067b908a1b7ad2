//! The legacy default stream and the streams that are ordered with it, in the running program: core's rule
//! (`core/order/default_streams.rs`) is applied behind each stream's own lock, to the order and to the device.
//!
//! A blocking stream notes itself at its first operation after the legacy stream's last one, and the legacy stream
//! takes the notes. The legacy stream's end is published with a new epoch, so that the other streams learn of it at
//! their next operation. Locks: the legacy default stream's state may be held while another stream's is taken, never
//! the other way round.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::order::default_streams::Ties;
use millpond_core::order::{Base, Host, Snapshot};
use millpond_driver::locks::{Mutex, lock};
use millpond_driver::{Driver, RawEvent};

use crate::clock::device_event::DeviceEvent;
use crate::clock::hosts::next_host;
use crate::clock::progress::Progress;
use crate::names::error::{Error, Result};
use crate::state::context::Context;
use crate::state::in_flight::End;
use crate::state::stream::{State, StreamShared};
use crate::sync::ranks;
use crate::sync::sweep::Sweep;

/// The ties between the blocking streams and the legacy default stream.
#[derive(Debug, Default)]
pub(crate) struct Legacy {
    /// `true` once the legacy default stream was used. Before that no stream has to look.
    pub(crate) is_used: AtomicBool,
    /// `true` if the program also submits to it by its handle.
    pub(crate) is_shared: AtomicBool,
    /// Its last operation and its chain, for blocking streams to wait for.
    last: Mutex<ranks::Table, Option<(Snapshot, Arc<Progress>)>>,
    noted: Mutex<ranks::Table, Noted>,
}

/// The work that the legacy stream's next operation comes after. That operation may never come, so work that has
/// completed is not kept for it.
#[derive(Debug, Default)]
struct Noted {
    /// The blocking streams that may have work since the legacy stream's last operation.
    blocking: Vec<Weak<StreamShared>>,
    /// The ends of blocking streams that are closed.
    ended: Vec<End>,
    /// A host that knows the ends that were not kept, if there are any.
    over: Option<Host>,
    blocking_sweep: Sweep,
    ended_sweep: Sweep,
}

impl Legacy {
    /// Notes a blocking stream with work that the legacy stream's next operation comes after.
    fn note(&self, stream: Weak<StreamShared>) {
        let mut noted = lock(&self.noted);
        let Noted { blocking, blocking_sweep, .. } = &mut *noted;
        if blocking_sweep.is_due(blocking.len()) {
            blocking.retain(|stream| stream.strong_count() > 0);
            blocking_sweep.done(blocking.len());
        }
        blocking.push(stream);
    }

    /// Notes the end of a closed blocking stream with work that the next operation comes after. `base` is what the host
    /// knows to have completed. Ends that have completed are not kept, whether the host knows that or not: `over` knows
    /// them.
    pub(crate) fn note_end(&self, end: End, base: &Base) {
        let mut noted = lock(&self.noted);
        let Noted { ended, over, ended_sweep, .. } = &mut *noted;
        let mut gone = Vec::new();
        if ended_sweep.is_due(ended.len()) {
            let is_over = |(snapshot, event): &mut End| base.covers(snapshot.point()) || event.has_passed();
            gone.extend(ended.extract_if(.., is_over));
            over.get_or_insert_with(|| Host::new(next_host())).learn_all(gone.iter().map(|(snapshot, _)| snapshot));
            ended_sweep.done(ended.len());
        }
        ended.push(end);
        drop(noted);
        // After the lock is released: dropping these events calls the driver.
        drop(gone);
    }
}

impl StreamShared {
    /// Puts later work of this stream after a snapshot, in the order and on the device. Does nothing if it already
    /// comes after it.
    #[inline]
    pub(crate) fn wait_for(&self, state: &mut State, snapshot: &Snapshot, event: RawEvent) -> Result<()> {
        if state.chain.knows_of(snapshot) {
            return Ok(());
        }
        self.context.driver.wait(self.raw, event)?;
        state.chain.wait(snapshot);
        Ok(())
    }

    /// As [`wait_for`](Self::wait_for), for an event of another device.
    #[cold]
    pub(crate) fn wait_foreign(
        &self,
        state: &mut State,
        snapshot: &Snapshot,
        event: &DeviceEvent,
        of: &Context,
    ) -> Result<()> {
        self.context.check_peers(of)?;
        self.context.meet(of);
        if !state.chain.knows_of(snapshot) {
            self.context.wait_foreign(self.raw, event)?;
            state.chain.wait(snapshot);
        }
        Ok(())
    }

    /// As [`wait_for`](Self::wait_for), for all work that another chain has so far.
    pub(crate) fn wait_for_chain(&self, state: &mut State, snapshot: &Snapshot, progress: &Progress) -> Result<()> {
        if state.chain.knows_of(snapshot) {
            return Ok(());
        }
        let driver = &*self.context.driver;
        progress.with_event(driver, |event| driver.wait(self.raw, event))?;
        state.chain.wait(snapshot);
        Ok(())
    }

    /// Returns this stream in the form that the rule of the default streams takes.
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
        // It must note itself again at its next operation.
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
        if !legacy.is_used.load(Ordering::Acquire) {
            return Ok(());
        }
        let last = lock(&legacy.last).clone();
        match last {
            Some((snapshot, progress)) => self.stream.wait_for_chain(self.state, &snapshot, &progress),
            None => Ok(()),
        }
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
        // After the loop: once this succeeds, each stream that the loop found closed has its end in `ended`, also if
        // the driver refused to record that end before.
        stream.context.close_rest()?;
        let mut noted = lock(&legacy.noted);
        // From here on this chain itself knows these ends.
        if let Some(over) = noted.over.take() {
            state.chain.learn_base(over.base());
        }
        while let Some((snapshot, event)) = noted.ended.last() {
            stream.wait_for(state, snapshot, event.raw)?;
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
