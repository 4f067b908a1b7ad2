//! The seeds of the fuzz targets, and many mutations of them, through the readers: no panic, and what is read is a
//! program. `cargo fuzz` does the same at length; this takes the time of an ordinary test and does not need nightly.

use std::fs;
use std::path::Path;

use crate::audit::audit;
use crate::mutation::mutated;
use fastrand::Rng;
use millpond_cli::recorded::{self, Recorded, Refusal};

type Reader = fn(&[u8]) -> Result<Vec<Recorded>, Refusal>;

const READERS: &[(&str, Reader)] = &[
    ("any", |bytes| recorded::read("seed", bytes)),
    ("json_lines", |bytes| recorded::json_lines::read("seed", bytes).map(|one| vec![one])),
    ("plain", |bytes| recorded::plain::read("seed", bytes).map(|one| vec![one])),
    ("rmm", |bytes| recorded::rmm::read("seed", bytes).map(|one| vec![one])),
    ("snapshot", |bytes| recorded::snapshot::read("seed", bytes)),
];

/// The mutations of each seed.
const ROUNDS: u64 = 3000;

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
                let mut dice = Rng::with_seed(round << 8 ^ number as u64);
                let bytes = if round == 0 { seed.clone() } else { mutated(&seed, &mut dice) };
                match reader(&bytes) {
                    Ok(found) => {
                        found.iter().for_each(|recorded| audit(&recorded.program));
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
        // Mutations that never do harm, or always, test little.
        assert!(read > paths.len() * 20 && refused > paths.len() * 20, "{target}: {read} read, {refused} refused");
    }
}
