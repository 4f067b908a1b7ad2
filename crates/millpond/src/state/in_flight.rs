//! Work in flight of a device: all its streams, live and closed, until no thread has to wait for them any more.
//!
//! Work in a closed stream still runs and still counts: a synchronisation of the device comes after it, and memory that
//! it uses cannot go. A stream has one seat in one table, from its opening until a host is known to have waited for its
//! end; closing changes what is there, in constant time. So whoever asks for everything up to now looks once, under one
//! lock, and at no moment is a stream in none of two lists.
//!
//! Where the driver refuses to mark the end of a stream, or to close it, that is tried again with the next question.
//! Locks: a stream's state, then the list of the unclosed, then the table. Nothing of the program's is dropped under
//! any of them: what kept a stream open that is closed late is laid aside for who holds none.
//!
//! Knows marks, snapshots and how far chains are; no memory.

use std::sync::{Arc, Weak};

use millpond_core::order::{Base, Host, Snapshot};
use millpond_driver::{Driver, DriverError, RawStream};

use crate::clock::hosts::Told;
use crate::clock::mark::Mark;
use crate::clock::progress::Progress;
use crate::state::context::Context;
use crate::state::stream::{Keep, StreamShared};
use crate::sync::locks::{Guard, Mutex, lock};
use crate::sync::ranks;
use crate::sync::sweep::Sweep;

/// The end of a stream, for the order and for the device.
pub(crate) type End = (Snapshot, Arc<Mark>);

/// A stream's seat in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seat(usize);

/// See the module.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Streams that the program has closed and the driver has not.
    unclosed: Mutex<{ ranks::UNCLOSED }, Vec<Unclosed>>,
    /// What kept foreign streams open that were closed late.
    let_go: Mutex<{ ranks::LET_GO }, Vec<Keep>>,
    table: Mutex<{ ranks::IN_FLIGHT }, Table>,
}

#[derive(Debug)]
struct Table {
    seats: Vec<Entry>,
    vacant: Vec<usize>,
    /// How many are closed, and when those are looked for that a host has waited for.
    closed: usize,
    sweep: Sweep,
    /// A party that knows all those that left.
    over: Host,
}

#[derive(Debug)]
enum Entry {
    Vacant,
    Live { stream: Weak<StreamShared>, progress: Arc<Progress> },
    Closed { snapshot: Snapshot, progress: Arc<Progress>, end: Option<Arc<Mark>> },
}

/// All work that was submitted before the question.
#[derive(Debug)]
pub(crate) struct Everything {
    pub(crate) live: Vec<Arc<StreamShared>>,
    pub(crate) ended: Vec<End>,
}

/// A stream that is being closed.
#[derive(Debug)]
pub(crate) struct Unclosed {
    pub(crate) seat: Seat,
    pub(crate) raw: RawStream,
    pub(crate) progress: Arc<Progress>,
    pub(crate) snapshot: Snapshot,
    /// Whether the legacy default stream has to look at it.
    pub(crate) is_noted: bool,
    /// Whether its end is still to be marked; not where nothing was ever in it.
    pub(crate) needs_mark: bool,
    /// What keeps a foreign stream open.
    pub(crate) keep: Option<Keep>,
}

impl Default for InFlight {
    fn default() -> Self {
        let (seats, vacant, sweep) = Default::default();
        let table = Table { seats, vacant, closed: 0, sweep, over: Host::new(u32::MAX) };
        Self { unclosed: Mutex::default(), let_go: Mutex::default(), table: Mutex::new(table) }
    }
}

impl InFlight {
    /// A stream is opened.
    pub(crate) fn enter(&self, stream: Weak<StreamShared>, progress: Arc<Progress>) -> Seat {
        let mut table = lock(&self.table);
        let entry = Entry::Live { stream, progress };
        match table.vacant.pop() {
            Some(seat) => {
                table.seats[seat] = entry;
                Seat(seat)
            }
            None => {
                table.seats.push(entry);
                Seat(table.seats.len() - 1)
            }
        }
    }

    /// The streams that live.
    pub(crate) fn live(&self) -> Vec<Arc<StreamShared>> {
        lock(&self.table).seats.iter().filter_map(Entry::live).collect()
    }

    /// The ends of closed streams that no host is known to have waited for.
    pub(crate) fn ended(&self) -> Vec<End> {
        lock(&self.table).seats.iter().filter_map(Entry::end).collect()
    }

    /// How far the chains are that may have work in flight.
    fn chains(&self) -> Vec<Arc<Progress>> {
        let of = |entry: &Entry| match entry {
            Entry::Vacant => None,
            Entry::Live { progress, .. } | Entry::Closed { progress, .. } => Some(Arc::clone(progress)),
        };
        lock(&self.table).seats.iter().filter_map(of).collect()
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
    /// A stream is closed, and its end is marked if there is something to wait for.
    fn close(&mut self, unclosed: &Unclosed, end: Option<Arc<Mark>>) {
        let Unclosed { seat, progress, snapshot, .. } = unclosed;
        let entry = Entry::Closed { snapshot: snapshot.clone(), progress: Arc::clone(progress), end };
        if !matches!(std::mem::replace(&mut self.seats[seat.0], entry), Entry::Closed { .. }) {
            self.closed += 1;
        }
    }

    /// Nothing of a stream is in flight.
    fn leave(&mut self, seat: usize) -> Entry {
        let entry = std::mem::replace(&mut self.seats[seat], Entry::Vacant);
        self.closed -= usize::from(matches!(entry, Entry::Closed { .. }));
        self.vacant.push(seat);
        entry
    }

    /// Takes the ends out that a host knows to have completed: to be dropped behind the lock.
    #[must_use]
    fn sweep(&mut self, base: &Base) -> Vec<Entry> {
        let mut over = Vec::new();
        for seat in 0..self.seats.len() {
            if let Entry::Closed { snapshot, end: Some(_), .. } = &self.seats[seat]
                && base.covers(snapshot.point())
            {
                self.over.learn(snapshot);
                over.push(self.leave(seat));
            }
        }
        self.sweep.done(self.closed.max(self.seats.len() / 8));
        over
    }
}

impl Context {
    /// Closes a stream, or as much of that as the driver does now. What is returned is to be dropped behind all locks.
    #[must_use]
    pub(crate) fn close_stream(&self, mut unclosed: Unclosed) -> Option<Unclosed> {
        if !unclosed.needs_mark {
            // No other call learns that from a stream that is closed.
            unclosed.progress.complete(unclosed.snapshot.point().seq);
            drop(lock(&self.in_flight.table).leave(unclosed.seat.0));
        }
        if unclosed.close(self).is_ok() {
            return Some(unclosed);
        }
        let mut list = lock(&self.in_flight.unclosed);
        if unclosed.needs_mark {
            lock(&self.in_flight.table).close(&unclosed, None);
        }
        list.push(unclosed);
        None
    }

    /// Closes what the driver refused to close before; nothing new is refused while the answer is held.
    ///
    /// # Errors
    /// It refuses once more.
    fn close_rest_locked(&self) -> millpond_driver::Result<Guard<'_, { ranks::UNCLOSED }, Vec<Unclosed>>> {
        loop {
            let mut list = lock(&self.in_flight.unclosed);
            let Some(mut unclosed) = list.pop() else { return Ok(list) };
            if let Err(error) = unclosed.close(self) {
                list.push(unclosed);
                return Err(error);
            }
            lock(&self.in_flight.let_go).extend(unclosed.keep);
        }
    }

    /// Closes what the driver refused to close before. Locks of streams may be held.
    ///
    /// # Errors
    /// It refuses once more.
    pub(crate) fn close_rest(&self) -> millpond_driver::Result<()> {
        self.close_rest_locked().map(drop)
    }

    /// Drops what kept streams open that are closed by now. No lock may be held.
    pub(crate) fn let_go(&self) {
        let gone = std::mem::take(&mut *lock(&self.in_flight.let_go));
        drop(gone);
    }

    /// All work up to now. No lock may be held.
    ///
    /// # Errors
    /// The driver refuses to mark the end of a closed stream.
    pub(crate) fn everything(&self) -> millpond_driver::Result<Everything> {
        self.close_rest()?;
        self.let_go();
        let unclosed = self.close_rest_locked()?;
        let table = lock(&self.in_flight.table);
        let live = table.seats.iter().filter_map(Entry::live).collect();
        let ended = table.seats.iter().filter_map(Entry::end).collect();
        drop(table);
        drop(unclosed);
        Ok(Everything { live, ended })
    }

    /// The end of a stream that was closed since it was asked for; none where nothing runs any more.
    ///
    /// # Errors
    /// The driver refuses to mark it.
    pub(crate) fn end_of(&self, stream: &StreamShared) -> millpond_driver::Result<Option<Arc<Mark>>> {
        self.close_rest()?;
        Ok(stream.progress.end())
    }

    /// Whether all work of all streams up to now has completed, closed ones too, also of other devices' streams that
    /// used its memory.
    pub(crate) fn is_idle(&self) -> bool {
        let chains = self.in_flight.chains();
        self.chains.poll(&*self.driver).is_over_abroad() && chains.iter().all(|chain| chain.is_idle(&*self.driver))
    }

    /// The calling thread has waited for the whole device: it knows what others waited for, too.
    pub(crate) fn learn_ended(&self) {
        let base = self.hosts.base();
        let mut table = lock(&self.in_flight.table);
        let over = table.sweep(&base);
        let known = Arc::clone(table.over.base());
        drop(table);
        drop(over);
        if self.hosts.are_separate() {
            self.hosts.join(&Told { base: known, traced: None });
        }
    }
}

impl Unclosed {
    fn close(&mut self, context: &Context) -> millpond_driver::Result<()> {
        if self.needs_mark {
            match context.driver.mark(self.raw) {
                Ok(raw) => self.end(context, Arc::new(Mark::new(raw, &context.driver))),
                // Nothing runs any more that could be waited for.
                Err(DriverError::Lost { .. }) => drop(lock(&context.in_flight.table).leave(self.seat.0)),
                Err(other) => return Err(other),
            }
            self.needs_mark = false;
        }
        match context.driver.close_stream(self.raw) {
            Err(DriverError::Lost { .. }) => Ok(()),
            other => other,
        }
    }

    fn end(&self, context: &Context, end: Arc<Mark>) {
        self.progress.close(Arc::clone(&end));
        let base = context.hosts.base();
        if self.is_noted {
            context.legacy.note_end((self.snapshot.clone(), Arc::clone(&end)), &base);
        }
        let mut table = lock(&context.in_flight.table);
        table.close(self, Some(end));
        let is_due = table.sweep.is_due(table.closed);
        drop(table);
        if is_due {
            // What the host knows of another device counts here.
            context.learn_abroad();
            let over = lock(&context.in_flight.table).sweep(&context.hosts.base());
            drop(over);
        }
    }
}
