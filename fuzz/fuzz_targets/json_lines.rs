//! Reads our own JSON lines from hostile bytes: no panic, and what is read is a program.
#![no_main]

#[path = "../../crates/cli/tests/command/audit.rs"]
mod audit;

use libfuzzer_sys::fuzz_target;
use millpond_cli::recorded;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(recorded) = recorded::json_lines::read("fuzz", bytes) {
        audit::audit(&recorded.program);
    }
});
