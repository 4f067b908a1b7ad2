//! Branch and bound: a buffer sits on its floor or waits.
//!
//! **The simple version.** Let every plan fall: take buffers from below and push each down until it rests on byte 0 or
//! on a buffer it conflicts with. No plan gets higher, so it is enough to look for fallen ones. Give each buffer a
//! floor, 0 at first. Take a buffer `i` that no other can slip under: `floor(i) < floor(j) + bytes(j)` for every `j`
//! not placed that conflicts with it. In a fallen plan either `i` *sits* on its floor, and all those `j` are above it,
//! so their floors rise to its top; or it *waits*: one of those `j` carries it, so its floor rises to the lowest of
//! their tops. Either way floors only rise. Where the bytes that a section has yet to take do not fit between the
//! lowest floor in it and the capacity, go back. That is all, and it is complete: one of the two moves is always
//! right.
//!
//! **Departures**, and why.
//! * *Anywhere, not bottom up.* Published searches place buffers in rising order of offset. The rule above needs only
//!   that no one can slip under `i`, so the search may work where it is hardest ([`strategy`]): wrong moves are found
//!   while they are fresh. On the public benchmark this is the difference between a thousand steps and a million.
//! * *Waiting is remembered.* A buffer that waits may not sit until a buffer placed later carries it; as the others'
//!   floors rise, so does its own.
//! * *Islands.* Where what was placed leaves buffers in sets that do not conflict, each set is searched by itself: no
//!   line goes back into one because another failed.
//! * *Dead states are kept.* Different stacks below lead to the same floors above. An island from which every
//!   line failed goes into a table, and is not entered again by this or any later run, whatever its strategy.
//! * *Back to what is to blame.* A failure follows from few of the decisions made: those that the floors it is about
//!   follow from ([`reasons`]). Going back skips all others: three to five times fewer steps on the hardest public
//!   instances.
//! * *Many short runs.* A run of one strategy is either quick or hopeless, so strategies take turns, each a little
//!   longer than the last time, with noise. Sections that ended many lines are worked on earlier
//!   ([`State::failures`]).
//!
//! Invariants: **sound**: a plan found is right by construction, and is verified again by the caller; **complete**: a
//! run that is not stopped ends with a plan or a proof that there is none (up to two states of one 128-bit key);
//! **repeatable**: no clock, no randomness but the run's number.

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

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// With these offsets, in the order of the part, and this height.
    Found { offsets: Vec<u64>, height: u64 },
    /// With a proof that no plan fits the capacity.
    Impossible,
    /// By its limit, or by whoever watched.
    Stopped,
}

/// A search for a plan of one part within one capacity, in many runs.
pub(crate) struct Search<'f> {
    state: Option<State<'f>>,
    dead: Dead,
    run: u64,
}

impl<'f> Search<'f> {
    /// A search that has not begun.
    pub(crate) fn new(field: &'f Field, capacity: u64) -> Self {
        Self { state: State::new(field, capacity), dead: Dead::default(), run: 0 }
    }

    /// How many runs there were.
    pub(crate) fn runs(&self) -> u64 {
        self.run
    }

    /// The next run, with the next strategy, of as many steps as are due. `go_on` is asked at every step.
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

/// How many steps a run of `buffers` gets in its round: enough to go down a few times, and more each round.
fn limit(buffers: usize, round: u64) -> u64 {
    let first = 500 + 3 * buffers as u64;
    first.saturating_mul(4 + round) / 4
}
