//! The report to the command that started the program: a file for each process.
//!
//! The command reads the files after the program has ended, and adds them up. Nothing here writes to standard output.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use millpond_driver::output::{self, without_signals};

/// Returns the file for findings, if they do not go to standard error.
fn file() -> Option<&'static OsString> {
    static FILE: OnceLock<Option<OsString>> = OnceLock::new();
    FILE.get_or_init(|| std::env::var_os("MILLPOND_INTERPOSE_FINDINGS")).as_ref()
}

/// Returns the folder for reports, if the command asks for them.
fn folder() -> Option<&'static OsString> {
    static FOLDER: OnceLock<Option<OsString>> = OnceLock::new();
    FOLDER.get_or_init(|| std::env::var_os("MILLPOND_INTERPOSE_REPORT")).as_ref()
}

/// Looks for the folder and the file. A program may change its environment later.
pub(crate) fn find() {
    folder();
    file();
}

/// Prints a finding. Several processes append to the same file.
pub(crate) fn say(text: impl Display) {
    match file() {
        Some(path) => append(Path::new(path), &format!("{text}\n")),
        None => output::say(text),
    }
}

/// Adds lines to the report of this process.
pub(crate) fn add(lines: &str) {
    let Some(folder) = folder() else { return };
    append(&Path::new(folder).join(std::process::id().to_string()), lines);
}

fn append(path: &Path, text: &str) {
    // If the command is gone, no process reads it.
    if let Ok(mut file) = File::options().append(true).create(true).open(path) {
        let _ = without_signals(|| file.write_all(text.as_bytes()));
    }
}
