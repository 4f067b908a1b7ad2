//! Bytes made wrong: a few changes of a seed, in an order that a number fixes.

/// A small generator of numbers (xorshift), so that a failure comes again from its seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self((0x9e37_79b9_7f4a_7c15 ^ seed).max(1))
    }

    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides.max(1) as u64) as usize
    }
}

/// Pieces that hurt readers.
const PIECES: &[&[u8]] = &[
    b"-",
    b"0",
    b"\n",
    b",",
    b"\"",
    b"[",
    b"99999999999999999999",
    b"\xff",
    b"\x00",
    b"(",
    b".",
    b"h\x00",
    b"\x94",
    b"e",
    b"\x80",
    b"null",
    b"1e999",
    b"0x",
    b" ",
];

pub(crate) fn mutated(seed: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len());
        let end = (at + dice.roll(20)).min(bytes.len());
        match dice.roll(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 if !bytes.is_empty() => bytes[at] ^= 1 << dice.roll(8),
            3 => {
                let piece = PIECES[dice.roll(PIECES.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            4 => {
                let copy = bytes[at..end].to_vec();
                let to = dice.roll(bytes.len());
                bytes.splice(to..to, copy);
            }
            _ if !bytes.is_empty() => bytes[at] = dice.roll(256) as u8,
            _ => {}
        }
    }
    bytes
}
