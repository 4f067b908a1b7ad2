//! Workers: threads that take ready streams, first come first served. Knows no work and no stream, only slot numbers.
//!
//! An item of work may block for as long as it likes, also on an item of another stream, so what is ready must not
//! wait behind it: where streams are ready and all workers are busy, one more is started. Workers that have been idle
//! for a while end, but for the last one. There are no more than some hundreds while work gets done; one more than that
//! looks whether it does.
//!
//! The simple version wakes a worker for each stream that gets ready. Departure: one worker at a time is on its way; it
//! sends for the next when it takes a stream and leaves others. So a burst of short work, which a few workers get done
//! in passing, wakes few of them (submitting short work to 16 streams in turn went from 3100 ns an item to 190 on two
//! busy cores), and work that blocks still gets a worker each.
//!
//! Invariants:
//! * `no-lost-wake`: where streams are ready, a worker is on its way to look, or all that may be are busy and will
//!   look; a worker sleeps only when it has seen under the lock that none is ready;
//! * `last-worker`: until the device has ended and no stream is away, there is at least one worker, so what is ready is
//!   taken sooner or later even where the system refuses more threads. A stream is *away* while another device has to
//!   wake it; those of a lost device have nothing left to take.

use std::collections::VecDeque;
use std::time::Duration;

use super::slot::SlotIndex;
use super::sync::{Condvar, JoinHandle, Mutex, MutexGuard, lock, sleep_for, thread};

/// The most threads that one host device runs work on, as long as they get work done. Where so many run closures that
/// may wait for what is ready, and none takes anything for 10 ms, there may be twice as many, and so on until the
/// system refuses a thread.
pub const WORKERS_MAX: usize = 256;

/// Workers that take nothing for so long are taken to wait for what is ready.
const STALLED_FOR: Duration = Duration::from_millis(10);

/// The pool of workers, and what they are to take.
pub(crate) struct Workers {
    state: Mutex<State>,
    changed: Condvar,
    /// How long a worker without work stays.
    idle_life: Duration,
}

struct State {
    ready: VecDeque<SlotIndex>,
    /// Workers that sleep, or were woken and have not looked yet.
    idle: usize,
    /// Since the last look at `ready`, a worker was woken or started.
    coming: bool,
    /// Live workers.
    workers: Vec<JoinHandle<()>>,
    /// One more than this looks whether the others take anything.
    workers_max: usize,
    /// How many times a stream was taken.
    taken: u64,
    /// Streams that other devices wake. INVARIANT: away-counted.
    away: usize,
    ending: bool,
    lost: bool,
}

impl Workers {
    pub(crate) fn new(idle_life: Duration) -> Self {
        let state = State {
            ready: VecDeque::new(),
            idle: 0,
            coming: false,
            workers: Vec::new(),
            workers_max: WORKERS_MAX,
            taken: 0,
            away: 0,
            ending: false,
            lost: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), idle_life }
    }

    /// Starts the first worker. INVARIANT: last-worker.
    pub(crate) fn start(&self, spawn: impl FnOnce() -> std::io::Result<JoinHandle<()>>) -> std::io::Result<()> {
        let mut state = lock(&self.state);
        let worker = spawn()?;
        state.workers.push(worker);
        Ok(())
    }

    /// Makes a stream ready, and sees that a thread takes it.
    pub(crate) fn push(&self, slot: SlotIndex, spawn: impl FnOnce() -> std::io::Result<JoinHandle<()>>) {
        let mut state = lock(&self.state);
        state.ready.push_back(slot);
        self.send_for(state, spawn);
    }

    /// Where the system refused a worker, it may have one now.
    pub(crate) fn ask_again(&self, spawn: impl FnOnce() -> std::io::Result<JoinHandle<()>>) {
        self.send_for(lock(&self.state), spawn);
    }

    /// Sees that a thread comes for what is ready. INVARIANT: no-lost-wake.
    fn send_for(&self, mut state: MutexGuard<'_, State>, spawn: impl FnOnce() -> std::io::Result<JoinHandle<()>>) {
        if state.ready.is_empty() || state.coming {
            return;
        }
        if state.idle > 0 {
            state.coming = true;
            drop(state);
            self.changed.notify_one();
        } else if state.workers.len() <= state.workers_max {
            // Under the lock, so that the worker finds its own handle written down. Where the system refuses, the
            // workers there are take the stream later (last-worker), or who waits asks again.
            if let Ok(worker) = spawn() {
                state.coming = true;
                state.workers.push(worker);
            }
        }
    }

    /// Puts a stream that has had its turn behind the others; the next one to run.
    pub(crate) fn rotate(&self, slot: SlotIndex) -> SlotIndex {
        let mut state = lock(&self.state);
        match state.ready.pop_front() {
            None => slot,
            Some(next) => {
                state.ready.push_back(slot);
                next
            }
        }
    }

    /// For a worker: the next stream, or `None` when it is to end.
    pub(crate) fn take(&self, spawn: impl FnOnce() -> std::io::Result<JoinHandle<()>>) -> Option<SlotIndex> {
        let mut state = lock(&self.state);
        loop {
            while state.workers.len() > state.workers_max && !state.ready.is_empty() && !state.lost {
                state = self.look(state);
            }
            state.coming = false;
            if let Some(slot) = state.ready.pop_front() {
                state.taken += 1;
                self.send_for(state, spawn);
                return Some(slot);
            }
            if state.ending && (state.away == 0 || state.lost) {
                drop(state);
                // One that waited for a stream to come back waits for nothing any more.
                self.changed.notify_all();
                return None;
            }
            state.idle += 1;
            let (guard, overdue) = sleep_for(&self.changed, state, self.idle_life);
            state = guard;
            state.idle -= 1;
            if overdue && state.ready.is_empty() && !state.ending && state.workers.len() > 1 {
                let me = thread::current().id();
                // Its handle goes, so that handles do not pile up; this thread will not be joined.
                state.workers.retain(|worker| worker.thread().id() != me);
                if state.workers.len() < WORKERS_MAX {
                    state.workers_max = WORKERS_MAX;
                }
                return None;
            }
        }
    }

    /// For the worker that is one too many: whether the others get work done. Else there may be more.
    #[cold]
    fn look<'s>(&'s self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let taken = state.taken;
        let (mut state, overdue) = sleep_for(&self.changed, state, STALLED_FOR);
        if state.taken == taken {
            match overdue {
                true => state.workers_max *= 2,
                // What it was woken for is another one's.
                false => self.changed.notify_one(),
            }
        }
        state
    }

    /// A stream goes away, and may come back at once.
    pub(crate) fn depart(&self) {
        lock(&self.state).away += 1;
    }

    /// It did not go after all; the calling worker has it.
    pub(crate) fn stay(&self) {
        lock(&self.state).away -= 1;
    }

    /// A stream is not away any more, and ready where it has something to do.
    pub(crate) fn come_back(&self, ready: Option<SlotIndex>, spawn: impl FnOnce() -> std::io::Result<JoinHandle<()>>) {
        let mut state = lock(&self.state);
        state.away -= 1;
        state.ready.extend(ready);
        self.send_for(state, spawn);
    }

    /// The device is lost: no worker has to be there for streams that are away.
    pub(crate) fn lose(&self) {
        lock(&self.state).lost = true;
        self.changed.notify_all();
    }

    /// Lets the workers end when nothing is ready or away. Their handles, for who can wait for them.
    pub(crate) fn end(&self) -> Vec<JoinHandle<()>> {
        let mut state = lock(&self.state);
        state.ending = true;
        let workers = std::mem::take(&mut state.workers);
        drop(state);
        self.changed.notify_all();
        workers
    }

    /// Live workers.
    pub(crate) fn count(&self) -> usize {
        lock(&self.state).workers.len()
    }
}
