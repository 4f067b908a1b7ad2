//! Detects command lines without the `--` before the program, such as `millpond check python train.py`, and commands
//! that were removed.
//!
//! It looks at the words as they were given, before or after they were parsed: by then it is known what they mean as
//! files, and the first word that is not an option shows what the user meant. It looks only at the files that the words
//! name, and runs nothing.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::CommandFactory;

use crate::args::Args;
use crate::attach::in_path;

/// The number of bytes read from the beginning of a file.
const HEAD: u64 = 256;

/// The subcommands that take a program, and the options to suggest before `--` if no output file is given.
const TAKE: [(&str, &[&str]); 4] = [("check", &[]), ("record", &["-o", "run.trace"]), ("run", &[]), ("shake", &[])];

/// Returns the message for a command that was removed.
pub(crate) fn gone(words: &[OsString]) -> Option<&'static str> {
    let at = first(words, 1, &[&Args::command()])?;
    (words[at] == "bench").then_some(concat!(
        "there is no command `bench`\n  help: run `cargo bench -p millpond --bench hot` in a clone of the repository; \
         the other benchmarks: ",
        page!("bench")
    ))
}

/// Returns the message for words that name a program without `--`: the reason and the right command line.
pub(crate) fn dashes(words: &[OsString]) -> Option<String> {
    let mut root = Args::command();
    root.build();
    let at = first(words, 1, &[&root])?;
    let named = root.find_subcommand(&words[at]).map(clap::Command::get_name);
    let (name, before, start) = match named {
        Some(name) => {
            let (name, before) = *TAKE.iter().find(|(take, _)| *take == name)?;
            let start = first(words, at + 1, &[&root, root.find_subcommand(name)?])?;
            let is_output =
                |word: &OsString| word.as_bytes().starts_with(b"-o") || word.as_bytes().starts_with(b"--out");
            let before = if words[at..start].iter().any(is_output) { &[][..] } else { before };
            (name, before, start)
        }
        // `millpond python train.py`
        None => (TAKE[0].0, TAKE[0].1, at),
    };
    let how = how(&words[start]).or_else(|| (named.is_some() && name != "check").then(Vec::new))?;
    let mut line = vec![OsString::from("millpond"), name.into()];
    line.extend((1..start).filter(|place| *place != at).map(|place| words[place].clone()));
    line.extend(before.iter().map(OsString::from));
    line.push("--".into());
    match &how[..] {
        [] => line.push(words[start].clone()),
        how => line.extend(how.iter().cloned()),
    }
    line.extend_from_slice(&words[start + 1..]);
    let line: Vec<String> = line.iter().map(|word| quoted(word)).collect();
    Some(format!("a program and its arguments come after `--`\n  help: {}", line.join(" ")))
}

/// Returns the index of the first word from `at` on that is neither an option of these commands nor an option's value,
/// or `None` if `--` comes before it.
fn first(words: &[OsString], mut at: usize, commands: &[&clap::Command]) -> Option<usize> {
    while let Some(word) = words.get(at) {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            return None;
        }
        if !bytes.starts_with(b"-") || bytes == b"-" {
            return Some(at);
        }
        at += 1 + usize::from(has_value_behind(&word.to_string_lossy(), commands));
    }
    None
}

/// Returns `true` if the next word is the value of this option.
fn has_value_behind(word: &str, commands: &[&clap::Command]) -> bool {
    let is_meant = |arg: &&clap::Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => word.len() == 2 && arg.get_short() == word.chars().nth(1),
    };
    let found = commands.iter().flat_map(|command| command.get_arguments()).find(is_meant);
    found.is_some_and(|arg| arg.get_action().takes_values())
}

/// Returns the words that run this file as a program, or `None` if it is not one.
fn how(word: &OsStr) -> Option<Vec<OsString>> {
    let path = Path::new(word);
    match fs::metadata(path) {
        Ok(found) if found.is_file() => {}
        // Bytes read from a pipe would be lost.
        Ok(_) => return None,
        // A path that does not exist is a different mistake.
        Err(_) => {
            return (!word.as_bytes().contains(&b'/') && in_path(word).is_some()).then(|| vec![word.to_owned()]);
        }
    }
    let mut head = Vec::new();
    // A file that cannot be read has an empty beginning, and is then not taken for a program.
    let _ = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    let by_path = || match word.as_bytes().contains(&b'/') {
        true => word.to_owned(),
        false => Path::new(".").join(path).into_os_string(),
    };
    if path.extension().is_some_and(|it| it == "py") {
        let python = ["python", "python3"].into_iter().find(|name| in_path(OsStr::new(name)).is_some());
        return Some(vec![python.unwrap_or("python3").into(), word.to_owned()]);
    }
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // A litmus program may begin with a `#!` line that runs `millpond check`.
    let is_script = line.starts_with(b"#!") && !line.windows(8).any(|it| it == b"millpond");
    (head.starts_with(b"\x7fELF") || is_script).then(|| vec![by_path()])
}

/// Quotes a word for a shell if needed.
pub(crate) fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
