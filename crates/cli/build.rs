//! The version that `millpond -V` says: that of the crate, with the commit where it is built from a repository or packed.
//! And the library that the command carries (feature `preload`): the file that MILLPOND_PRELOAD names, else what cargo
//! builds of `millpond-interpose` from the repository. A build without optimisation has it beside the command instead, as
//! one more build of what it is made of would take longer than the command itself.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = packed().or_else(checked_out).map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo::rustc-env=MILLPOND_VERSION={version}{commit}");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(preload)");
    if let Some(library) = is_on("CARGO_FEATURE_PRELOAD").then(preload).flatten() {
        let bytes = std::fs::read(&library).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        println!("cargo::rustc-cfg=preload");
        println!("cargo::rustc-env=MILLPOND_PRELOAD_FILE={}", library.display());
        println!("cargo::rustc-env=MILLPOND_PRELOAD_HASH={:016x}", hasher.finish());
        println!("cargo::rerun-if-changed={}", library.display());
    }
}

fn is_on(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

/// The library to carry, if this build carries one.
fn preload() -> Option<PathBuf> {
    println!("cargo::rerun-if-env-changed=MILLPOND_PRELOAD");
    if let Some(given) = std::env::var_os("MILLPOND_PRELOAD").filter(|given| !given.is_empty()) {
        return Some(std::path::absolute(given).expect("MILLPOND_PRELOAD names a file"));
    }
    let named = |name| std::env::var(name).unwrap_or_default();
    let target = named("TARGET");
    if named("PROFILE") != "release" || !target.starts_with("x86_64-") || named("CARGO_CFG_TARGET_OS") != "linux" {
        return None;
    }
    let manifest = Path::new("../interpose/Cargo.toml");
    if !manifest.exists() || !Path::new("../../crates/cli/build.rs").exists() {
        return None;
    }
    for name in ["core", "driver", "millpond", "interpose"] {
        println!("cargo::rerun-if-changed=../{name}/src");
        println!("cargo::rerun-if-changed=../{name}/Cargo.toml");
    }
    // A folder of its own: the outer build holds the lock of the other one.
    let folder = PathBuf::from(std::env::var_os("OUT_DIR")?).join("preload");
    let mut cargo = Command::new(std::env::var_os("CARGO")?);
    cargo.args(["build", "--release", "--lib", "--target", &target, "--manifest-path"]).arg(manifest);
    // What is printed here is read by the outer cargo.
    let status =
        cargo.arg("--target-dir").arg(&folder).stdout(std::process::Stdio::null()).status().expect("cargo can be run");
    assert!(
        status.success(),
        "cargo built no libmillpond_cuda.so: `--no-default-features --features command` goes without"
    );
    Some(folder.join(target).join("release/libmillpond_cuda.so"))
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
