//! The newest use of each life beside its history, in one line of memory: what a stream does again and again to the
//! same memory is judged and noted there.
//!
//! A use *repeats* the one before where the same stream does the same again and has learned nothing in between: then
//! whatever held for that one holds for this one, which takes its place. Such a use is noted in its line only; the
//! history is *behind* until the use is written back to it. Invariant **written-back**: whoever looks at a history
//! finds it not behind (`Lives::at` asserts that); whoever changes it ends its line.
//!
//! Knows no verdict: what does not repeat anything is for the history to judge.

use crate::ids::{Point, Seq, Slot, StreamId};
use crate::life::{Site, Use};
use crate::op::{Act, Place};

/// A life by its place in the table; recycled.
pub(super) type LifeId = u32;

const NONE: u32 = u32::MAX;

/// The newest use of a life.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line {
    /// Whether it is one that may be repeated.
    is_there: bool,
    /// The birth counts: any use by its stream repeats that.
    act: Act,
    /// Where it is listed among those whose histories are behind, if it is.
    behind: u32,
    slot: Slot,
    stream: StreamId,
    seq: Seq,
    op: u64,
    place: Place,
}

impl Line {
    const EMPTY: Line = Line {
        is_there: false,
        act: Act::Allocate,
        behind: NONE,
        slot: Slot(0),
        stream: StreamId(0),
        seq: 0,
        op: 0,
        place: Place::Unknown,
    };

    fn newest(&self) -> Use {
        let Line { slot, seq, act, stream, op, place, .. } = *self;
        Use { point: Point { slot, seq }, site: Site { act, stream, op, place } }
    }
}

/// The lines of all lives, and which histories are behind.
#[derive(Debug, Default)]
pub(super) struct Newest {
    lines: Vec<Line>,
    behind: Vec<LifeId>,
}

impl Newest {
    /// Whether such a use of all bytes by a stream, that learned something last at `learned`, repeats the one before.
    #[inline]
    pub(super) fn is_repeated(&self, life: LifeId, act: Act, slot: Slot, learned: Seq) -> bool {
        self.lines.get(life as usize).is_some_and(|line| {
            line.is_there && line.slot == slot && line.seq >= learned && (line.act == act || line.act == Act::Allocate)
        })
    }

    /// Notes a use that repeats the one before.
    #[inline]
    pub(super) fn repeat(&mut self, life: LifeId, new: Use) {
        let Some(line) = self.lines.get_mut(life as usize) else { return };
        let Use { point, site } = new;
        (line.seq, line.op, line.place, line.act, line.stream) =
            (point.seq, site.op, site.place, site.act, site.stream);
        if line.behind == NONE {
            line.behind = self.behind.len() as u32;
            self.behind.push(life);
        }
    }

    /// A history has this as its newest use, or begins with it.
    pub(super) fn note(&mut self, life: LifeId, newest: Use) {
        let at = life as usize;
        if at >= self.lines.len() {
            self.lines.resize((at + 1).next_power_of_two(), Line::EMPTY);
        }
        let Use { point: Point { slot, seq }, site: Site { act, stream, op, place } } = newest;
        debug_assert!(self.lines[at].behind == NONE, "what is behind is written back first");
        self.lines[at] = Line { is_there: true, behind: NONE, slot, stream, seq, op, place, act };
    }

    /// A history changes: what it lacks is handed out, and nothing repeats what was before.
    #[inline]
    pub(super) fn end(&mut self, life: LifeId) -> Option<Use> {
        // One that is behind is there.
        let line = self.lines.get_mut(life as usize).filter(|line| line.is_there)?;
        line.is_there = false;
        if line.behind == NONE { None } else { self.take(life) }
    }

    /// What a history lacks, if it is behind.
    pub(super) fn take(&mut self, life: LifeId) -> Option<Use> {
        let line = self.lines.get_mut(life as usize).filter(|line| line.behind != NONE)?;
        let (at, newest) = (std::mem::replace(&mut line.behind, NONE), line.newest());
        self.behind.swap_remove(at as usize);
        if let Some(moved) = self.behind.get(at as usize) {
            self.lines[*moved as usize].behind = at;
        }
        Some(newest)
    }

    /// One whose history is behind.
    pub(super) fn any_behind(&self) -> Option<LifeId> {
        self.behind.last().copied()
    }

    /// Whether a history is behind.
    pub(super) fn is_behind(&self, life: LifeId) -> bool {
        self.lines.get(life as usize).is_some_and(|line| line.behind != NONE)
    }

    /// How many lines there are.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }
}
