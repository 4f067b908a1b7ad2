//! One run of a search: down while moves fit, back where they do not.
//!
//! An explicit stack, for a line is as deep as there are buffers. A *move* on it has another move to try; a *split*
//! has further islands to search. When an island is done its moves leave the stack: they were right, whatever becomes
//! of the next. When one fails, so does the state that was split.
//!
//! Invariants: **complete**: a state is dead only when both its moves are, or one of its islands is;
//! **here**: `sections`, and the key and count of the state, are those of the island being searched.

use super::Verdict;
use super::dead::Dead;
use super::split::{Island, Splitter};
use super::state::State;
use super::strategy::Strategy;

/// What was done, and what is left to try.
enum Frame {
    /// `buffer` sits, or, `waited`, waits. The state had `key` when it was entered at point `entered`; on the way to
    /// `moved` only the floors of those who wait were raised.
    Move { buffer: u32, entered: usize, moved: usize, key: u128, waited: bool },
    /// The state with `key` and `left` buffers at point `entered` fell into islands; these are yet to be searched.
    Split { entered: usize, key: u128, left: usize, sections: Vec<u32>, islands: Vec<Island> },
}

/// One run.
pub(super) struct Line<'s, 'f> {
    state: &'s mut State<'f>,
    strategy: Strategy,
    dead: &'s mut Dead,
    frames: Vec<Frame>,
    sections: Vec<u32>,
    splitter: Splitter,
}

impl<'s, 'f> Line<'s, 'f> {
    /// A run from where the state is.
    pub(super) fn new(state: &'s mut State<'f>, strategy: Strategy, dead: &'s mut Dead) -> Self {
        let sections = (0..state.rest.len() as u32).collect();
        Self { state, strategy, dead, frames: Vec::new(), sections, splitter: Splitter::default() }
    }

    /// Goes down until all is placed, back where it fails, until `go_on` says no.
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

    /// Makes the first move in this state, or splits it. Whether the next may be looked for.
    fn descend(&mut self) -> bool {
        let (entered, key) = (self.state.point(), self.state.key);
        if self.dead.has(key) {
            return false;
        }
        let mut islands = self.splitter.split(self.state, &self.sections);
        if !islands.is_empty() {
            if islands.iter().any(|island| self.dead.has(island.key)) {
                self.dead.bury(key);
                return false;
            }
            islands.reverse();
            let sections = std::mem::take(&mut self.sections);
            self.frames.push(Frame::Split { entered, key, left: self.state.left, sections, islands });
            return self.next_island();
        }
        let Some((buffer, must_sit)) = self.decide() else {
            self.state.undo(entered);
            self.dead.bury(key);
            return false;
        };
        self.frames.push(Frame::Move { buffer, entered, moved: self.state.point(), key, waited: must_sit });
        self.state.sit(buffer)
    }

    /// Turns to an island not yet searched, with the moves of those done off the stack. Whether there was one.
    fn next_island(&mut self) -> bool {
        while let Some(frame) = self.frames.last_mut() {
            if let Frame::Split { islands, .. } = frame
                && let Some(Island { key, left, sections }) = islands.pop()
            {
                (self.state.key, self.state.left, self.sections) = (key, left, sections);
                return true;
            }
            self.frames.pop();
        }
        false
    }

    /// Makes the other move in the last state that has one. Whether there was one.
    fn turn_back(&mut self) -> bool {
        while let Some(frame) = self.frames.last_mut() {
            match frame {
                Frame::Move { buffer, entered, moved, key, waited } => {
                    self.state.undo(*moved);
                    if !*waited {
                        *waited = true;
                        if self.state.wait(*buffer) {
                            return true;
                        }
                    }
                    self.state.undo(*entered);
                    self.dead.bury(*key);
                }
                Frame::Split { entered, key, left, sections, .. } => {
                    self.state.undo(*entered);
                    (self.state.key, self.state.left) = (*key, *left);
                    self.sections = std::mem::take(sections);
                    self.dead.bury(*key);
                }
            }
            self.frames.pop();
        }
        false
    }

    /// A buffer that no other can slip under and that may sit. On the way the floors of those who wait are raised;
    /// `None` where one of them cannot be. And whether it has to sit: where it fits below the floors of all others, a
    /// plan in which it waits is no better than the same with it moved down.
    fn decide(&mut self) -> Option<(u32, bool)> {
        let mut buffer = self.strategy.choose(self.state, &self.sections);
        loop {
            let (floor, bytes) = (self.state.floor[buffer as usize], self.state.field.bytes[buffer as usize]);
            let above = self.state.above(buffer);
            match above.carrier {
                // The other's floor is below this one's, so this ends.
                Some(other) if above.top <= floor => buffer = other,
                _ if !self.state.waits[buffer as usize] => return Some((buffer, above.floor >= floor + bytes)),
                _ if !self.state.wait(buffer) => return None,
                _ => buffer = self.strategy.choose(self.state, &self.sections),
            }
        }
    }
}
