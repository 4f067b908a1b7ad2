//! `--color`, for every subcommand, overrides the environment.

use std::process::{Command, Output};

/// Runs the command with pipes for its output, in an environment with only these settings.
fn millpond(words: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.args(words).env("TERM", "xterm").envs(settings.iter().copied()).output().expect("the command starts")
}

fn has_colours(bytes: &[u8]) -> bool {
    bytes.contains(&0x1b)
}

#[test]
fn output_has_colours_as_asked() {
    let wrong = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/litmus/measured/2-free-before-use.litmus");
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/ours.jsonl");
    for words in [&["devices"][..], &["check", wrong], &["replay", recording, "--repeat", "1"], &["view", "--help"]] {
        let out =
            |more: &[&str], settings: &[(&str, &str)]| has_colours(&millpond(&[words, more].concat(), settings).stdout);
        assert!(!out(&[], &[]), "{words:?}: a pipe is not a terminal");
        assert!(out(&["--color", "always"], &[]) && out(&["--color=always"], &[("NO_COLOR", "1")]), "{words:?}");
        assert!(out(&[], &[("CLICOLOR_FORCE", "1")]) && out(&["--color", "auto"], &[("CLICOLOR_FORCE", "1")]));
        assert!(!out(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]), "{words:?}");
        let before = millpond(&[&["--color", "always"], words].concat(), &[]);
        assert!(has_colours(&before.stdout), "{words:?}: it may stand before the subcommand");
    }
}

/// Errors about wrong arguments use the colour setting, if it could be read.
#[test]
fn errors_have_colours_as_asked() {
    for words in [&["chekc"][..], &["replay", "no/such/file"], &["man", "chekc"]] {
        let said = |more: &[&str], settings: &[(&str, &str)]| {
            let output = millpond(&[words, more].concat(), settings);
            assert_eq!(output.status.code(), Some(2), "{words:?}");
            has_colours(&output.stderr)
        };
        assert!(!said(&[], &[]) && said(&["--color=always"], &[]), "{words:?}");
        assert!(!said(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]), "{words:?}");
    }
}

#[test]
fn a_wrong_wish_is_refused() {
    for words in [&["devices", "--color", "blue"][..], &["--color=", "devices"], &["devices", "--color"]] {
        let output = millpond(words, &[]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
        assert!(error.contains("'--color <WHEN>'") && error.contains("auto, always, never"), "{error}");
    }
}

/// Arguments after `--` belong to the program.
#[test]
fn every_subcommand_has_it() {
    let help = String::from_utf8(millpond(&["--help"], &[]).stdout).unwrap();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    assert!(names.contains(&"view") && names.contains(&"run"), "{names:?}");
    for name in names.into_iter().filter(|name| !name.is_empty() && *name != "help") {
        let help = String::from_utf8(millpond(&[name, "--help"], &[]).stdout).unwrap();
        assert!(help.contains("--color <WHEN>"), "{name}: {help}");
    }
    let bash = String::from_utf8(millpond(&["completions", "bash"], &[]).stdout).unwrap();
    assert!(bash.contains("--color") && bash.contains("always") && bash.contains("--expect"));
}
