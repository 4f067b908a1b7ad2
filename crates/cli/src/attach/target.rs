//! Checks that the library can be loaded into a program, and gives the reason if it cannot.
//!
//! The dynamic loader does the preloading. A static program has no loader; the loader ignores LD_PRELOAD for a program
//! with more rights than its caller; and it loads only libraries for its own machine.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::tool;

/// The largest number of nested script interpreters that are followed.
const INTERPRETERS: u32 = 4;
/// The number of bytes read from the beginning of a file.
const HEAD: u64 = 4096;

/// Finds the file of a program as a shell does.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, String> {
    let path = match name.as_bytes().contains(&b'/') {
        true => PathBuf::from(name),
        false => in_path(name).ok_or_else(|| format!("{}: no such program is in PATH", name.display()))?,
    };
    check(&path, INTERPRETERS).map(|()| path)
}

/// Returns the first program of this name in PATH, leaving out the environment of this command.
pub(crate) fn in_path(name: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(&tool::path().0).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|it| it.is_file() && it.mode() & 0o111 != 0)
}

fn check(path: &Path, depth: u32) -> Result<(), String> {
    let refuse = |reason: &str| Err(format!("{}: {reason}", path.display()));
    let file = match fs::metadata(path) {
        Ok(file) if file.is_file() => file,
        Ok(_) => return refuse("it is not a file"),
        Err(error) => return refuse(&format!("cannot be run: {error}")),
    };
    if file.mode() & 0o111 == 0 {
        return refuse("it is not executable");
    }
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let has_more = file.mode() & 0o4000 != 0 && file.uid() != user || file.mode() & 0o2000 != 0 && file.gid() != group;
    if has_more {
        return refuse(
            "it runs with other rights than yours (setuid or setgid), so the loader loads nothing else into it",
        );
    }
    let mut head = Vec::new();
    match File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head)) {
        Ok(_) => {}
        // A program that may be run but not read is run unchecked.
        Err(_) => return Ok(()),
    }
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
        let interpreter = line.split(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default();
        return match depth {
            0 => refuse("its interpreters have no end"),
            _ => check(Path::new(&OsString::from(OsStr::from_bytes(interpreter))), depth - 1),
        };
    }
    check_elf(&head).or_else(refuse)
}

fn number(head: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let word = head.get(at..at + bytes)?;
    Some(word.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Checks that a file with this beginning is a dynamic program for this machine.
fn check_elf(head: &[u8]) -> Result<(), &'static str> {
    const MACHINE: u64 = 62;
    const INTERPRETER: u64 = 3;
    if !head.starts_with(b"\x7fELF") {
        return Err("it is neither a program nor a script");
    }
    if head.get(4) != Some(&2) || number(head, 18, 2) != Some(MACHINE) {
        return Err("it is a program of another machine: only x86-64 programs can be looked at");
    }
    let headers = || {
        let (first, bytes) = (number(head, 32, 8)? as usize, number(head, 54, 2)? as usize);
        let count = number(head, 56, 2)? as usize;
        Some((0..count).map(move |at| first + at * bytes))
    };
    let Some(mut headers) = headers() else { return Err("it is cut short") };
    match headers.any(|at| number(head, at, 4) == Some(INTERPRETER)) {
        true => Ok(()),
        false => Err("it is linked statically: without a loader nothing can be loaded into it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_looked_at_is_said() {
        assert_eq!(check_elf(&fs::read("/proc/self/exe").unwrap()[..4096]), Ok(()));
        assert!(check_elf(b"MZ").unwrap_err().contains("neither"));
        let mut other = fs::read("/proc/self/exe").unwrap()[..4096].to_vec();
        other[18] = 183;
        assert!(check_elf(&other).unwrap_err().contains("another machine"));
        assert!(find(OsStr::new("no-such-program-is-here")).unwrap_err().contains("PATH"));
        assert!(find(OsStr::new("/proc")).unwrap_err().contains("not a file"));
        assert!(find(OsStr::new("sh")).is_ok());
    }
}
