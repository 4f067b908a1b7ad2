//! Wrong bytes: a few changes of a seed, in an order that depends on a number.

use fastrand::Rng;

/// Pieces that are difficult for readers.
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

pub(crate) fn mutated(seed: &[u8], dice: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=dice.usize(..4) {
        let at = dice.usize(..bytes.len().max(1));
        let end = (at + dice.usize(..20)).min(bytes.len());
        match dice.usize(..6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 if !bytes.is_empty() => bytes[at] ^= 1 << dice.usize(..8),
            3 => {
                let piece = PIECES[dice.usize(..PIECES.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            4 => {
                let copy = bytes[at..end].to_vec();
                let to = dice.usize(..=bytes.len());
                bytes.splice(to..to, copy);
            }
            _ if !bytes.is_empty() => bytes[at] = dice.u8(..),
            _ => {}
        }
    }
    bytes
}
