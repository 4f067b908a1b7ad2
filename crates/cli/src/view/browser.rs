//! Opens a page in the browser that BROWSER names, or else in the desktop's browser.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::attach::in_path;

/// The programs that open a file with the desktop's default program: of Linux, WSL and macOS.
const OPENERS: [&str; 3] = ["xdg-open", "wslview", "open"];
/// The time for which an opener is watched for a failure.
const WATCHED: Duration = Duration::from_secs(2);

/// Opens a page. The browser keeps running when this returns.
///
/// # Errors
/// There is no browser, or it fails at once.
pub(super) fn open(page: &Path) -> Result<(), String> {
    let page = std::path::absolute(page).map_err(|error| error.to_string())?;
    let named = std::env::var_os("BROWSER").filter(|name| !name.is_empty());
    let opener =
        named.or_else(|| OPENERS.into_iter().find(|name| in_path(OsStr::new(name)).is_some()).map(OsString::from));
    let Some(opener) = opener else { return Err("no browser is here: set BROWSER to the name of one".to_owned()) };
    let mut command = Command::new(&opener);
    command.arg(&page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let failed = |why: String| Err(format!("{} cannot open it: {why}", opener.display()));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return failed(error.to_string()),
    };
    let began = Instant::now();
    while began.elapsed() < WATCHED {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return failed(status.to_string()),
            Ok(None) | Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    Ok(())
}

/// Returns a path for a page that is opened and has no output file: in a new folder that only this user can access.
///
/// # Errors
/// No folder can be made.
pub(super) fn place(source: &Path) -> io::Result<PathBuf> {
    let base = std::env::temp_dir();
    let name = |count: u32| base.join(format!("millpond-view-{}-{count}", std::process::id()));
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    let made = (0..100).map(name).find(|folder| builder.create(folder).is_ok());
    let folder = made.ok_or_else(|| io::Error::other(format!("no folder can be made in {}", base.display())))?;
    let mut name = source.file_stem().filter(|stem| *stem != "-").unwrap_or(OsStr::new("page")).to_owned();
    name.push(".html");
    Ok(folder.join(name))
}
