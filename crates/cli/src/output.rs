//! Files that the command writes. Each is first written beside its place and then renamed to it. If the command is
//! stopped or the disk is full, the old file stays. An input file is never overwritten.

use std::fs::{self, File};
use std::io::{self, BufWriter, Error, Write};
use std::path::{Path, PathBuf};

use crate::refusal::{Place, Refusal, cause};

/// Writes a file with `write` and returns the result of `write`. `inputs` are the files that were read for it.
pub(crate) fn write_file<T>(
    path: &Path,
    inputs: &[&Path],
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> Result<T, Refusal> {
    let refuse =
        |error: Error| Refusal::new(Place::Whole, format!("cannot be written: {}", cause(&error))).in_file(path);
    let is_input = |input: &&Path| is_same(input, path);
    if inputs.iter().any(is_input) {
        return Err(refuse(Error::other("it is read or written already: name another file")));
    }
    // A pipe, a terminal or /dev/null cannot be renamed to, and has no content to lose.
    if fs::metadata(path).is_ok_and(|it| !it.is_file()) {
        return File::create(path).and_then(|file| fill(file, write)).map_err(refuse);
    }
    let beside = beside(path);
    let written = File::options().write(true).create_new(true).open(&beside).and_then(|file| fill(file, write));
    written
        .and_then(|done| fs::rename(&beside, target(path)).map(|()| done))
        .inspect_err(|_| {
            // If the partial file cannot be removed, its name says what it is.
            let _ = fs::remove_file(&beside);
        })
        .map_err(refuse)
}

fn fill<T>(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
    let mut file = BufWriter::new(file);
    let done = write(&mut file)?;
    file.flush()?;
    Ok(done)
}

/// Resolves a link: its target is replaced, not the link.
fn target(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns a name in the same folder that no other process uses.
fn beside(path: &Path) -> PathBuf {
    let target = target(path);
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    target.with_file_name(name)
}

/// Returns `true` if both paths lead to the same file.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_as_it_was() {
        let folder = std::env::temp_dir().join(format!("millpond-output-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, link) = (folder.join("it"), folder.join("link"));
        fs::write(&path, "before").unwrap();
        let failed = write_file(&path, &[], |out| out.write_all(b"half").and(Err::<(), _>(Error::other("stopped"))));
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(write_file(&path, &[&link], |out| out.write_all(b"over the input")).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        write_file(&path, &[&folder.join("other")], |out| out.write_all(b"after")).unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "after");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left beside it");
        write_file(Path::new("/dev/null"), &[], |out| out.write_all(b"nowhere")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
