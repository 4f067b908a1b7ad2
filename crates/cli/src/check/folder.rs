//! The programs to check in a folder and in its subfolders.

use std::fs;
use std::path::{Path, PathBuf};

use crate::recorded::{Place, Refusal};
use crate::refusal::cause;
use crate::source::{Kind, Opened};

/// The largest number of files of a folder that are looked at.
const FILES_MAX: usize = 100_000;

/// Returns the path itself if it is a file. For a folder, returns its litmus programs, recognised by their names, and
/// its operation traces, recognised by their content, sorted by name. Links to folders are not followed, and hidden
/// folders are skipped.
///
/// # Errors
/// A folder cannot be read, or has nothing to check.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>, Refusal> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let (mut found, mut looked_at, mut folders) = (Vec::new(), 0, vec![path.to_owned()]);
    while let Some(folder) = folders.pop() {
        let refuse = |error| {
            let reason = format!("{}: cannot be read: {}", folder.display(), cause(&error));
            Refusal::new(Place::Whole, reason).help("give yourself the right to read it")
        };
        for entry in fs::read_dir(&folder).map_err(refuse)? {
            let entry = entry.map_err(refuse)?;
            looked_at += 1;
            if looked_at > FILES_MAX {
                let reason = format!("more than {FILES_MAX} files are in it");
                return Err(Refusal::new(Place::Whole, reason).help("name the folders in it that have programs"));
            }
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            match entry.file_type().map_err(refuse)? {
                kind if kind.is_dir() && !is_hidden => folders.push(entry.path()),
                kind if !kind.is_dir() && is_program(&entry.path()) => found.push(entry.path()),
                _ => {}
            }
        }
    }
    if found.is_empty() {
        let help = "a litmus program's name ends in .litmus, `millpond record -- PROGRAM` makes a trace";
        return Err(Refusal::new(Place::Whole, "no litmus program and no operation trace is in it").help(help));
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns `true` if the file is a program to check. Pipes and devices are not opened.
fn is_program(path: &Path) -> bool {
    path.is_file()
        && (path.extension().is_some_and(|it| it == "litmus")
            || Opened::open(path).is_ok_and(|opened| opened.kind() == Kind::Trace && !opened.is_empty()))
}
