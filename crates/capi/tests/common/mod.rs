//! The location of the library that tests load, and a helper to run commands.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the folder with `libmillpond.so` and `.a`. Cargo builds no shared library for tests, so this runs it for
/// that.
pub(crate) fn library_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("this test has a path");
        let profile = test.parent().and_then(Path::parent).expect("it is in the profile's folder of dependencies");
        let target = profile.parent().expect("the profile has a folder above");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "millpond-capi"]).arg("--target-dir").arg(target);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        run(&mut build, "cargo build");
        assert!(profile.join("libmillpond.so").exists(), "the library was built");
        profile.to_owned()
    })
}

/// Runs a command that must succeed. Returns its output.
pub(crate) fn run(command: &mut Command, what: &str) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{what}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}{err}", output.status);
    out
}
