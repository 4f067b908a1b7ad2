//! Problems whose best packing is known because they were made from it.
//!
//! A rectangle, steps wide and bytes high, is cut into pieces. Each piece is a buffer: live for the steps that it
//! spans, with the bytes of its height. At their original places, the pieces fill the rectangle without waste, and
//! every step has all its bytes live. So the height is the smallest capacity, and the lower bound. A cut goes through a
//! piece along one axis, or around a pinwheel, which no sequence of straight cuts can make. Everything follows from the
//! seed.

use millpond_plan::{Buffer, Lifetime, Plan, Problem};

/// A rectangle, and how to cut it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// The width in steps.
    pub(crate) steps: i64,
    /// The height in units.
    pub(crate) units: u64,
    /// The bytes of a unit.
    pub(crate) unit: u64,
    /// The approximate number of pieces.
    pub(crate) pieces: usize,
    /// The number of pinwheels in a hundred cuts.
    pub(crate) pinwheels: u64,
    /// The seed of the random numbers.
    pub(crate) seed: u64,
}

/// A piece, at the place where it was cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// Its first step.
    pub(crate) lower: i64,
    /// The first step after it.
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
    /// Returns the smallest capacity that is enough.
    pub(crate) fn capacity(&self) -> u64 {
        self.units * self.unit
    }

    /// Cuts the rectangle, and shuffles the pieces.
    pub(crate) fn cut(&self) -> Vec<Piece> {
        let mut random = Random(self.seed);
        let mut pieces = vec![Piece { lower: 0, upper: self.steps, floor: 0, top: self.units }];
        while pieces.len() < self.pieces {
            // The largest of a few, so that sizes stay similar but not equal.
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

    /// Returns the pieces as a problem, and the plan that they were cut from.
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

/// Cuts a piece in two.
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

/// Cuts a piece in five: four around one.
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

/// Random numbers from a seed (SplitMix64). The packings of the recorded results were made with these.
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
