//! Branch and bound: a buffer sits on its floor or waits.
//!
//! **The simple version.** Let every plan fall: take buffers from below and push each down until it rests on byte 0 or on
//! a buffer it conflicts with. No plan gets higher, so it is enough to look for fallen ones. Give each buffer a floor,
//! 0 at first. Take a buffer `i` that no other can slip under: `floor(i) < floor(j) + bytes(j)` for every `j` not placed
//! that conflicts with it. In a fallen plan either `i` *sits* on its floor, and all those `j` are above it, so
//! their floors rise to its top; or it *waits*: one of those `j` carries it, so its floor rises to the lowest of their
//! tops. Either way floors only rise. Where the bytes that a section has yet to take do not fit between the lowest
//! floor in it and the capacity, go back. That is all, and it is complete: one of the two moves is always right.
//!
//! **Departures**, and why.
//! * *Anywhere, not bottom up.* Published searches place buffers in rising order of offset. The rule above needs only that no
//!   one can slip under `i`, so the search may work where it is hardest ([`strategy`]): wrong moves are found while
//!   they are fresh. On the public benchmark this is the difference between a thousand steps and a million.
//! * *Waiting is remembered.* A buffer that waits may not sit until a buffer placed later carries it; as the others' floors
//!   rise, so does its own.
//! * *Dead states are kept.* Different stacks below lead to the same floors above. A state from which every line failed
//!   goes into a table, and is not entered again by this or any later run, whatever its strategy.
//! * *Many short runs.* A run of one strategy is either quick or hopeless, so strategies take turns, each a little longer
//!   than the last time, with noise. Sections that ended many lines are worked on earlier ([`State::failures`]).
//!
//! Invariants: **sound**: a plan found is right by construction, and is verified again by the caller; **complete**: a
//! run that is not stopped ends with a plan or a proof that there is none (up to two states of one 128-bit key);
//! **repeatable**: no clock, no randomness but the run's number.

mod field;
mod state;
mod strategy;

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

pub(super) use field::Field;
use state::State;
use strategy::{PAIRS, Strategy};

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// With these offsets.
    Found(Vec<u64>),
    /// With a proof that no plan fits the capacity.
    Impossible,
    /// By its limit, or by whoever watched.
    Stopped,
}

/// A search for a plan of one part within one capacity, in many runs.
pub(super) struct Search<'f> {
    state: Option<State<'f>>,
    dead: HashSet<u128, BuildHasherDefault<Key>>,
    run: u64,
}

/// The most dead states kept; 16 bytes each, and as much again for the table's slack.
const DEAD: usize = 1 << 22;

/// A move that was made, and what to do about it.
struct Frame {
    buffer: u32,
    /// Where the state was entered, and where the move was made: between them only floors of those who wait rose.
    entered: usize,
    moved: usize,
    key: u128,
    waited: bool,
}

impl<'f> Search<'f> {
    /// A search that has not begun.
    pub(super) fn new(field: &'f Field, capacity: u64) -> Self {
        Self { state: State::new(field, capacity), dead: HashSet::default(), run: 0 }
    }

    /// How many runs there were.
    pub(super) fn runs(&self) -> u64 {
        self.run
    }

    /// The next run, with the next strategy, of as many steps as are due. `go_on` is asked at every step.
    pub(super) fn run(&mut self, mut go_on: impl FnMut() -> bool) -> Verdict {
        let Some(state) = &mut self.state else { return Verdict::Impossible };
        let strategy = Strategy::new(state, self.run);
        let mut steps = limit(state.field.len(), self.run / PAIRS);
        self.run += 1;
        let mut line = Line { state, strategy, dead: &mut self.dead, frames: Vec::new() };
        let verdict = line.follow(|| {
            steps = steps.saturating_sub(1);
            steps > 0 && go_on()
        });
        state.undo(0);
        verdict
    }
}

/// How many steps a run of `buffers` gets in its round: enough to go down several times, and more each round.
fn limit(buffers: usize, round: u64) -> u64 {
    let first = 2000 + 6 * buffers as u64;
    first.saturating_mul(2 + round) / 2
}

/// One run.
struct Line<'s, 'f> {
    state: &'s mut State<'f>,
    strategy: Strategy,
    dead: &'s mut HashSet<u128, BuildHasherDefault<Key>>,
    frames: Vec<Frame>,
}

impl Line<'_, '_> {
    /// Goes down until all is placed, back where it fails, until `go_on` says no.
    fn follow(&mut self, mut go_on: impl FnMut() -> bool) -> Verdict {
        loop {
            if self.state.left == 0 {
                return Verdict::Found(self.state.floor.clone());
            }
            if !go_on() {
                return Verdict::Stopped;
            }
            if !self.descend() && !self.turn_back() {
                return Verdict::Impossible;
            }
        }
    }

    /// Makes the first move in this state. Whether the next may be looked for.
    fn descend(&mut self) -> bool {
        let (entered, key) = (self.state.point(), self.state.key());
        if self.dead.contains(&key) {
            return false;
        }
        let Some(buffer) = self.decide() else {
            self.state.undo(entered);
            self.bury(key);
            return false;
        };
        self.frames.push(Frame { buffer, entered, moved: self.state.point(), key, waited: false });
        self.state.sit(buffer)
    }

    /// Makes the other move in the last state that has one. Whether there was one.
    fn turn_back(&mut self) -> bool {
        while let Some(frame) = self.frames.last_mut() {
            self.state.undo(frame.moved);
            if !frame.waited {
                frame.waited = true;
                if self.state.wait(frame.buffer) {
                    return true;
                }
                self.state.undo(frame.moved);
            }
            let Frame { entered, key, .. } = *frame;
            self.state.undo(entered);
            self.frames.pop();
            self.bury(key);
        }
        false
    }

    /// A buffer that no other can slip under and that may sit. On the way the floors of those who wait are raised;
    /// `None` where one of them cannot be.
    fn decide(&mut self) -> Option<u32> {
        let mut buffer = self.strategy.choose(self.state);
        loop {
            let floor = self.state.floor[buffer as usize];
            match self.state.support(buffer) {
                // The other's floor is below this one's, so this ends.
                (top, Some(other)) if top <= floor => buffer = other,
                _ if !self.state.waits[buffer as usize] => return Some(buffer),
                _ if !self.state.wait(buffer) => return None,
                _ => buffer = self.strategy.choose(self.state),
            }
        }
    }

    /// Nothing leads on from the state of this key.
    fn bury(&mut self, key: u128) {
        if self.dead.len() < DEAD {
            self.dead.insert(key);
        }
    }
}

/// The hash of a key is one of its halves: it is random already.
#[derive(Default)]
struct Key(u64);

impl Hasher for Key {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u128");
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}
