//! The version that `millpond -V` says: that of the crate, with the commit where it is built from a repository or packed.

use std::path::Path;
use std::process::Command;

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = packed().or_else(checked_out).map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo::rustc-env=MILLPOND_VERSION={version}{commit}");
    println!("cargo::rerun-if-changed=build.rs");
}

/// The commit that cargo has written down where it packed the crate.
fn packed() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let commit = text.split("\"sha1\"").nth(1)?.split('"').nth(1)?;
    Some(commit.get(..10)?.to_owned())
}

/// The commit of the repository that this is a folder of.
fn checked_out() -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|it| it.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    // A folder of somebody else's repository (vendored sources) has another commit.
    if !Path::new("../../crates/cli/build.rs").exists() {
        return None;
    }
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        println!("cargo::rerun-if-changed={path}");
    }
    git(&["rev-parse", "--short=10", "HEAD"])
}
