//! The work of a stream that a launch which may start early can overlap (CUDA: programmatic launches), and what is
//! known by it alone.
//!
//! It lasts until work of the stream that waits for all before it. What the stream is made to wait for meanwhile is
//! known by that, and nothing else is: neither an allocation nor a free in the stream's order waits for anything.
//!
//! Knows points; nothing of streams and memory.

use crate::ids::{Point, Seq, Slot};
use crate::op::Place;
use crate::order::{Clock, Snapshot};

/// The last work of a stream, and what began early after it.
#[derive(Debug)]
pub(super) struct LastWork {
    /// Its position in the stream.
    from: Seq,
    /// The last position of the stream that was waited for since.
    waited: Seq,
    /// The last wait that put a part of this before what comes.
    wait: Option<Place>,
    /// Of a graph or an upload, which learn more than the stream. Plain work learns nothing, and what the stream learns
    /// later it learns by something else.
    learned: Option<Box<Gained>>,
}

/// What a graph or an upload learned.
#[derive(Debug)]
struct Gained {
    /// What the stream knew before and after.
    before: Snapshot,
    after: Snapshot,
    /// What of that was waited for since.
    waited: Clock,
}

impl LastWork {
    /// Work at a position that learned nothing.
    #[inline]
    pub(super) fn at(from: Seq) -> Self {
        LastWork { from, waited: 0, wait: None, learned: None }
    }

    /// A graph, with what the stream knew before and after.
    pub(super) fn of_graph(from: Seq, before: Snapshot, after: Snapshot) -> Self {
        let learned = Gained { before, after, waited: Clock::default() };
        LastWork { learned: Some(Box::new(learned)), ..LastWork::at(from) }
    }

    /// What there is after an upload, if there was this before: it separates nothing from what is behind it.
    pub(super) fn uploaded(last: Option<LastWork>, met: Seq, before: Snapshot, after: Snapshot) -> Self {
        let last = last.unwrap_or_else(|| LastWork::at(after.point().seq));
        let learned = match last.learned.filter(|learned| learned.after.point().seq > met) {
            Some(learned) => Gained { after, ..*learned },
            None => Gained { before, after, waited: Clock::default() },
        };
        LastWork { learned: Some(Box::new(learned)), ..last }
    }

    /// The stream, with this chain's number, waits for a snapshot.
    pub(super) fn wait(&mut self, slot: Slot, snapshot: &Snapshot, place: Place) {
        let (seen, mut is_news) = (snapshot.seen(slot), false);
        if seen >= self.from && seen > self.waited {
            (self.waited, is_news) = (seen, true);
        }
        if let Some(learned) = &mut self.learned {
            for point in learned.after.points() {
                let now = Point { seq: point.seq.min(snapshot.seen(point.slot)), ..point };
                if now.seq > 0 && !learned.before.covers(now) && !learned.waited.covers(now) {
                    learned.waited.raise(now);
                    is_news = true;
                }
            }
        }
        if is_news {
            self.wait = Some(place);
        }
    }

    /// Whether a stream with this chain's number, which the rule of the default streams made wait for its own positions
    /// up to `met`, would know a point by this alone, or by what was done since, but for waits.
    pub(super) fn says(&self, point: Point, slot: Slot, met: Seq) -> bool {
        if point.slot == slot {
            return point.seq >= self.from && point.seq > met;
        }
        let is_learned = |it: &Gained| it.after.point().seq > met && it.after.covers(point) && !it.before.covers(point);
        self.learned.as_ref().is_some_and(|learned| is_learned(learned))
    }

    /// What a graph or an upload learned, and what the stream knew before.
    pub(super) fn learned(&self) -> impl Iterator<Item = Point> + '_ {
        self.learned.iter().flat_map(|learned| learned.after.points())
    }

    /// The wait by which such a point is known all the same.
    pub(super) fn wait_for(&self, point: Point, slot: Slot) -> Option<Place> {
        let is_waited = match point.slot == slot {
            true => point.seq <= self.waited,
            false => self.learned.as_ref().is_some_and(|learned| learned.waited.covers(point)),
        };
        self.wait.filter(|_| is_waited)
    }
}
