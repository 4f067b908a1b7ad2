//! Chooses the stream that runs next, and the thread that runs it. Knows no work and no streams, only slot numbers.
//!
//! There are two ways. A *parallel* device has workers: threads that take ready streams in the order in which they
//! became ready. On other devices nothing runs by itself: a thread that waits runs ready streams, in an order that a
//! seed chooses.
//!
//! **Workers.** An item of work may block for any time, also on an item of another stream, so a ready stream must not
//! wait behind it: if streams are ready and all workers are busy, one more worker is started. Workers that have been
//! idle for a while end, except the last one. There are at most a few hundred while work completes; one worker more
//! than the limit checks whether it does.
//!
//! The simple version wakes a worker for each stream that becomes ready. Departure: at most one woken worker is on its
//! way; when it takes a stream and leaves others, it wakes the next. So a burst of short work, which a few workers
//! finish quickly, wakes few of them (submitting short work to 16 streams in turn went from 3100 ns an item to 190 on
//! two busy cores), and each item that blocks still gets a worker.
//!
//! **Seeds.** A program that uses the device from one thread gets the same order from the same seed each time; other
//! seeds explore other orders. An item that waits itself runs only the work that it waits for, because other work may
//! need something that the item holds.
//!
//! Invariants:
//! * `no-lost-wake`: if streams are ready, a woken worker is about to look, or all workers that may exist are busy and
//!   will look; a worker sleeps only after it has seen under the lock that no stream is ready;
//! * `last-worker`: until the device has ended and no stream is away, there is at least one worker, so that ready
//!   streams are taken sooner or later even if the system refuses more threads. A stream is *away* while another device
//!   has to wake it; streams of a lost device have nothing left to take.

use std::collections::VecDeque;
use std::time::Duration;

use super::Schedule;
use super::slot::{Packed, SlotIndex};
use super::sync::{Condvar, JoinHandle, Mutex, MutexGuard, ThreadId, lock, sleep, sleep_for, thread};

/// The most threads that run work of one host device, as long as work completes. If this many threads run closures that
/// may wait for ready streams, and none takes a stream for 10 ms, the limit doubles, and so on until the system refuses
/// a thread.
pub const WORKERS_MAX: usize = 256;

/// The time after which workers that take nothing are assumed to wait for ready streams.
const STALLED_FOR: Duration = Duration::from_millis(10);

/// Starts a worker.
pub(super) type Spawn<'a> = &'a dyn Fn() -> std::io::Result<JoinHandle<()>>;

/// The scheduler of one device; see the module.
pub(crate) struct Scheduler {
    has_workers: bool,
    state: Mutex<State>,
    changed: Condvar,
    /// The time after which an idle worker ends.
    idle_life: Duration,
}

#[derive(Default)]
struct State {
    /// Ready streams, in the order in which they became ready unless a seed chooses.
    ready: VecDeque<SlotIndex>,
    /// The number of threads that sleep until `changed`: workers, if the device has any. Threads that were woken and
    /// have not looked yet count too. Without it, a notification would cost a system call even if no thread sleeps.
    sleeping: usize,
    /// `true` if a worker was woken or started since the last look at `ready`.
    coming: bool,
    /// The workers that exist.
    workers: Vec<JoinHandle<()>>,
    /// The limit of workers. One worker more than this checks whether the others take streams.
    workers_max: usize,
    /// The number of times that a worker took a stream.
    taken: u64,
    /// The number of streams that other devices wake. INVARIANT: away-counted.
    away: usize,
    ending: bool,
    lost: bool,
    /// Without workers: the threads that run an item. A thread whose items wait themselves is listed several times.
    running: Vec<ThreadId>,
    /// Events that devices with threads wait for; `seen_through` is `true` while a thread runs the work before them.
    wanted: Vec<Packed>,
    seen_through: bool,
    random: u64,
}

/// The next action of a thread that waits.
pub(crate) enum Duty {
    /// Run one item of this stream, then call [`Scheduler::ran`].
    Run(SlotIndex),
    /// Look again: another thread's run has ended.
    Again,
    /// Nothing is ready and no other thread runs anything, so the thread would wait for ever.
    Stuck,
    /// The awaited work has completed, or never will and no other thread runs anything.
    Over,
}

impl Scheduler {
    pub(crate) fn new(schedule: Schedule, idle_life: Duration) -> Self {
        let random = if let Schedule::Seeded(seed) = schedule { seed } else { 0 };
        let state = State { workers_max: WORKERS_MAX, random, ..State::default() };
        let has_workers = schedule == Schedule::Parallel;
        Self { has_workers, state: Mutex::new(state), changed: Condvar::new(), idle_life }
    }

    /// Returns `true` if work runs by itself.
    #[inline]
    pub(crate) fn has_workers(&self) -> bool {
        self.has_workers
    }

    /// Makes a stream ready, and makes sure that a thread takes it.
    pub(crate) fn push(&self, slot: SlotIndex, spawn: Spawn<'_>) {
        let mut state = lock(&self.state);
        state.ready.push_back(slot);
        self.announce(state, spawn);
    }

    /// Wakes the threads that wait for a ready stream or for the end of an item.
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

    /// Marks the device as lost: streams that are away do not need a worker any more.
    pub(crate) fn lose(&self) {
        lock(&self.state).lost = true;
        self.changed.notify_all();
    }

    /// Lets the workers end when nothing is ready or away. Returns their handles, for a caller that can wait for them.
    pub(crate) fn end(&self) -> Vec<JoinHandle<()>> {
        let mut state = lock(&self.state);
        state.ending = true;
        let workers = std::mem::take(&mut state.workers);
        drop(state);
        self.changed.notify_all();
        workers
    }

    /// Returns the number of workers.
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

    /// Tries to start a worker again if the system refused one.
    pub(crate) fn ask_again(&self, spawn: Spawn<'_>) {
        self.send_for(lock(&self.state), spawn);
    }

    /// Makes sure that a thread takes the ready streams. INVARIANT: no-lost-wake.
    fn send_for(&self, mut state: MutexGuard<'_, State>, spawn: Spawn<'_>) {
        if state.ready.is_empty() || state.coming {
            return;
        }
        if state.sleeping > 0 {
            state.coming = true;
            drop(state);
            self.changed.notify_one();
        } else if state.workers.len() <= state.workers_max {
            // Under the lock, so that the worker's handle is recorded before the worker looks for it. If the system
            // refuses, an existing worker takes the stream later (last-worker), or a waiting thread tries again.
            if let Ok(worker) = spawn() {
                state.coming = true;
                state.workers.push(worker);
            }
        }
    }

    /// Puts a stream that has had its turn behind the others. Returns the next one to run.
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

    /// For a worker: returns the next stream, or `None` if the worker must end.
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
                // A worker that slept because a stream was away must look again.
                self.changed.notify_all();
                return None;
            }
            state.sleeping += 1;
            let (guard, overdue) = sleep_for(&self.changed, state, self.idle_life);
            state = guard;
            state.sleeping -= 1;
            if overdue && state.ready.is_empty() && !state.ending && state.workers.len() > 1 {
                let me = thread::current().id();
                // The handle is removed, so that handles do not accumulate; nothing joins this thread.
                state.workers.retain(|worker| worker.thread().id() != me);
                if state.workers.len() < WORKERS_MAX {
                    state.workers_max = WORKERS_MAX;
                }
                return None;
            }
        }
    }

    /// For the worker over the limit: checks whether the others take streams. If not, the limit doubles.
    #[cold]
    fn look<'s>(&'s self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let taken = state.taken;
        let (mut state, overdue) = sleep_for(&self.changed, state, STALLED_FOR);
        if state.taken == taken {
            match overdue {
                true => state.workers_max *= 2,
                // The notification was meant for another worker.
                false => self.changed.notify_one(),
            }
        }
        state
    }

    /// Counts a stream as away. It may come back at once.
    pub(crate) fn depart(&self) {
        lock(&self.state).away += 1;
    }

    /// Undoes [`depart`](Self::depart): the calling worker still has the stream.
    pub(crate) fn stay(&self) {
        lock(&self.state).away -= 1;
    }

    /// Counts a stream as not away any more. It is ready if it has something to do.
    pub(crate) fn come_back(&self, ready: Option<SlotIndex>, spawn: Spawn<'_>) {
        let mut state = lock(&self.state);
        state.away -= 1;
        state.ready.extend(ready);
        self.send_for(state, spawn);
    }
}

/// Threads that wait, on devices without workers.
impl Scheduler {
    /// Chooses a ready stream, if there is one, and counts the caller as running. `needed` is the stream that must run
    /// next for the caller's wait to end.
    pub(crate) fn choose(&self, needed: SlotIndex) -> Option<SlotIndex> {
        let me = thread::current().id();
        let mut state = lock(&self.state);
        let slot = state.choose(me, needed)?;
        state.running.push(me);
        Some(slot)
    }

    /// Returns the next action of a waiting thread; `needed` as in [`choose`](Self::choose). Sleeps only while another
    /// thread runs something. `is_over` and `is_lost` are called with the lock held, and every end of a run is
    /// announced under that lock, so that none is missed.
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

    /// Records that the caller has run the stream that it chose; `next` is ready now.
    pub(crate) fn ran(&self, next: Option<SlotIndex>, spawn: Spawn<'_>) {
        let me = thread::current().id();
        let mut state = lock(&self.state);
        let place = state.running.iter().rposition(|&thread| thread == me);
        state.running.swap_remove(place.expect("who ran was counted as running"));
        state.ready.extend(next);
        self.announce(state, spawn);
    }

    /// Records that another device waits for an event. Returns `true` if the caller must start a thread for such
    /// events.
    pub(crate) fn want(&self, event: Packed) -> bool {
        let mut state = lock(&self.state);
        state.wanted.push(event);
        !std::mem::replace(&mut state.seen_through, true)
    }

    /// For that thread: returns the next event, or `None` if the thread must end.
    pub(crate) fn wanted(&self) -> Option<Packed> {
        let mut state = lock(&self.state);
        let next = state.wanted.pop();
        state.seen_through = next.is_some();
        next
    }

    /// Records that the thread could not be started: the next waiter tries again.
    pub(crate) fn give_up(&self) {
        lock(&self.state).seen_through = false;
    }
}

impl State {
    /// Chooses any ready stream for a thread that runs no item, and only the needed one for other threads.
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
