//! The newest use of each life beside its history, in one line of memory: what a stream does again and again to the
//! same memory is judged and noted there.
//!
//! A use *repeats* the one before where the same stream does the same again and has learned nothing in between: then
//! whatever held for that one holds for this one, which takes its place. Such a use is noted in its line only; the
//! history is *behind* until the use is written back to it. Invariant **written-back**: whoever looks at a history
//! finds it not behind ([`Lives::at`](super::lives::Lives::at) asserts that); whoever changes it ends its line.
//!
//! Knows no verdict: what does not repeat anything is for the history to judge.

use super::lives::LifeId;
use crate::ids::{Point, Seq, Slot, StreamId};
use crate::life::{Site, Use};
use crate::op::{Act, Place};

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
        let line = self.lines.get_mut(life as usize)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Checker, Finding, Kind, Settings};
    use crate::ids::{DeviceId, EventId, HostId, PoolId};
    use crate::op::{Access, Mark, Memory, Names, Op, Start, StreamRole, What};

    const MEMORY: Memory = Memory { id: crate::ids::AllocId(7), generation: 3 };

    /// What a program is told whose first two operations make streams 1 and 2.
    fn found(program: &[What]) -> Vec<Finding> {
        let mut checker = Checker::new(Settings { races: false, leaks: false, advice: false, ..Settings::default() });
        let (names, mut findings) = (Names::new(), Vec::new());
        let stream = |stream| What::StreamCreate { stream, role: StreamRole::NonBlocking, device: DeviceId(0) };
        let streams = [stream(StreamId(1)), stream(StreamId(2))];
        for (line, what) in streams.iter().chain(program).enumerate() {
            let op = Op { host: HostId(0), place: Place::Line(line as u32 + 1), what: what.clone() };
            checker.check(&op, &names, &mut findings);
        }
        findings
    }

    fn alloc() -> What {
        What::Alloc { memory: MEMORY, pool: PoolId(0), stream: StreamId(1), bytes: 64, name: None }
    }

    fn launch(stream: u32, act: Act) -> What {
        let accesses = std::iter::once(Access::whole(MEMORY, act)).collect();
        What::Launch { stream: StreamId(stream), accesses, start: Start::Ordered, name: None }
    }

    fn free(stream: u32) -> What {
        What::Free { memory: MEMORY, stream: StreamId(stream) }
    }

    fn hand_over(from: u32, to: u32) -> [What; 2] {
        let (event, external) = (EventId(from), false);
        [
            What::EventRecord { event, stream: StreamId(from), external, mark: Mark::Completion },
            What::EventWait { event, stream: StreamId(to), external },
        ]
    }

    fn told(program: &[What]) -> Vec<(Kind, u64)> {
        let told = found(program).into_iter().map(|it| (it.kind, it.earlier.and_then(|side| side.op).unwrap_or(0)));
        told.collect()
    }

    #[test]
    fn what_was_repeated_last_is_the_other_side() {
        for act in [Act::Read, Act::Write] {
            let mut program = vec![alloc(), launch(1, act), launch(1, act)];
            program.extend(hand_over(1, 2));
            assert_eq!(told(&[&program[..], &[free(2)]].concat()), []);
            program.extend([launch(1, act), launch(1, act), free(2)]);
            assert_eq!(told(&program), [(Kind::FreeBeforeUse, 6)], "{act:?}: the record has a number, too");
        }
    }

    #[test]
    fn both_of_two_streams_that_repeat_must_precede_the_free() {
        let mut program = vec![alloc()];
        program.extend(hand_over(1, 2));
        for _ in 0..3 {
            program.extend([launch(1, Act::Read), launch(1, Act::Read), launch(2, Act::Read), launch(2, Act::Read)]);
        }
        assert_eq!(told(&[&program[..], &[free(1)]].concat()), [(Kind::FreeBeforeUse, 7)]);
        assert_eq!(told(&[&program[..], &[free(2)]].concat()), [(Kind::FreeBeforeUse, 8)]);
        program.extend(hand_over(2, 1));
        assert_eq!(told(&[&program[..], &[free(1)]].concat()), []);
    }

    #[test]
    fn a_read_after_a_repeated_write_does_not_stand_for_it() {
        let mut program = vec![alloc(), launch(1, Act::Write), launch(1, Act::Write)];
        program.extend([launch(1, Act::Read), launch(1, Act::Read), launch(1, Act::Read)]);
        program.extend(hand_over(1, 2));
        assert_eq!(told(&[&program[..], &[free(2)]].concat()), []);
        program.push(launch(1, Act::Write));
        assert_eq!(told(&[&program[..], &[free(2)]].concat()), [(Kind::FreeBeforeUse, 8)]);
    }

    #[test]
    fn memory_that_is_freed_is_not_used_again_by_repeating() {
        let program = [alloc(), launch(1, Act::Read), launch(1, Act::Read), free(1), launch(1, Act::Read)];
        assert_eq!(told(&program), [(Kind::UseAfterFree, 4)]);
    }
}
