//! One run of a search: it goes down while moves fit, and back where they do not.
//!
//! The stack is explicit, because a line is as deep as the number of buffers. A *move* on it has another move to try. A
//! *split* has further islands to search. When an island is done, its moves leave the stack: they were right, whatever
//! happens in the next island. When an island fails, so does the state that was split.
//!
//! Invariants: **complete**: a state is dead only if both of its moves are, or if one of its islands is;
//! **here**: `sections`, and the key and count of the state, are those of the island that is being searched.

use super::Verdict;
use super::dead::Dead;
use super::split::{Island, Splitter};
use super::state::State;
use super::strategy::Strategy;
use millpond_core::plan::bits;

/// A step that was done, and the alternatives that are left.
enum Frame {
    /// A decision on one buffer.
    Move(Move),
    /// At point `entered`, the state with `key` and `left` buffers was split into islands. These are still to be
    /// searched.
    Split { entered: usize, key: u128, left: usize, sections: Vec<u32>, islands: Vec<Island> },
}

/// A decision on `buffer`, made at point `moved`. The state had `key` when it was entered at point `entered`. Between
/// the two points only the floors of waiting buffers were raised.
struct Move {
    buffer: u32,
    entered: usize,
    moved: usize,
    key: u128,
    other: Other,
}

/// The alternative to sitting.
enum Other {
    /// The buffer may wait. This was not tried yet.
    Wait,
    /// There is none: waiting is tried now, and sitting failed with this blame.
    Waiting(Vec<u64>),
    /// There is none: if sitting fails, so does waiting.
    None,
}

/// One run.
pub(super) struct Line<'s, 'f> {
    state: &'s mut State<'f>,
    strategy: Strategy,
    dead: &'s mut Dead,
    frames: Vec<Frame>,
    sections: Vec<u32>,
    splitter: Splitter,
    /// The number of moves on the stack for each buffer.
    moves: Vec<u32>,
    /// The reasons of the failure from which the run goes back.
    blame: Vec<u64>,
}

impl<'s, 'f> Line<'s, 'f> {
    /// Starts a run at the current state.
    pub(super) fn new(state: &'s mut State<'f>, strategy: Strategy, dead: &'s mut Dead) -> Self {
        let sections = (0..state.rest.len() as u32).collect();
        let (moves, blame) = (vec![0; state.floor.len()], vec![0; state.loose.len()]);
        Self { state, strategy, dead, frames: Vec::new(), sections, splitter: Splitter::default(), moves, blame }
    }

    /// Goes down until all buffers are placed, and back at failures, until `go_on` returns `false`.
    pub(super) fn follow(&mut self, mut go_on: impl FnMut() -> bool) -> Verdict {
        loop {
            if self.state.left == 0 && !self.next_island() {
                return self.state.found();
            }
            if !go_on() {
                return Verdict::Stopped;
            }
            if !self.descend() && !self.turn_back() {
                return Verdict::Impossible;
            }
        }
    }

    /// Makes the first move in this state, or splits it. Returns `true` if the next move may be looked for.
    fn descend(&mut self) -> bool {
        let (entered, key) = (self.state.point(), self.state.key);
        if self.dead.has(key) {
            self.state.blame_island(&self.sections);
            return false;
        }
        let mut islands = self.splitter.split(self.state, &self.sections);
        if !islands.is_empty() {
            if let Some(dead) = islands.iter().find(|island| self.dead.has(island.key)) {
                self.state.blame_island(&dead.sections);
                self.dead.bury(key);
                return false;
            }
            islands.reverse();
            let sections = std::mem::take(&mut self.sections);
            self.frames.push(Frame::Split { entered, key, left: self.state.left, sections, islands });
            return self.next_island();
        }
        let Some((buffer, other)) = self.decide() else {
            self.state.undo(entered);
            self.dead.bury(key);
            return false;
        };
        self.moves[buffer as usize] += 1;
        self.frames.push(Frame::Move(Move { buffer, entered, moved: self.state.point(), key, other }));
        self.state.sit(buffer)
    }

    /// Turns to an island that was not searched yet, and removes the moves of finished islands from the stack. Returns
    /// `true` if there is such an island.
    fn next_island(&mut self) -> bool {
        while let Some(frame) = self.frames.last_mut() {
            match frame {
                Frame::Move(done) => self.moves[done.buffer as usize] -= 1,
                Frame::Split { islands, .. } => {
                    if let Some(Island { key, left, sections }) = islands.pop() {
                        (self.state.key, self.state.left, self.sections) = (key, left, sections);
                        return true;
                    }
                }
            }
            self.frames.pop();
        }
        false
    }

    /// After a failure, makes the other move of the last decision that is to blame and has one. Returns `true` if there
    /// is such a decision.
    fn turn_back(&mut self) -> bool {
        self.blame.copy_from_slice(&self.state.reasons.blame);
        while let Some(frame) = self.frames.pop() {
            match frame {
                Frame::Move(last) => {
                    self.state.undo(last.moved);
                    let Some(last) = self.revise(last) else { return true };
                    self.moves[last.buffer as usize] -= 1;
                    self.state.undo(last.entered);
                    self.dead.bury(last.key);
                }
                Frame::Split { entered, key, left, sections, .. } => {
                    self.state.undo(entered);
                    (self.state.key, self.state.left, self.sections) = (key, left, sections);
                    self.dead.bury(key);
                }
            }
        }
        false
    }

    /// Makes the other move of a decision and puts it back on the stack, if the decision is to blame and the move does
    /// not fail at once. Otherwise returns the decision, and the blame is that of all its moves.
    fn revise(&mut self, last: Move) -> Option<Move> {
        let buffer = last.buffer;
        let is_to_blame = |blame: &[u64]| bits::has(blame, buffer as usize);
        if !is_to_blame(&self.blame) {
            return Some(last);
        }
        let (sat, must_sit) = match last.other {
            Other::Wait => {
                let sat = self.blame.clone();
                if self.state.wait(buffer) {
                    self.frames.push(Frame::Move(Move { other: Other::Waiting(sat), ..last }));
                    return None;
                }
                self.blame.copy_from_slice(&self.state.reasons.blame);
                self.state.undo(last.moved);
                if !is_to_blame(&self.blame) {
                    return Some(Move { other: Other::None, ..last });
                }
                (sat, false)
            }
            Other::Waiting(sat) => (sat, false),
            Other::None => (Vec::new(), true),
        };
        bits::join(&mut self.blame, &sat);
        // If an earlier decision to wait is on the same buffer, that decision stays to blame.
        if self.moves[buffer as usize] == 1 {
            bits::take(&mut self.blame, buffer as usize);
        }
        match must_sit {
            true => self.state.explain_sit(buffer, &mut self.blame),
            false => self.state.explain_wait(buffer, &mut self.blame),
        }
        Some(Move { other: Other::None, ..last })
    }

    /// Returns a buffer that may sit and that no other buffer can slip under. On the way, raises the floors of waiting
    /// buffers; returns `None` if one of them cannot be raised. Also returns the alternative. The buffer need not wait
    /// if it fits below the floors of all others: a plan in which it waits is no better than the same plan with it
    /// moved down.
    fn decide(&mut self) -> Option<(u32, Other)> {
        let mut buffer = self.strategy.choose(self.state, &self.sections);
        loop {
            let (floor, bytes) = (self.state.floor[buffer as usize], self.state.field.bytes[buffer as usize]);
            let above = self.state.above(buffer);
            match above.carrier {
                // The other buffer's floor is below this one's, so the loop ends.
                Some(other) if above.top <= floor => buffer = other,
                _ if !self.state.waits[buffer as usize] => {
                    let must_sit = above.floor >= floor + bytes;
                    return Some((buffer, if must_sit { Other::None } else { Other::Wait }));
                }
                _ if !self.state.wait_on(buffer) => return None,
                _ => buffer = self.strategy.choose(self.state, &self.sections),
            }
        }
    }
}
