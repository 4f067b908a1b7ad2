//! Pages in a real browser: what is drawn, what the keys and the pointer do, the time of a frame.
//!
//! Needs Chromium (`chromium`, `chromium-browser` or `google-chrome` on the path, or the program that
//! `MILLPOND_CHROMIUM` names). Without it each test prints that it was skipped. A test's script runs in the page and
//! answers by a request to a socket of the test, so that time is real.

mod browser;
mod frames;
mod order;
mod python;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a path for a file of these tests.
fn to(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// Returns the page of a file.
fn page(file: &Path) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_millpond")).arg("view").arg(file).output().expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the page of a litmus program.
fn litmus(name: &str, text: &str) -> String {
    let file = to(&format!("{name}.litmus"));
    std::fs::write(&file, text).unwrap();
    page(&file)
}
