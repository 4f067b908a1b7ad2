//! PyTorch's allocator. By default it takes memory from CUDA in segments, and the tensors in them cannot be seen. With
//! the backend `cudaMallocAsync` each tensor is an allocation on its stream.
//!
//! Older versions read only the first variable, newer ones read either. This module starts no process.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The environment variables from which PyTorch reads its settings.
pub(super) const VARIABLES: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

const BACKEND: &str = "backend:";
const SEEN: &str = "backend:cudaMallocAsync";

/// The change to a program's settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Setting {
    /// No change: the program is not Python, or already has the backend.
    Untouched,
    /// Set the variables to this value.
    Set(String),
    /// No change: the caller has chosen this other backend.
    Kept(String),
}

/// Returns the change to make for a program, given the caller's settings.
pub(super) fn setting(program: &Path, current: impl Fn(&str) -> Option<String>) -> Setting {
    if !is_python(program) {
        return Setting::Untouched;
    }
    let given: Vec<String> = VARIABLES.into_iter().filter_map(current).filter(|it| !it.trim().is_empty()).collect();
    let chosen = given.iter().flat_map(|it| it.split(',')).map(str::trim).find(|it| it.starts_with(BACKEND));
    match chosen {
        Some(SEEN) => Setting::Untouched,
        Some(other) => Setting::Kept(other.to_owned()),
        None => Setting::Set(given.first().map_or_else(|| SEEN.to_owned(), |first| format!("{first},{SEEN}"))),
    }
}

/// Returns `true` if the program is a Python interpreter or a script for one.
fn is_python(program: &Path) -> bool {
    let is_name = |path: &OsStr| {
        let name = Path::new(path).file_name().unwrap_or_default();
        name.as_bytes().starts_with(b"python")
    };
    if is_name(program.as_os_str()) {
        return true;
    }
    let mut head = Vec::new();
    let read = File::open(program).and_then(|file| file.take(4096).read_to_end(&mut head));
    let line = head.strip_prefix(b"#!").filter(|_| read.is_ok());
    let line = line.and_then(|line| line.split(|byte| *byte == b'\n').next()).unwrap_or_default();
    line.split(u8::is_ascii_whitespace).any(|word| is_name(OsStr::from_bytes(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(cuda: Option<&str>, both: Option<&str>) -> Setting {
        let [first, second] = VARIABLES;
        let current = |name: &str| match name {
            name if name == first => cuda.map(str::to_owned),
            name if name == second => both.map(str::to_owned),
            other => panic!("{other} is asked for"),
        };
        setting(Path::new("/usr/bin/python3.12"), current)
    }

    #[test]
    fn a_backend_is_added_to_what_is_set() {
        let set = |text: &str| Setting::Set(text.to_owned());
        assert_eq!(with(None, None), set("backend:cudaMallocAsync"));
        assert_eq!(with(Some(" "), None), set("backend:cudaMallocAsync"));
        let merged = set("max_split_size_mb:128,backend:cudaMallocAsync");
        assert_eq!(with(Some("max_split_size_mb:128"), None), merged);
        assert_eq!(with(None, Some("max_split_size_mb:128")), merged);
        assert_eq!(with(None, Some("backend:native")), Setting::Kept("backend:native".to_owned()));
        assert_eq!(with(Some("a:1, backend:cudaMallocAsync"), None), Setting::Untouched);
    }

    #[test]
    fn programs_of_python_are_known_by_name_and_by_their_first_line() {
        let place = std::env::temp_dir().join(format!("millpond-pytorch-{}", std::process::id()));
        let is_one = |text: &str| {
            std::fs::write(&place, text).unwrap();
            setting(&place, |_| None) != Setting::Untouched
        };
        assert!(is_one("#!/opt/venv/bin/python3 -u\n"));
        assert!(is_one("#!/usr/bin/env -S python3.12 -u\nimport torch"));
        assert!(!is_one("#!/bin/sh\nexec python3\n"));
        assert!(!is_one("\x7fELF"));
        std::fs::remove_file(&place).unwrap();
        assert_eq!(setting(Path::new("/no/such/program"), |_| None), Setting::Untouched);
    }
}
