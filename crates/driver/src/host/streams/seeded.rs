//! The seeded schedule: nothing runs by itself; who waits runs what is ready, in an order that a seed chooses.
//!
//! Knows no work and no stream, only slot numbers. A program that uses the device from one thread gets the same order
//! from the same seed each time; other seeds explore other orders. An item that waits itself runs only what it waits
//! for: anything else may want what the item has.

use super::slot::{Packed, SlotIndex};
use super::sync::{Condvar, Mutex, MutexGuard, ThreadId, lock, sleep, thread};

/// The ready streams and the seed's choices among them.
pub(crate) struct Seeded {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// In the order in which they became ready, but for choices taken out.
    ready: Vec<SlotIndex>,
    /// Threads that run an item; one several times where its items wait themselves.
    running: Vec<ThreadId>,
    /// Threads that wait for what others run. A notification without a waiter would be a system call all the same.
    waiting: u32,
    /// Marks that devices with threads wait for, and whether a thread sees them through.
    wanted: Vec<Packed>,
    seen_through: bool,
    random: u64,
}

/// What a thread that waits is to do.
pub(crate) enum Duty {
    /// Run one item of this stream, then say [`Seeded::ran`].
    Run(SlotIndex),
    /// Look again: what another thread ran has ended.
    Again,
    /// Nothing is ready and no other thread runs anything: it would wait for ever.
    Stuck,
    /// What it waited for has come, or never will and no other thread runs anything.
    Over,
}

impl Seeded {
    pub(crate) fn new(seed: u64) -> Self {
        let (ready, running, wanted) = Default::default();
        let state = State { ready, running, waiting: 0, wanted, seen_through: false, random: seed };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Makes a stream ready.
    pub(crate) fn push(&self, slot: SlotIndex) {
        let mut state = lock(&self.state);
        state.ready.push(slot);
        self.announce(state);
    }

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
            state.waiting += 1;
            state = sleep(&self.changed, state);
            state.waiting -= 1;
            Duty::Again
        } else if lost {
            Duty::Over
        } else {
            Duty::Stuck
        }
    }

    /// The caller has run what it chose; `next` is ready after that.
    pub(crate) fn ran(&self, next: Option<SlotIndex>) {
        let me = thread::current().id();
        let mut state = lock(&self.state);
        let place = state.running.iter().rposition(|&thread| thread == me);
        state.running.swap_remove(place.expect("who ran was counted as running"));
        state.ready.extend(next);
        self.announce(state);
    }

    /// Another device waits for a mark; whether the caller has to find a thread that sees such marks through.
    pub(crate) fn want(&self, mark: Packed) -> bool {
        let mut state = lock(&self.state);
        state.wanted.push(mark);
        !std::mem::replace(&mut state.seen_through, true)
    }

    /// For that thread: the next mark, or `None` when it is to end.
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

    /// Lets threads that wait look again.
    fn announce(&self, state: MutexGuard<'_, State>) {
        let anybody = state.waiting > 0;
        drop(state);
        if anybody {
            self.changed.notify_all();
        }
    }
}

impl State {
    /// For a thread that runs no item any ready stream, else the one that it needs.
    fn choose(&mut self, me: ThreadId, needed: SlotIndex) -> Option<SlotIndex> {
        if self.running.contains(&me) {
            let place = self.ready.iter().position(|slot| *slot == needed)?;
            return Some(self.ready.swap_remove(place));
        }
        if self.ready.is_empty() {
            return None;
        }
        let count = self.ready.len() as u128;
        let choice = (u128::from(next_random(&mut self.random)) * count) >> 64;
        Some(self.ready.swap_remove(choice as usize))
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
