//! The seeds of the fuzz targets, and many mutations of them, through the readers: no panic, and what is read is a
//! program. What `cargo fuzz` does at length, in the time of an ordinary test and without nightly.

use std::fs;
use std::path::Path;

use millpond_cli::recorded::{self, Recorded, Refusal};

type Reader = fn(&[u8]) -> Result<Vec<Recorded>, Refusal>;

const READERS: &[(&str, Reader)] = &[
    ("any", |bytes| recorded::read("seed", bytes)),
    ("json_lines", |bytes| recorded::json_lines::read("seed", bytes).map(|one| vec![one])),
    ("plain", |bytes| recorded::plain::read("seed", bytes).map(|one| vec![one])),
    ("rmm", |bytes| recorded::rmm::read("seed", bytes).map(|one| vec![one])),
    ("snapshot", |bytes| recorded::snapshot::read("seed", bytes)),
];

/// Mutations of each seed.
const ROUNDS: u64 = 3000;

/// A small generator of numbers (xorshift), so that a failure comes again from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
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

fn mutated(seed: &[u8], dice: &mut Dice) -> Vec<u8> {
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

#[test]
fn seeds_and_their_mutations() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/seeds");
    for (target, reader) in READERS {
        let (mut read, mut refused) = (0, 0);
        let mut paths: Vec<_> = fs::read_dir(seeds.join(target)).unwrap().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for (number, path) in paths.iter().enumerate() {
            let seed = fs::read(path).unwrap();
            for round in 0..ROUNDS {
                let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ round << 8 ^ number as u64);
                let bytes = if round == 0 { seed.clone() } else { mutated(&seed, &mut dice) };
                match reader(&bytes) {
                    Ok(found) => {
                        found.iter().for_each(|recorded| recorded.program.audit());
                        read += 1;
                    }
                    Err(refusal) => {
                        let text = refusal.to_string();
                        assert!(text.len() < 600, "a refusal that goes on and on: {text}");
                        refused += 1;
                    }
                }
            }
        }
        // A mutation that never hurts, or always, tests little.
        assert!(read > paths.len() * 20 && refused > paths.len() * 20, "{target}: {read} read, {refused} refused");
    }
}
