//! What ties the blocking streams to the legacy default stream: data of `stream/default_streams.rs`.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use millpond_core::order::{Base, Host, Snapshot};
use millpond_driver::locks::{Mutex, lock};

use crate::clock::hosts::next_host;
use crate::clock::progress::Progress;
use crate::state::in_flight::End;
use crate::state::stream::StreamShared;
use crate::sync::ranks;
use crate::sync::sweep::Sweep;

/// What ties the blocking streams to the legacy default stream.
#[derive(Debug, Default)]
pub(crate) struct Legacy {
    /// Whether the legacy default stream was ever used: before that no stream has to look.
    pub(crate) is_used: AtomicBool,
    /// Whether the program submits to it by other ways.
    pub(crate) is_shared: AtomicBool,
    /// Its last operation, for blocking streams to wait for, and its chain.
    pub(crate) last: Mutex<ranks::Table, Option<(Snapshot, Arc<Progress>)>>,
    pub(crate) noted: Mutex<ranks::Table, Noted>,
}

/// What the legacy stream's next operation comes after. It may never be used: what has completed is not kept for it.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// Blocking streams that may have work since the last.
    pub(crate) blocking: Vec<Weak<StreamShared>>,
    /// The last work of those that are closed.
    pub(crate) ended: Vec<End>,
    /// A party that knows the ends that were not kept, where there are any.
    pub(crate) over: Option<Host>,
    pub(crate) blocking_sweep: Sweep,
    pub(crate) ended_sweep: Sweep,
}

impl Legacy {
    /// A blocking stream has work for the next operation.
    pub(crate) fn note(&self, stream: Weak<StreamShared>) {
        let mut noted = lock(&self.noted);
        let Noted { blocking, blocking_sweep, .. } = &mut *noted;
        if blocking_sweep.is_due(blocking.len()) {
            blocking.retain(|stream| stream.strong_count() > 0);
            blocking_sweep.done(blocking.len());
        }
        blocking.push(stream);
    }

    /// A blocking stream was closed that had work for the next operation; `base` is what the host knows to have
    /// completed. What has completed is not kept, known or not: it is learned of all the same.
    pub(crate) fn note_end(&self, end: End, base: &Base) {
        let mut noted = lock(&self.noted);
        let Noted { ended, over, ended_sweep, .. } = &mut *noted;
        let mut gone = Vec::new();
        if ended_sweep.is_due(ended.len()) {
            let is_over = |(snapshot, mark): &mut End| base.covers(snapshot.point()) || mark.has_passed();
            gone.extend(ended.extract_if(.., is_over));
            over.get_or_insert_with(|| Host::new(next_host())).learn_all(gone.iter().map(|(snapshot, _)| snapshot));
            ended_sweep.done(ended.len());
        }
        ended.push(end);
        drop(noted);
        // Behind the lock: marks are the driver's.
        drop(gone);
    }
}
