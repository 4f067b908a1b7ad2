//! Pinned memory of dropped buffers, set aside until the copies that may use it have completed.
//!
//! Depends on points, ends of chains and addresses. The code that asks the device and gives memory back is in
//! `pool/shell.rs`.

use std::collections::{BTreeMap, VecDeque};

use millpond_core::ids::{ChainIndex, Point};
use millpond_core::order::Completed;
use smallvec::SmallVec;

/// The number of pieces that are looked at for one request. Pieces that were looked at in vain come last the next time.
const LOOK: usize = 8;

/// A source that says what has completed.
pub(crate) trait Asked: Completed {
    type End;

    /// Returns the end that the point's stream has now, or `None` if the device is past the point or cannot record the
    /// end.
    fn end_now(&self, point: Point) -> Option<Self::End>;

    /// Returns `true` if the device is past an end. Everything before the end has completed then, which is known from
    /// now on.
    fn is_past(&self, end: &Self::End) -> bool;
}

/// Memory of a dropped buffer.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The copies that it is free after.
    pub(crate) after: SmallVec<[Point; 2]>,
}

impl Retired {
    /// Returns the first of its copies that may still run. INVARIANT: pinned-after-copies.
    fn unfinished(&self, completed: &impl Completed) -> Option<Point> {
        self.after.iter().copied().find(|point| !completed.is_over(*point))
    }
}

/// The memory of all dropped buffers.
#[derive(Debug)]
pub(crate) struct Laid<E> {
    /// The pieces, by their bytes. No queue is empty.
    pieces: BTreeMap<u64, VecDeque<Retired>>,
    /// Ends of chains that were asked in vain. A stream is asked for all that it has. A stream that never runs dry
    /// would say no for ever, but it does reach this end.
    ends: Vec<(ChainIndex, E)>,
}

impl<E> Default for Laid<E> {
    fn default() -> Self {
        Self { pieces: BTreeMap::new(), ends: Vec::new() }
    }
}

impl<E> Laid<E> {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Adds the memory of a dropped buffer.
    pub(crate) fn add(&mut self, piece: Retired) {
        self.pieces.entry(piece.bytes).or_default().push_back(piece);
    }

    /// Takes out a free piece that has at least `bytes`, and not more than twice as many. Smaller pieces are looked at
    /// first.
    pub(crate) fn take(&mut self, bytes: u64, asked: &impl Asked<End = E>) -> Option<Retired> {
        let Self { pieces, ends } = self;
        ends.retain(|(_, end)| !asked.is_past(end));
        let mut looks = LOOK;
        let mut found = None;
        for pieces in pieces.range_mut(bytes..=bytes.saturating_mul(2)).map(|(_, pieces)| pieces) {
            let in_vain = pieces.iter().take(looks).map_while(|it| it.unfinished(asked));
            let looked = in_vain.inspect(|point| note_end(ends, *point, asked)).count();
            pieces.rotate_left(looked);
            looks -= looked;
            if looks == 0 {
                break;
            }
            if looked < pieces.len() {
                found = pieces.pop_front();
                // For the next request: the end that it asks for then covers everything that is here now.
                let last = pieces.back().and_then(|it| it.unfinished(asked));
                last.into_iter().for_each(|point| note_end(ends, point, asked));
                break;
            }
        }
        found.inspect(|it| self.forget_empty(it.bytes))
    }

    /// Takes out all free pieces.
    pub(crate) fn take_free(&mut self, asked: &impl Completed) -> Vec<Retired> {
        let mut free = Vec::new();
        self.pieces.retain(|_, pieces| {
            for piece in std::mem::take(pieces) {
                match piece.unfinished(asked) {
                    None => free.push(piece),
                    Some(_) => pieces.push_back(piece),
                }
            }
            !pieces.is_empty()
        });
        free
    }

    fn forget_empty(&mut self, bytes: u64) {
        if self.pieces.get(&bytes).is_some_and(VecDeque::is_empty) {
            self.pieces.remove(&bytes);
        }
    }
}

/// Records the present end of a chain that has not completed so far, if no end of it is recorded.
fn note_end<E>(ends: &mut Vec<(ChainIndex, E)>, point: Point, asked: &impl Asked<End = E>) {
    if ends.iter().all(|(chain, _)| *chain != point.chain) {
        ends.extend(asked.end_now(point).map(|end| (point.chain, end)));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use millpond_core::ids::{ChainIndex, Point};
    use millpond_core::order::Completed;

    use super::{Asked, LOOK, Laid, Retired};

    /// A stream: what was submitted to it, how far it is, how far it is known to be, and how often it was asked.
    #[derive(Default)]
    struct Stream {
        submitted: Cell<u64>,
        at: Cell<u64>,
        known: Cell<u64>,
        asked: Cell<usize>,
    }

    impl Completed for Stream {
        fn is_over(&self, point: Point) -> bool {
            self.asked.update(|asked| asked + 1);
            if self.at >= self.submitted {
                self.known.set(self.at.get());
            }
            point.seq <= self.known.get()
        }
    }

    impl Asked for Stream {
        type End = u64;

        fn end_now(&self, _: Point) -> Option<u64> {
            Some(self.submitted.get())
        }

        fn is_past(&self, end: &u64) -> bool {
            self.known.update(|known| if *end <= self.at.get() { known.max(*end) } else { known });
            *end <= self.at.get()
        }
    }

    /// Returns a stream without further work.
    fn up_to(seq: u64) -> Stream {
        Stream { at: seq.into(), submitted: seq.into(), ..Stream::default() }
    }

    fn piece(bytes: u64, after: &[u64]) -> Retired {
        let after = after.iter().map(|&seq| Point { chain: ChainIndex(1), seq }).collect();
        Retired { at: bytes << 20, bytes, after }
    }

    #[test]
    fn the_smallest_free_piece_of_about_that_size_is_taken() {
        let mut laid = Laid::default();
        for it in [piece(9000, &[]), piece(4096, &[3]), piece(8192, &[1, 2]), piece(100, &[])] {
            laid.add(it);
        }
        let mut bytes = |wanted, seen| laid.take(wanted, &up_to(seen)).map(|it| it.bytes);
        assert_eq!(bytes(4000, 0), None, "one is in use, and the others are too large or too small");
        assert_eq!(bytes(4096, 1), None, "of two copies one runs");
        assert_eq!(bytes(4096, 2), Some(8192));
        assert_eq!(bytes(4000, 3), Some(4096));
        assert_eq!(bytes(4500, 3), Some(9000));
        assert_eq!(bytes(4500, 3), None);
        assert_eq!(bytes(1, 3), None, "a byte does not get a hundred");
        assert_eq!(bytes(50, 3), Some(100));
        assert!(laid.is_empty());
    }

    #[test]
    fn few_pieces_are_looked_at_and_none_is_passed_over_for_ever() {
        let mut laid = Laid::default();
        (0..100).for_each(|_| laid.add(piece(4096, &[7])));
        laid.add(piece(4096, &[1]));
        let (completed, mut requests) = (up_to(1), 1);
        while laid.take(4096, &completed).is_none() {
            requests += 1;
        }
        assert!(requests <= 100 / LOOK + 1, "{requests} requests");
        assert!(completed.asked.get() <= requests * (LOOK + 1), "{} questions", completed.asked.get());
    }

    #[test]
    fn all_that_is_free_is_taken_at_once() {
        let mut laid = Laid::<u64>::default();
        (0..9).for_each(|at| laid.add(piece(4096 * (at % 2 + 1), &[at])));
        assert_eq!((laid.take_free(&up_to(3)).len(), laid.take_free(&up_to(3)).len()), (4, 0));
        assert_eq!((laid.take_free(&up_to(9)).len(), laid.is_empty()), (5, true));
    }

    /// Each request submits a copy before the one before has completed.
    #[test]
    fn memory_comes_back_from_a_stream_that_never_runs_dry() {
        let (mut laid, stream, mut made) = (Laid::default(), Stream::default(), 0);
        for seq in 1..10_000 {
            stream.submitted.set(seq);
            if laid.take(4096, &stream).is_none() {
                made += 1;
            }
            stream.at.set(seq - 1);
            laid.add(piece(4096, &[seq]));
        }
        assert!(made < 8, "{made} pieces");
    }
}
