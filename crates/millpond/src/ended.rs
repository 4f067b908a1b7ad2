//! Streams that are closed: their ends, until nobody has to wait for them any more.
//!
//! Work in a closed stream still runs and still counts: a synchronisation of the device and the legacy default stream
//! come after it. Where the driver refuses to mark the end, or to close, that is tried again with the next of these.
//! Knows marks and snapshots; no memory.

use std::sync::{Arc, Mutex};

use millpond_core::order::{Base, Completed, Host, Snapshot};
use millpond_driver::{Driver, DriverError, RawStream};

use crate::context::{Context, lock};
use crate::event::Mark;
use crate::hosts::Told;
use crate::progress::Progress;
use crate::stream::Keep;

/// The end of a stream, for the order and for the device.
pub(crate) type End = (Snapshot, Arc<Mark>);

/// The closed streams of a device.
#[derive(Debug)]
pub(crate) struct Ended {
    rest: Mutex<Vec<Unclosed>>,
    ends: Mutex<Ends>,
}

#[derive(Debug)]
struct Ends {
    /// Those that no host is known to have waited for.
    open: Vec<End>,
    /// Somebody who was told of all others.
    over: Host,
}

/// A stream that the program has closed and the driver has not.
#[derive(Debug)]
pub(crate) struct Unclosed {
    pub(crate) raw: RawStream,
    pub(crate) progress: Arc<Progress>,
    pub(crate) snapshot: Snapshot,
    /// Whether the legacy default stream has to look at it.
    pub(crate) is_noted: bool,
    pub(crate) is_marked: bool,
    /// What keeps a foreign stream open.
    pub(crate) _keep: Option<Keep>,
}

impl Default for Ended {
    fn default() -> Self {
        Self { rest: Mutex::default(), ends: Mutex::new(Ends { open: Vec::new(), over: Host::new(u32::MAX) }) }
    }
}

impl Ends {
    /// Forgets ends that a host knows to be over.
    fn settle(&mut self, base: &Base) {
        let over = &mut self.over;
        self.open.retain(|(snapshot, _)| {
            let is_open = !base.covers(snapshot.point());
            if !is_open {
                over.learn(snapshot);
            }
            is_open
        });
    }
}

impl Ended {
    /// The ends that no host is known to have waited for.
    pub(crate) fn open(&self) -> Vec<End> {
        lock(&self.ends).open.clone()
    }

    /// Whether all work of closed streams is over, as far as `completed` knows.
    pub(crate) fn is_over(&self, completed: &impl Completed) -> bool {
        let rest = lock(&self.rest).iter().all(|unclosed| completed.is_over(unclosed.snapshot.point()));
        rest && lock(&self.ends).open.iter().all(|(snapshot, _)| completed.is_over(snapshot.point()))
    }
}

impl Context {
    /// Closes a stream. What the driver refuses is left for [`close_rest`](Self::close_rest).
    pub(crate) fn close_stream(&self, mut unclosed: Unclosed) {
        if unclosed.close(self).is_err() {
            lock(&self.ended.rest).push(unclosed);
        }
    }

    /// Closes what the driver refused to close before.
    ///
    /// # Errors
    /// It refuses once more.
    pub(crate) fn close_rest(&self) -> millpond_driver::Result<()> {
        let mut rest = lock(&self.ended.rest);
        while let Some(unclosed) = rest.last_mut() {
            unclosed.close(self)?;
            rest.pop();
        }
        Ok(())
    }

    /// The calling thread has waited for the whole device: it knows what others waited for, too.
    pub(crate) fn hear_of_ended(&self) {
        let mut ends = lock(&self.ended.ends);
        ends.settle(&self.hosts.base());
        if self.hosts.are_separate() {
            self.hosts.hear(&Told { base: Arc::clone(ends.over.base()), traced: None });
        }
    }
}

impl Unclosed {
    fn close(&mut self, context: &Context) -> millpond_driver::Result<()> {
        if !self.is_marked {
            match context.driver.mark(self.raw) {
                Ok(raw) => self.end(context, Arc::new(Mark::new(raw, &context.driver))),
                // Nothing runs any more that somebody could wait for.
                Err(DriverError::Lost { .. }) => {}
                Err(other) => return Err(other),
            }
            self.is_marked = true;
        }
        match context.driver.close_stream(self.raw) {
            Err(DriverError::Lost { .. }) => Ok(()),
            other => other,
        }
    }

    fn end(&self, context: &Context, mark: Arc<Mark>) {
        self.progress.close(Arc::clone(&mark));
        let end = (self.snapshot.clone(), mark);
        if self.is_noted {
            lock(&context.legacy.ended).push(end.clone());
        }
        let mut ends = lock(&context.ended.ends);
        ends.settle(&context.hosts.base());
        ends.open.push(end);
    }
}
