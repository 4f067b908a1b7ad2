//! The report to the command that started the program: a file for each process.
//!
//! The command reads the files after the program has ended, and adds them up. Nothing here writes to standard output.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;

use millpond_driver::output::without_signals;

/// Returns the folder for reports, if the command asks for them.
fn folder() -> Option<&'static OsString> {
    static FOLDER: OnceLock<Option<OsString>> = OnceLock::new();
    FOLDER.get_or_init(|| std::env::var_os("MILLPOND_INTERPOSE_REPORT")).as_ref()
}

/// Looks for the folder. A program may change its environment later.
pub(crate) fn find() {
    folder();
}

/// Adds lines to the report of this process.
pub(crate) fn add(lines: &str) {
    let Some(folder) = folder() else { return };
    let path = std::path::Path::new(folder).join(std::process::id().to_string());
    // If the command is gone, no process reads the report.
    if let Ok(mut file) = File::options().append(true).create(true).open(path) {
        let _ = without_signals(|| file.write_all(lines.as_bytes()));
    }
}
