//! The output of `check` for each program of the corpus, word for word: a change of the text shows in the diff.
//!
//! `MILLPOND_GOLDEN=write cargo test -p millpond-cli --test command golden` writes the texts again.

use std::fmt::Write;
use std::fs;
use std::path::Path;

#[test]
fn each_finding_reads_as_it_did() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut differ = Vec::new();
    for folder in ["loops", "measured", "rules", "shapes", "zoo"] {
        let programs = tests.join("files/litmus").join(folder);
        let mut names: Vec<_> = fs::read_dir(&programs).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let mut now = String::new();
        for name in names.iter().filter_map(|name| name.to_str()?.strip_suffix(".litmus")) {
            let said = said_of(&programs, &format!("{name}.litmus"), folder);
            writeln!(now, "## {name}\n{}", said.trim_end()).unwrap();
        }
        let golden = tests.join("golden").join(folder).with_extension("txt");
        if std::env::var_os("MILLPOND_GOLDEN").is_some_and(|it| it == "write") {
            fs::write(&golden, &now).unwrap();
        }
        let then = fs::read_to_string(&golden).unwrap_or_default();
        let first = now.lines().zip(then.lines()).position(|(now, then)| now != then);
        if now != then {
            let line = first.unwrap_or_else(|| now.lines().count().min(then.lines().count()));
            let at = |text: &str| text.lines().nth(line).unwrap_or("(the end)").to_string();
            differ.push(format!("{}:{}\n  was {}\n  now {}", golden.display(), line + 1, at(&then), at(&now)));
        }
    }
    assert!(
        differ.is_empty(),
        "what `check` says has changed:\n{}\n(MILLPOND_GOLDEN=write takes it over)",
        differ.join("\n")
    );
}

/// Returns the report of one program, with `folder` for the path of its folder.
fn said_of(programs: &Path, name: &str, folder: &str) -> String {
    let path = programs.join(name);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = ["millpond".into(), "check".into(), path.into_os_string()];
    let open: millpond_cli::replay::Open<'_> = &|_| unreachable!("no device is opened");
    millpond_cli::run(args, open, &mut out, &mut err).unwrap();
    out.extend(err);
    anstream::adapter::strip_str(&String::from_utf8(out).unwrap())
        .to_string()
        .replace(&*programs.to_string_lossy(), folder)
}
