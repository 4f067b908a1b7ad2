//! Branch and bound: a buffer sits on its floor or waits.
//!
//! **The simple form.** Let every plan fall: take buffers from below and push each down until it rests on byte 0 or on
//! a buffer that it conflicts with. No plan gets higher by this, so only fallen plans need to be searched. Give each
//! buffer a floor, 0 at first. Take a buffer `i` that no other can slip under: `floor(i) < floor(j) + bytes(j)` for
//! every `j` that is not placed and conflicts with it. In a fallen plan there are two cases. Either `i` *sits* on its
//! floor; then all those `j` are above it, so their floors rise to its top. Or it *waits*: one of those `j` carries it,
//! so its floor rises to the lowest of their tops. In both cases floors only rise. If the bytes that a section has yet
//! to take do not fit between its lowest floor and the capacity, go back. This is complete: one of the two moves is
//! always right.
//!
//! **Departures**, with their reasons.
//! * *Anywhere, not bottom up.* Published searches place buffers in ascending order of offset. The rule above requires
//!   only that no buffer can slip under `i`, so the search may work where it is hardest ([`strategy`]): wrong moves are
//!   found soon after they are made. On the public benchmark this reduces a million steps to a thousand.
//! * *Waiting is remembered.* A buffer that waits may not sit until a buffer that is placed later carries it. As the
//!   floors of the others rise, so does its own.
//! * *Islands.* If the placed buffers leave the others in sets that do not conflict, each set is searched by itself. No
//!   line goes back into one set because another failed.
//! * *Dead states are kept.* Different stacks below lead to the same floors above. An island from which every line
//!   failed is added to a table, and is not entered again by this or any later run of any strategy.
//! * *Back to what is to blame.* A failure follows from few of the decisions made: the reasons of the floors that it
//!   concerns ([`reasons`]). Going back skips all others. This takes three to five times fewer steps on the hardest
//!   public instances.
//! * *Many short runs.* A run of one strategy is either quick or hopeless. So strategies take turns, each time for a
//!   little longer, with noise. Sections that ended many lines are worked on earlier ([`State::failures`]).
//!
//! Invariants: **sound**: a plan found is right by construction, and the caller verifies it again; **complete**: a run
//! that is not stopped ends with a plan or a proof that there is none (unless two states have the same 128-bit key);
//! **repeatable**: no clock, and no randomness except the run's number.

mod dead;
mod field;
mod line;
mod reasons;
mod split;
mod state;
mod strategy;

use dead::Dead;

pub(crate) use field::Field;
use line::Line;
use state::State;
use strategy::{PAIRS, Strategy};

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// A plan: the offsets, in the order of the part, and the height.
    Found { offsets: Vec<u64>, height: u64 },
    /// A proof that no plan fits the capacity.
    Impossible,
    /// The run was stopped by its limit or by the watcher.
    Stopped,
}

/// A search for a plan of one part within one capacity. It has many runs.
pub(crate) struct Search<'f> {
    state: Option<State<'f>>,
    dead: Dead,
    run: u64,
}

impl<'f> Search<'f> {
    /// Creates a search that has not begun.
    pub(crate) fn new(field: &'f Field, capacity: u64) -> Self {
        Self { state: State::new(field, capacity), dead: Dead::default(), run: 0 }
    }

    /// Returns the number of runs so far.
    pub(crate) fn runs(&self) -> u64 {
        self.run
    }

    /// Makes the next run, with the next strategy and its number of steps. `go_on` is called at every step.
    pub(crate) fn run(&mut self, mut go_on: impl FnMut() -> bool) -> Verdict {
        let Some(state) = &mut self.state else { return Verdict::Impossible };
        let strategy = Strategy::new(state, self.run);
        let mut steps = limit(state.field.len(), self.run / PAIRS);
        self.run += 1;
        let verdict = Line::new(state, strategy, &mut self.dead).follow(|| {
            steps = steps.saturating_sub(1);
            steps > 0 && go_on()
        });
        state.reset();
        verdict
    }
}

/// Returns the number of steps of a run for `buffers`: enough to go down a few times, and more in each round.
fn limit(buffers: usize, round: u64) -> u64 {
    let first = 500 + 3 * buffers as u64;
    first.saturating_mul(4 + round) / 4
}
