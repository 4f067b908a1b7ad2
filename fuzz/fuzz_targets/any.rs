//! Reads any file: the choice of the format, and gzip from hostile bytes: no panic, and what is read is a program.
#![no_main]

#[path = "../../crates/cli/tests/command/audit.rs"]
mod audit;

use libfuzzer_sys::fuzz_target;
use millpond_cli::recorded;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(found) = recorded::read("fuzz", bytes) {
        found.iter().for_each(|recorded| audit::audit(&recorded.program));
    }
});
