//! If `--` is missing before a program, the command recognises that, and prints the right command line.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes a folder with programs of several kinds, and one in PATH called `python3`.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("forgotten").join(name);
    fs::create_dir_all(folder.join("bin")).unwrap();
    fs::write(folder.join("x.py"), "print(\"training\")\n").unwrap();
    fs::write(folder.join("script"), "#!/bin/sh\nexit 0\n").unwrap();
    fs::write(folder.join("right.litmus"), "#!/usr/bin/env -S millpond check\nstream s\na = alloc s 64\nfree s a\n")
        .unwrap();
    fs::write(folder.join("two words.py"), "").unwrap();
    fs::copy("/proc/self/exe", folder.join("a.out")).unwrap();
    for name in ["bin/python3", "bin/torchrun"] {
        fs::write(folder.join(name), "#!/bin/sh\n").unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

/// Returns the status and the standard error.
fn said(folder: &Path, line: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_millpond"))
        .args(line)
        .current_dir(folder)
        .env("PATH", folder.join("bin"))
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_program_without_dashes_is_answered_with_the_right_line() {
    let folder = folder("right");
    for (line, right) in [
        (&["check", "python3", "x.py"][..], "millpond check -- python3 x.py"),
        (&["check", "x.py"], "millpond check -- python3 x.py"),
        (&["check", "x.py", "--epochs", "3"], "millpond check -- python3 x.py --epochs 3"),
        (&["check", "python3", "-m", "pytest", "-x"], "millpond check -- python3 -m pytest -x"),
        (&["check", "python3", "-c", "import torch"], "millpond check -- python3 -c 'import torch'"),
        (&["check", "./a.out"], "millpond check -- ./a.out"),
        (&["check", "a.out", "--size", "4"], "millpond check -- ./a.out --size 4"),
        (&["check", "./script"], "millpond check -- ./script"),
        (&["check", "--races", "./a.out"], "millpond check --races -- ./a.out"),
        (&["--color", "never", "check", "torchrun", "x.py"], "millpond check --color never -- torchrun x.py"),
        (&["check", "two words.py"], "millpond check -- python3 'two words.py'"),
        (&["run", "python3", "x.py"], "millpond run -- python3 x.py"),
        (&["run", "--report", "x.py"], "millpond run --report -- python3 x.py"),
        (&["run", "./nowhere", "x"], "millpond run -- ./nowhere x"),
        (&["record", "python3", "x.py"], "millpond record -o run.trace -- python3 x.py"),
        (&["record", "-o", "it.trace", "./a.out"], "millpond record -o it.trace -- ./a.out"),
        (&["record", "--output=it.trace", "a.out"], "millpond record --output=it.trace -- ./a.out"),
        (&["python3", "x.py"], "millpond check -- python3 x.py"),
        (&["./a.out"], "millpond check -- ./a.out"),
    ] {
        let (status, error) = said(&folder, line);
        assert_eq!(status, Some(2), "{line:?}: {error}");
        assert!(error.starts_with("error: ") && error.ends_with(&format!("  help: {right}\n")), "{line:?}: {error}");
    }
}

#[test]
fn other_mistakes_are_answered_as_such() {
    let folder = folder("other");
    for (line, part) in [
        (&["check", "rigth.litmus"][..], "did you mean `right.litmus`?"),
        (&["check", "./nowhere"], "cannot be opened"),
        (&["run", "--reprot", "--", "python3"], "'--report'"),
        (&["chekc", "right.litmus"], "'check'"),
        (&["bench"], "help: run `cargo bench -p millpond --bench hot`"),
        (
            &["--color", "never", "bench", "--seconds", "10", "--json"],
            "help: run `cargo bench -p millpond --bench hot`",
        ),
        (&["record", "--", "python3"], "--output <FILE>"),
        (&["view", "x.py"], "x.py: none of the known formats"),
    ] {
        let (status, error) = said(&folder, line);
        assert_eq!(status, Some(2), "{line:?}: {error}");
        assert!(error.contains(part) && !error.contains("come after `--`"), "{line:?}: {error}");
    }
    // A pipe can be read only once.
    let mut command = Command::new("sh");
    command.args(["-c", "cat right.litmus | $0 check /dev/stdin", env!("CARGO_BIN_EXE_millpond")]);
    let output = command.current_dir(&folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(said(&folder, &["check", "right.litmus"]), (Some(0), String::new()), "a script, and a litmus program");
}
