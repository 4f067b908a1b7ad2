//! The work in flight of a device: all its streams, live and closed, until no thread has to wait for them any more.
//!
//! Work in a closed stream still runs and still counts: a synchronisation of the device comes after it, and memory that
//! it uses must stay. A stream has one index in one table from its opening until a host has waited for its end. Closing
//! changes the entry, in constant time. So a call that needs everything up to now reads one table under one lock.
//!
//! Locks: a stream's state, then the list of unclosed streams, then the table. No object of the program is dropped
//! under any of them: if a foreign stream is closed late, the object that kept it open is set aside for a thread that
//! holds none of these locks.
//!
//! The closing of a stream is in `closing.rs`.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use millpond_core::order::{Base, Snapshot};
use millpond_driver::RawStream;
use millpond_driver::locks::{Mutex, lock};

use crate::clock::device_event::DeviceEvent;
use crate::clock::progress::Progress;
use crate::state::stream::StreamShared;
use crate::sync::ranks;
use crate::sync::sweep::Sweep;

/// An object of the program, to be dropped when it is needed no more.
pub(crate) type Keep = Arc<dyn Any + Send + Sync>;

/// The end of a stream: a snapshot for the order, an event for the device.
pub(crate) type End = (Snapshot, Arc<DeviceEvent>);

/// If this many streams are closed that no host is known to have waited for, a new stream comes after the one that was
/// closed first, and that end need not be kept. So a program that never waits, but learns of the end from its kernels,
/// keeps nothing for each stream that it had. This depends on the program's calls alone, not on timing.
pub(crate) const ENDED_MAX: usize = 1024;

/// The index of a stream in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamIndex(usize);

/// The work in flight of a device. See the module.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// The streams that the program has closed and the driver has not.
    pub(crate) unclosed: Mutex<ranks::Unclosed, Vec<Unclosed>>,
    /// The objects that kept foreign streams open that were closed late.
    pub(crate) let_go: Mutex<ranks::Table, Vec<Keep>>,
    table: Mutex<ranks::Table, Table>,
}

#[derive(Debug, Default)]
struct Table {
    stream_indices: Vec<Entry>,
    vacant: Vec<usize>,
    /// The indices of closed streams whose ends are recorded, the one that was closed first in front.
    ended: VecDeque<usize>,
    /// The number of closed streams, and the times to look for those that a host has waited for.
    closed: usize,
    sweep: Sweep,
}

#[derive(Debug)]
enum Entry {
    Vacant,
    Live { stream: Weak<StreamShared>, progress: Arc<Progress> },
    Closed { snapshot: Snapshot, progress: Arc<Progress>, end: Option<Arc<DeviceEvent>> },
}

/// All work that was submitted before the call.
#[derive(Debug)]
pub(crate) struct Everything {
    pub(crate) live: Vec<Arc<StreamShared>>,
    pub(crate) ended: Vec<End>,
}

/// A stream that is being closed.
#[derive(Debug)]
pub(crate) struct Unclosed {
    pub(crate) stream_index: StreamIndex,
    pub(crate) raw: RawStream,
    pub(crate) progress: Arc<Progress>,
    pub(crate) snapshot: Snapshot,
    /// `true` if the legacy default stream has to look at it.
    pub(crate) is_noted: bool,
    /// `true` if its end is still to be recorded, `false` if nothing was ever in it.
    pub(crate) needs_record: bool,
    /// The object that keeps a foreign stream open.
    pub(crate) keep: Option<Keep>,
}

impl InFlight {
    /// Enters a stream that is opened.
    pub(crate) fn enter(&self, stream: Weak<StreamShared>, progress: Arc<Progress>) -> StreamIndex {
        let mut table = lock(&self.table);
        let entry = Entry::Live { stream, progress };
        match table.vacant.pop() {
            Some(stream_index) => {
                table.stream_indices[stream_index] = entry;
                StreamIndex(stream_index)
            }
            None => {
                table.stream_indices.push(entry);
                StreamIndex(table.stream_indices.len() - 1)
            }
        }
    }

    /// Returns the live streams.
    pub(crate) fn live(&self) -> Vec<Arc<StreamShared>> {
        lock(&self.table).stream_indices.iter().filter_map(Entry::live).collect()
    }

    /// Returns the ends of closed streams that no host is known to have waited for.
    pub(crate) fn ended(&self) -> Vec<End> {
        lock(&self.table).stream_indices.iter().filter_map(Entry::end).collect()
    }

    /// Returns the progress of the chains that may have work in flight.
    pub(crate) fn chains(&self) -> Vec<Arc<Progress>> {
        let of = |entry: &Entry| match entry {
            Entry::Vacant => None,
            Entry::Live { progress, .. } | Entry::Closed { progress, .. } => Some(Arc::clone(progress)),
        };
        lock(&self.table).stream_indices.iter().filter_map(of).collect()
    }

    /// Returns the number of entries that a look at all chains takes.
    pub(crate) fn stream_indices(&self) -> usize {
        lock(&self.table).stream_indices.len()
    }

    /// Returns the live streams and the ends of the others, at one moment.
    pub(crate) fn everything(&self) -> Everything {
        let table = lock(&self.table);
        let live = table.stream_indices.iter().filter_map(Entry::live).collect();
        let ended = table.stream_indices.iter().filter_map(Entry::end).collect();
        Everything { live, ended }
    }

    /// Returns the end that a new stream has to come after, if there are that many that the host does not know.
    pub(crate) fn first_ended(&self, base: &Base) -> Option<(Snapshot, Arc<Progress>, Arc<DeviceEvent>)> {
        // Dropped after the lock is released.
        let mut over = Vec::new();
        let mut table = lock(&self.table);
        while table.ended.len() >= ENDED_MAX {
            let first = *table.ended.front()?;
            match &table.stream_indices[first] {
                // A later stream may have had its index.
                Entry::Closed { snapshot, .. } if base.covers(snapshot.point()) => over.push(table.leave(first)),
                Entry::Closed { snapshot, progress, end: Some(end) } => {
                    return Some((snapshot.clone(), Arc::clone(progress), Arc::clone(end)));
                }
                _ => return None,
            }
        }
        None
    }

    /// Forgets the end of a chain, because a live stream comes after it.
    pub(crate) fn succeed(&self, ended: &Arc<Progress>) {
        let mut table = lock(&self.table);
        let is_it = |stream_index: &usize| match &table.stream_indices[*stream_index] {
            Entry::Closed { progress, .. } => Arc::ptr_eq(progress, ended),
            Entry::Vacant | Entry::Live { .. } => false,
        };
        let stream_index = table.ended.iter().copied().find(is_it);
        let entry = stream_index.map(|stream_index| table.leave(stream_index));
        drop(table);
        drop(entry);
    }

    /// Removes a stream that has nothing in flight.
    pub(crate) fn leave(&self, stream_index: StreamIndex) {
        let entry = lock(&self.table).leave(stream_index.0);
        drop(entry);
    }

    /// Enters the closing of a stream, with its recorded end if there is something to wait for. Returns `true` if it is
    /// time to look for ends that a host has waited for.
    pub(crate) fn close(&self, unclosed: &Unclosed, end: Option<Arc<DeviceEvent>>) -> bool {
        let mut table = lock(&self.table);
        table.close(unclosed, end);
        table.sweep.is_due(table.closed)
    }

    /// Removes the ends that the host knows to have completed.
    pub(crate) fn sweep(&self, base: &Base) {
        let over = lock(&self.table).sweep(base);
        // After the lock is released.
        drop(over);
    }
}

impl Entry {
    fn live(&self) -> Option<Arc<StreamShared>> {
        match self {
            Entry::Live { stream, .. } => stream.upgrade(),
            Entry::Vacant | Entry::Closed { .. } => None,
        }
    }

    fn end(&self) -> Option<End> {
        match self {
            Entry::Closed { snapshot, end, .. } => Some((snapshot.clone(), Arc::clone(end.as_ref()?))),
            Entry::Vacant | Entry::Live { .. } => None,
        }
    }
}

impl Table {
    /// Enters the closing of a stream, with its recorded end if there is something to wait for.
    fn close(&mut self, unclosed: &Unclosed, end: Option<Arc<DeviceEvent>>) {
        let Unclosed { stream_index, progress, snapshot, .. } = unclosed;
        if end.is_some() {
            self.ended.push_back(stream_index.0);
        }
        let entry = Entry::Closed { snapshot: snapshot.clone(), progress: Arc::clone(progress), end };
        if !matches!(std::mem::replace(&mut self.stream_indices[stream_index.0], entry), Entry::Closed { .. }) {
            self.closed += 1;
        }
    }

    /// Removes a stream that has nothing in flight.
    fn leave(&mut self, stream_index: usize) -> Entry {
        if let Entry::Closed { end: Some(_), .. } = self.stream_indices[stream_index] {
            // Nearly always the first.
            self.ended.iter().position(|it| *it == stream_index).and_then(|at| self.ended.remove(at));
        }
        self.vacate(stream_index)
    }

    fn vacate(&mut self, stream_index: usize) -> Entry {
        let entry = std::mem::replace(&mut self.stream_indices[stream_index], Entry::Vacant);
        self.closed -= usize::from(matches!(entry, Entry::Closed { .. }));
        self.vacant.push(stream_index);
        entry
    }

    /// Takes out the ends that a host knows to have completed, to be dropped after the lock is released.
    #[must_use]
    fn sweep(&mut self, base: &Base) -> Vec<Entry> {
        let mut over = Vec::new();
        for stream_index in std::mem::take(&mut self.ended) {
            match &self.stream_indices[stream_index] {
                Entry::Closed { snapshot, .. } if base.covers(snapshot.point()) => {
                    over.push(self.vacate(stream_index));
                }
                _ => self.ended.push_back(stream_index),
            }
        }
        self.sweep.done(self.closed.max(self.stream_indices.len() / 8));
        over
    }
}
