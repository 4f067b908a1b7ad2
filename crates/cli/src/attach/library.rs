//! The library to preload: the one that `MILLPOND_CUDA_LIBRARY` names, else the embedded one, else the one beside the
//! command.
//!
//! The embedded library is written once to a folder of this user, under a name derived from its content. It is compared
//! byte for byte before each use. Anyone who could change it could run code in this user's programs:
//!
//! * **own**: this user owns the file and its folder, and no other user may write to them.
//! * **guarded**: this user or root owns each folder above, and no other user may write to it unless it is sticky.
//! * **whole**: the file gets its name by a rename, so that no program loads a part of it.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use memchr::memmem;
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::getuid;

/// The environment variable that names the library to preload.
const LIBRARY: &str = "MILLPOND_CUDA_LIBRARY";

/// A string that the library's file contains: the name of a variable that it reads.
const MARK: &[u8] = b"MILLPOND_INTERPOSE_REPORT";

/// The embedded library and its file name, which is derived from its content.
#[cfg(preload)]
const CARRIED: Option<(&[u8], &str)> = Some((
    include_bytes!(env!("MILLPOND_PRELOAD_FILE")),
    concat!("libmillpond_cuda-", env!("MILLPOND_PRELOAD_HASH"), ".so"),
));
#[cfg(not(preload))]
const CARRIED: Option<(&[u8], &str)> = None;

/// Returns the path of the library.
pub(super) fn library() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(LIBRARY).filter(|path| !path.is_empty()) {
        return named(PathBuf::from(path));
    }
    match CARRIED {
        Some((bytes, name)) => written(&bases(), name, bytes),
        None => beside(),
    }
}

fn named(path: PathBuf) -> Result<PathBuf, String> {
    let refuse = |what| Err(format!("{LIBRARY} names {}, which is {what}", path.display()));
    match fs::read(&path) {
        Err(_) => refuse("no file that can be read"),
        Ok(bytes) if bytes.starts_with(b"\x7fELF") && memmem::find(&bytes, MARK).is_some() => {
            // The program may start others from another folder.
            std::path::absolute(&path).map_err(|error| error.to_string())
        }
        // The loader would ignore such a file and start the program without it.
        Ok(_) => refuse("not libmillpond_cuda.so"),
    }
}

fn beside() -> Result<PathBuf, String> {
    let command = std::env::current_exe().map_err(|error| format!("where this command is, is not known: {error}"))?;
    let folder = command.parent().unwrap_or(Path::new("/"));
    let places = [folder.to_owned(), folder.join("deps"), folder.join("../deps"), folder.join("../lib")];
    let found = places.iter().map(|place| place.join("libmillpond_cuda.so")).find(|path| path.is_file());
    found.ok_or_else(|| {
        format!(
            "libmillpond_cuda.so is not beside {}, and this command was built without it: put it there, or name it by \
             {LIBRARY}\n  help: `cargo install --path crates/cli` in a clone of Millpond builds one that carries it",
            command.display()
        )
    })
}

/// Returns the folders that may hold the library's folder, the preferred one first.
fn bases() -> Vec<PathBuf> {
    let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")));
    let user = format!("millpond-{}", getuid().as_raw());
    cache.map(|cache| cache.join("millpond")).into_iter().chain([std::env::temp_dir().join(user)]).collect()
}

/// Returns the library's file in the first safe folder. Writes the file if it is not there yet.
fn written(folders: &[PathBuf], name: &str, bytes: &[u8]) -> Result<PathBuf, String> {
    let mut refusals = String::new();
    for folder in folders {
        match prepare(folder).and_then(|folder| write(&folder, name, bytes)) {
            Ok(path) => return Ok(path),
            Err(error) => refusals += &format!("\n  {}: {error}", folder.display()),
        }
    }
    Err(format!(
        "the library that is preloaded can be written to no folder:{refusals}\n  help: set XDG_CACHE_HOME to a folder \
         that only you can write to"
    ))
}

/// Creates the folder, checks that it is safe and returns its canonical path.
fn prepare(folder: &Path) -> io::Result<PathBuf> {
    let refuse = |what: String| Err(io::Error::other(what));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || !is_own(&found) {
        return refuse("it is a link, another user's, or others may write to it".to_owned());
    }
    let real = fs::canonicalize(folder)?;
    for above in real.ancestors().skip(1) {
        let found = fs::symlink_metadata(above)?;
        let is_ours = found.uid() == getuid().as_raw() || found.uid() == 0;
        if !is_ours || found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0 {
            return refuse(format!("others may write to {}", above.display()));
        }
    }
    // LD_PRELOAD separates names with blanks and colons, and the loader maps the file as executable.
    if real.as_os_str().as_bytes().iter().any(|byte| *byte == b':' || byte.is_ascii_whitespace()) {
        return refuse("LD_PRELOAD cannot name a path with a blank or a colon".to_owned());
    }
    match statvfs(&real)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        true => refuse("nothing in it may be run: it is mounted with `noexec`".to_owned()),
        false => Ok(real),
    }
}

/// Returns `true` if this user owns the file and no other user may write to it.
fn is_own(found: &Metadata) -> bool {
    found.uid() == getuid().as_raw() && found.mode() & 0o022 == 0
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let path = folder.join(name);
    let is_there = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && is_own(&found));
    if is_there && fs::read(&path).is_ok_and(|found| found == bytes) {
        return Ok(path);
    }
    let part = folder.join(format!("{name}.{}.part", std::process::id()));
    // A stopped process with the same number may have left this file.
    let _ = fs::remove_file(&part);
    let fill = |mut file: File| file.write_all(bytes).and_then(|()| fs::rename(&part, &path));
    let done = OpenOptions::new().write(true).create_new(true).mode(0o500).open(&part).and_then(fill);
    done.map(|()| path).inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Creates a folder for one test, below a folder that others cannot write to.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("millpond-library-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        DirBuilder::new().mode(0o700).create(&folder).unwrap();
        folder
    }

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn it_is_written_once_and_compared() {
        let base = folder("once");
        let folders = [base.join("a/millpond")];
        let path = written(&folders, "lib.so", b"first").unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.mode() & 0o777, fs::read(&path).unwrap()), (0o500, b"first".to_vec()));
        assert_eq!(fs::metadata(&folders[0]).unwrap().mode() & 0o777, 0o700);
        assert_eq!(written(&folders, "lib.so", b"first").unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), found.ino(), "it is as it was");
        assert_eq!(
            fs::read(written(&folders, "lib.so", b"other").unwrap()).unwrap(),
            b"other",
            "what differs is replaced"
        );
        allow(&path, 0o722);
        written(&folders, "lib.so", b"other").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o500, "what others may write to is replaced");
        fs::remove_file(&path).unwrap();
        symlink(base.join("target"), &path).unwrap();
        fs::write(base.join("target"), b"other").unwrap();
        written(&folders, "lib.so", b"other").unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "a link is replaced, and not followed");
        assert_eq!(fs::read_dir(&folders[0]).unwrap().count(), 1, "nothing is left beside it");
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn folders_that_are_not_safe_are_passed_over() {
        let base = folder("unsafe");
        let safe = base.join("safe");
        let refused = |folder: &Path, part: &str| {
            let path = written(&[folder.to_owned(), safe.clone()], "lib.so", b"bytes").unwrap();
            assert!(path.starts_with(fs::canonicalize(&safe).unwrap()), "{}", path.display());
            let error = written(&[folder.to_owned()], "lib.so", b"bytes").unwrap_err();
            assert!(error.contains(part) && error.contains("XDG_CACHE_HOME"), "{error}");
        };
        for name in ["open", "parent", "two words", "target"] {
            fs::create_dir(base.join(name)).unwrap();
        }
        allow(&base.join("open"), 0o777);
        refused(&base.join("open"), "others may write to it");
        allow(&base.join("parent"), 0o770);
        refused(&base.join("parent/millpond"), "others may write to ");
        allow(&base.join("target"), 0o700);
        symlink(base.join("target"), base.join("link")).unwrap();
        refused(&base.join("link"), "it is a link");
        allow(&base.join("two words"), 0o700);
        refused(&base.join("two words"), "a blank or a colon");
        fs::write(base.join("file"), "").unwrap();
        refused(&base.join("file"), "");
        if fs::metadata("/proc/self/fd").is_ok() {
            refused(Path::new("/proc/nowhere"), "");
        }
        allow(&base.join("parent"), 0o1777);
        assert!(written(&[base.join("parent/millpond")], "lib.so", b"bytes").is_ok(), "as /tmp is");
        fs::remove_dir_all(base).unwrap();
    }
}
