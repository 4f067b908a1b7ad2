//! The project's litmus programs, as files.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns all programs, with their paths from the folder. MILLPOND_LITMUS names the folder if these tests do not run
/// where they were built.
pub(crate) fn corpus() -> Vec<(String, String)> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let root = std::env::var_os("MILLPOND_LITMUS").map_or_else(built, PathBuf::from);
    let (mut found, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(at) = folders.pop() {
        for path in fs::read_dir(&at).expect("litmus/ is there").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "litmus") {
                let name = path.strip_prefix(&root).expect("found under it").to_string_lossy().into_owned();
                found.push((name, fs::read_to_string(&path).expect("a program is UTF-8")));
            }
        }
    }
    found.sort();
    found
}
