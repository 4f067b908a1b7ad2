//! The environment that a tool runner makes for this command alone. `uvx millpond check -- python train.py` puts the
//! folder of that environment first in PATH, but its Python has none of the user's packages. The program is therefore
//! looked up, and run, without that folder.
//!
//! An environment belongs to the command if it has no other package. An environment that the user made for a program
//! also has the program's packages, whether it is activated or only named in PATH.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folder of this command if its environment belongs to it alone.
pub(super) fn own_folder() -> Option<PathBuf> {
    let command = fs::canonicalize(std::env::current_exe().ok()?).ok()?;
    let folder = command.parent()?;
    is_own(folder.parent()?).then(|| folder.to_owned())
}

/// Returns `true` if a Python virtual environment has this command's package and no other.
fn is_own(environment: &Path) -> bool {
    if !environment.join("pyvenv.cfg").is_file() {
        return false;
    }
    let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let pythons = entries(environment.join("lib")).map(|python| python.path().join("site-packages"));
    let names = pythons.flat_map(entries).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let packages: Vec<String> = names.filter(|name| name.ends_with(".dist-info")).collect();
    !packages.is_empty() && packages.iter().all(|name| name.starts_with("millpond-"))
}

/// Returns the PATH for the program, and the folder that was left out of it, if any.
pub(super) fn path() -> (OsString, Option<PathBuf>) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let less = own_folder().and_then(|own| Some((without(&path, &own)?, Some(own))));
    less.unwrap_or((path, None))
}

/// Returns a list of folders without `folder`, or `None` if the folder is not in the list.
fn without(path: &OsStr, folder: &Path) -> Option<OsString> {
    let is_other = |it: &PathBuf| fs::canonicalize(it).map_or(true, |it| it != folder);
    let all: Vec<PathBuf> = std::env::split_paths(path).collect();
    let others: Vec<PathBuf> = all.iter().filter(|it| is_other(it)).cloned().collect();
    (others.len() < all.len()).then(|| std::env::join_paths(others).expect("each was between colons"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_environment_with_nothing_else_is_left_out() {
        let folder = std::env::temp_dir().join(format!("millpond-tool-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let packages = folder.join("lib/python3.12/site-packages");
        fs::create_dir_all(packages.join("millpond-0.1.0.dist-info")).unwrap();
        fs::create_dir_all(packages.join("millpond")).unwrap();
        fs::create_dir(folder.join("bin")).unwrap();
        assert!(!is_own(&folder), "no environment of Python: /usr/local, say");
        fs::write(folder.join("pyvenv.cfg"), "").unwrap();
        assert!(is_own(&folder));
        fs::create_dir(packages.join("torch-2.9.0.dist-info")).unwrap();
        assert!(!is_own(&folder), "an environment of the user");

        let (real, bin) = (fs::canonicalize(&folder).unwrap().join("bin"), folder.join("bin"));
        std::os::unix::fs::symlink(&bin, folder.join("link")).unwrap();
        let path = std::env::join_paths([&bin, Path::new("/usr/bin"), &folder.join("link")]).unwrap();
        assert_eq!(without(&path, &real).unwrap(), "/usr/bin");
        assert_eq!(without(OsStr::new("/usr/bin:/nowhere"), &real), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
