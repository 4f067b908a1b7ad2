//! Writes the instances of `instances/`: rectangles cut into pieces, so that their best packing is known.
//!
//! `cargo run -p millpond-plan --example packings -- instances` writes them all into the folder. They depend on the
//! recipes below only, so running it again changes nothing.

#[path = "../tests/recipes/mod.rs"]
mod recipes;

use std::fmt::Write;
use std::path::PathBuf;

use recipes::Recipe;

/// The name and recipe of each instance. The capacity is part of the file's name.
const INSTANCES: [(&str, Recipe); 5] = [
    ("patch", Recipe { steps: 24, units: 24, unit: 512, pieces: 25, pinwheels: 0, seed: 1 }),
    ("wheel", Recipe { steps: 1000, units: 256, unit: 4096, pieces: 60, pinwheels: 50, seed: 2 }),
    ("quilt", Recipe { steps: 10_000, units: 1024, unit: 1024, pieces: 120, pinwheels: 20, seed: 3 }),
    ("strip", Recipe { steps: 1_000_000, units: 128, unit: 65_536, pieces: 250, pinwheels: 20, seed: 4 }),
    ("loom", Recipe { steps: 1_000_000, units: 1024, unit: 1024, pieces: 320, pinwheels: 10, seed: 5 }),
];

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "instances".into()));
    for (name, recipe) in INSTANCES {
        let mut table = String::from("id,lower,upper,size\n");
        for (id, piece) in recipe.cut().iter().enumerate() {
            let bytes = (piece.top - piece.floor) * recipe.unit;
            writeln!(table, "{id},{},{},{bytes}", piece.lower, piece.upper).expect("a string takes everything");
        }
        std::fs::write(folder.join(format!("{name}.{}.csv", recipe.capacity())), table)?;
    }
    Ok(())
}
