//! Problems whose best packing is known because they were made from it.
//!
//! A rectangle, steps wide and bytes high, is cut into pieces; each piece is a buffer, live for the steps it spans, of
//! the bytes it is high. Put back where they were cut, the pieces fill the rectangle without waste, and every step has
//! all its bytes live: the height is the smallest capacity, and the lower bound. A cut goes through a piece along one
//! axis, or around a pinwheel, which no sequence of straight cuts can make. Everything follows from the seed.

use millpond_plan::{Buffer, Lifetime, Plan, Problem};

/// A rectangle to cut, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// How many steps it is wide.
    pub(crate) steps: i64,
    /// How many units it is high.
    pub(crate) units: u64,
    /// Bytes of a unit.
    pub(crate) unit: u64,
    /// How many pieces to cut it into, about.
    pub(crate) pieces: usize,
    /// Of a hundred cuts, how many are pinwheels.
    pub(crate) pinwheels: u64,
    /// Where randomness begins.
    pub(crate) seed: u64,
}

/// A piece: where it was cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// Its first step.
    pub(crate) lower: i64,
    /// The first step behind it.
    pub(crate) upper: i64,
    /// Its lowest unit.
    pub(crate) floor: u64,
    /// The first unit above it.
    pub(crate) top: u64,
}

impl Piece {
    fn width(&self) -> i64 {
        self.upper - self.lower
    }

    fn height(&self) -> u64 {
        self.top - self.floor
    }
}

impl Recipe {
    /// The capacity that is enough, and without which nothing is.
    pub(crate) fn capacity(&self) -> u64 {
        self.units * self.unit
    }

    /// Cuts, and shuffles the pieces.
    pub(crate) fn cut(&self) -> Vec<Piece> {
        let mut random = Random(self.seed);
        let mut pieces = vec![Piece { lower: 0, upper: self.steps, floor: 0, top: self.units }];
        while pieces.len() < self.pieces {
            // The largest of a few, so that sizes stay alike but not equal.
            let drawn = (0..3).map(|_| random.below(pieces.len() as u64) as usize);
            let at = drawn.max_by_key(|&at| pieces[at].width() as u64 * pieces[at].height()).expect("three are drawn");
            let piece = pieces[at];
            let parts = match random.below(100) < self.pinwheels {
                true => pinwheel(piece, &mut random),
                false => halves(piece, &mut random),
            };
            if let Some(parts) = parts {
                pieces.swap_remove(at);
                pieces.extend(parts);
            }
        }
        for last in (1..pieces.len()).rev() {
            pieces.swap(last, random.below(last as u64 + 1) as usize);
        }
        pieces
    }

    /// The pieces as a problem, and the plan they were cut from.
    #[allow(dead_code, reason = "not every user of this module needs it")]
    pub(crate) fn problem(&self) -> (Problem, Plan) {
        let pieces = self.cut();
        let buffers = pieces.iter().map(|piece| Buffer::new(piece.height() * self.unit)).collect();
        let lives = pieces.iter().map(|piece| Lifetime { lower: piece.lower, upper: piece.upper }).collect();
        let offsets = pieces.iter().map(|piece| piece.floor * self.unit).collect();
        let problem = Problem::from_lifetimes(buffers, lives).expect("pieces are sound");
        (problem, Plan { offsets, capacity: self.capacity() })
    }
}

/// A piece cut in two.
fn halves(piece: Piece, random: &mut Random) -> Option<Vec<Piece>> {
    match (piece.width() > 1, piece.height() > 1) {
        (true, tall) if !tall || random.below(2) == 0 => {
            let at = piece.lower + 1 + random.below(piece.width() as u64 - 1) as i64;
            Some(vec![Piece { upper: at, ..piece }, Piece { lower: at, ..piece }])
        }
        (_, true) => {
            let at = piece.floor + 1 + random.below(piece.height() - 1);
            Some(vec![Piece { top: at, ..piece }, Piece { floor: at, ..piece }])
        }
        _ => None,
    }
}

/// A piece cut in five: four around one.
fn pinwheel(piece: Piece, random: &mut Random) -> Option<Vec<Piece>> {
    if piece.width() < 3 || piece.height() < 3 {
        return None;
    }
    let mut pair = |room: u64| {
        let first = 1 + random.below(room - 2);
        (first, first + 1 + random.below(room - first - 1))
    };
    let (left, right) = pair(piece.width() as u64);
    let (low, high) = pair(piece.height());
    let (left, right) = (piece.lower + left as i64, piece.lower + right as i64);
    let (low, high) = (piece.floor + low, piece.floor + high);
    Some(vec![
        Piece { upper: right, top: low, ..piece },
        Piece { lower: right, top: high, ..piece },
        Piece { lower: left, floor: high, ..piece },
        Piece { upper: left, floor: low, ..piece },
        Piece { lower: left, upper: right, floor: low, top: high },
    ])
}

/// Numbers that follow from a seed (SplitMix64): those that the packings of the results were made of.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits ^ bits >> 31) % end
    }
}
