//! Which streams are ready, and which thread takes one next. Knows no work and no stream, only slot numbers.
//!
//! There are two ways. A *parallel* device has workers: threads that take ready streams, first come first served. On
//! the others nothing runs by itself: who waits runs what is ready, in an order that a seed chooses.
//!
//! **Workers.** An item of work may block for as long as it likes, also on an item of another stream, so what is ready
//! must not wait behind it: where streams are ready and all workers are busy, one more is started. Workers that have
//! been idle for a while end, but for the last one. There are no more than some hundreds while work gets done; one more
//! than that looks whether it does.
//!
//! The simple version wakes a worker for each stream that gets ready. Departure: one worker at a time is on its way; it
//! sends for the next when it takes a stream and leaves others. So a burst of short work, which a few workers get done
//! in passing, wakes few of them (submitting short work to 16 streams in turn went from 3100 ns an item to 190 on two
//! busy cores), and work that blocks still gets a worker each.
//!
//! **Seeds.** A program that uses the device from one thread gets the same order from the same seed each time; other
//! seeds explore other orders. An item that waits itself runs only what it waits for: anything else may want what the
//! item has.
//!
//! Invariants:
//! * `no-lost-wake`: where streams are ready, a worker is on its way to look, or all that may be are busy and will
//!   look; a worker sleeps only when it has seen under the lock that none is ready;
//! * `last-worker`: until the device has ended and no stream is away, there is at least one worker, so what is ready is
//!   taken sooner or later even where the system refuses more threads. A stream is *away* while another device has to
//!   wake it; those of a lost device have nothing left to take.

use std::collections::VecDeque;
use std::time::Duration;

use super::Schedule;
use super::slot::{Packed, SlotIndex};
use super::sync::{Condvar, JoinHandle, Mutex, MutexGuard, ThreadId, lock, sleep, sleep_for, thread};

/// The most threads that one host device runs work on, as long as they get work done. Where so many run closures that
/// may wait for what is ready, and none takes anything for 10 ms, there may be twice as many, and so on until the
/// system refuses a thread.
pub const WORKERS_MAX: usize = 256;

/// Workers that take nothing for so long are taken to wait for what is ready.
const STALLED_FOR: Duration = Duration::from_millis(10);

/// Starts a worker.
pub(super) type Spawn<'a> = &'a dyn Fn() -> std::io::Result<JoinHandle<()>>;

/// See the module.
pub(crate) struct Scheduler {
    has_workers: bool,
    state: Mutex<State>,
    changed: Condvar,
    /// How long a worker without work stays.
    idle_life: Duration,
}

#[derive(Default)]
struct State {
    /// In the order in which they became ready, but for choices of a seed.
    ready: VecDeque<SlotIndex>,
    /// Threads that sleep until `changed`: workers, where there are some. Those that were woken and have not looked yet
    /// count. A notification without a sleeper would be a system call all the same.
    sleeping: usize,
    /// Since the last look at `ready`, a worker was woken or started.
    coming: bool,
    /// Live workers.
    workers: Vec<JoinHandle<()>>,
    /// One more than this looks whether the others take anything.
    workers_max: usize,
    /// How many times a worker took a stream.
    taken: u64,
    /// Streams that other devices wake. INVARIANT: away-counted.
    away: usize,
    ending: bool,
    lost: bool,
    /// Without workers: threads that run an item; one several times where its items wait themselves.
    running: Vec<ThreadId>,
    /// Events that devices with threads wait for, and whether a thread sees them through.
    wanted: Vec<Packed>,
    seen_through: bool,
    random: u64,
}

/// What a thread that waits is to do.
pub(crate) enum Duty {
    /// Run one item of this stream, then say [`Scheduler::ran`].
    Run(SlotIndex),
    /// Look again: what another thread ran has ended.
    Again,
    /// Nothing is ready and no other thread runs anything: it would wait for ever.
    Stuck,
    /// What it waited for has come, or never will and no other thread runs anything.
    Over,
}

impl Scheduler {
    pub(crate) fn new(schedule: Schedule, idle_life: Duration) -> Self {
        let random = if let Schedule::Seeded(seed) = schedule { seed } else { 0 };
        let state = State { workers_max: WORKERS_MAX, random, ..State::default() };
        let has_workers = schedule == Schedule::Parallel;
        Self { has_workers, state: Mutex::new(state), changed: Condvar::new(), idle_life }
    }

    /// Whether work runs by itself.
    #[inline]
    pub(crate) fn has_workers(&self) -> bool {
        self.has_workers
    }

    /// Makes a stream ready, and sees that a thread takes it.
    pub(crate) fn push(&self, slot: SlotIndex, spawn: Spawn<'_>) {
        let mut state = lock(&self.state);
        state.ready.push_back(slot);
        self.announce(state, spawn);
    }

    /// A stream is ready, or an item has ended: wakes the threads that wait for that.
    fn announce(&self, state: MutexGuard<'_, State>, spawn: Spawn<'_>) {
        if self.has_workers {
            return self.send_for(state, spawn);
        }
        let is_any = state.sleeping > 0;
        drop(state);
        if is_any {
            self.changed.notify_all();
        }
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
    pub(crate) fn workers(&self) -> usize {
        lock(&self.state).workers.len()
    }
}

/// Workers.
impl Scheduler {
    /// Starts the first worker. INVARIANT: last-worker.
    pub(crate) fn start(&self, spawn: Spawn<'_>) -> std::io::Result<()> {
        let mut state = lock(&self.state);
        let worker = spawn()?;
        state.workers.push(worker);
        Ok(())
    }

    /// Where the system refused a worker, it may have one now.
    pub(crate) fn ask_again(&self, spawn: Spawn<'_>) {
        self.send_for(lock(&self.state), spawn);
    }

    /// Sees that a thread comes for what is ready. INVARIANT: no-lost-wake.
    fn send_for(&self, mut state: MutexGuard<'_, State>, spawn: Spawn<'_>) {
        if state.ready.is_empty() || state.coming {
            return;
        }
        if state.sleeping > 0 {
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
    pub(crate) fn take(&self, spawn: Spawn<'_>) -> Option<SlotIndex> {
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
            state.sleeping += 1;
            let (guard, overdue) = sleep_for(&self.changed, state, self.idle_life);
            state = guard;
            state.sleeping -= 1;
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
    pub(crate) fn come_back(&self, ready: Option<SlotIndex>, spawn: Spawn<'_>) {
        let mut state = lock(&self.state);
        state.away -= 1;
        state.ready.extend(ready);
        self.send_for(state, spawn);
    }
}

/// Threads that wait, where there are no workers.
impl Scheduler {
    /// Chooses a ready stream, if there is one, and counts the caller as running. `needed` is the stream whose turn it
    /// is for what the caller waits for.
    pub(crate) fn choose(&self, needed: SlotIndex) -> Option<SlotIndex> {
        let me = thread::current().id();
        let mut state = lock(&self.state);
        let slot = state.choose(me, needed)?;
        state.running.push(me);
        Some(slot)
    }

    /// What a waiting thread is to do; `needed` as for [`choose`](Self::choose). Sleeps only while another thread runs
    /// something; `is_over` and `is_lost` are asked with the lock held, under which every end of a run is announced, so
    /// that none is missed.
    pub(crate) fn duty(&self, needed: SlotIndex, is_over: impl Fn() -> bool, is_lost: impl Fn() -> bool) -> Duty {
        let me = thread::current().id();
        let mut state = lock(&self.state);
        if is_over() {
            return Duty::Over;
        }
        let lost = is_lost();
        if !lost && let Some(slot) = state.choose(me, needed) {
            state.running.push(me);
            Duty::Run(slot)
        } else if state.running.iter().any(|&thread| thread != me) {
            state.sleeping += 1;
            state = sleep(&self.changed, state);
            state.sleeping -= 1;
            Duty::Again
        } else if lost {
            Duty::Over
        } else {
            Duty::Stuck
        }
    }

    /// The caller has run what it chose; `next` is ready after that.
    pub(crate) fn ran(&self, next: Option<SlotIndex>, spawn: Spawn<'_>) {
        let me = thread::current().id();
        let mut state = lock(&self.state);
        let place = state.running.iter().rposition(|&thread| thread == me);
        state.running.swap_remove(place.expect("who ran was counted as running"));
        state.ready.extend(next);
        self.announce(state, spawn);
    }

    /// Another device waits for an event; whether the caller has to find a thread that sees such events through.
    pub(crate) fn want(&self, event: Packed) -> bool {
        let mut state = lock(&self.state);
        state.wanted.push(event);
        !std::mem::replace(&mut state.seen_through, true)
    }

    /// For that thread: the next event, or `None` when it is to end.
    pub(crate) fn wanted(&self) -> Option<Packed> {
        let mut state = lock(&self.state);
        let next = state.wanted.pop();
        state.seen_through = next.is_some();
        next
    }

    /// There is no such thread: the next who waits tries again.
    pub(crate) fn give_up(&self) {
        lock(&self.state).seen_through = false;
    }
}

impl State {
    /// For a thread that runs no item any ready stream, else the one that it needs.
    fn choose(&mut self, me: ThreadId, needed: SlotIndex) -> Option<SlotIndex> {
        if self.running.contains(&me) {
            let place = self.ready.iter().position(|slot| *slot == needed)?;
            return self.ready.swap_remove_back(place);
        }
        if self.ready.is_empty() {
            return None;
        }
        let count = self.ready.len() as u128;
        let choice = (u128::from(next_random(&mut self.random)) * count) >> 64;
        self.ready.swap_remove_back(choice as usize)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): any seed is as good as another.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
