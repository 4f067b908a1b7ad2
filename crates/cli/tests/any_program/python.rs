//! Python programs: a place is a line of the program, with and without the interpreter's lock held in a call.

use std::path::PathBuf;

use super::*;

/// The interpreters of versions whose frames can be read.
pub(super) fn interpreters() -> Vec<PathBuf> {
    // With a `t`: without the global lock.
    let names = ["", ".11", ".12", ".13", ".13t", ".14", ".14t", ".15", ".15t"];
    let on_path = names.iter().map(|name| PathBuf::from(format!("python3{name}")));
    let home = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions = home.and_then(|home| fs::read_dir(home.join("versions")).ok()).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = on_path
        .chain(versions.map(|version| version.path().join("bin/python3")))
        .filter_map(|name| {
            let code = "import sys; print(sys.executable if (3, 11) <= sys.version_info[:2] <= (3, 15) else '')";
            let output = Command::new(name).args(["-c", code]).output().ok()?;
            let path = text(&output.stdout).trim().to_owned();
            (!path.is_empty()).then(|| PathBuf::from(path))
        })
        .collect();
    found.sort();
    found.dedup();
    if found.is_empty() {
        println!("skipped: there is no Python 3.11 to 3.15");
    }
    found
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/any_program/program.py")
}

/// Returns a line of `program.py`, as it is shown.
fn shown(mark: &str, function: &str) -> String {
    let source = include_str!("program.py");
    let line = 1 + source.lines().position(|line| line.ends_with(&format!("# {mark}"))).expect("a mark");
    format!("program.py:{line} ({function})")
}

fn check(interpreter: &Path, words: [&str; 2]) -> Output {
    let program = program();
    let words = words.map(OsStr::new);
    let before = ["check", "--"].map(OsStr::new);
    millpond(&[&before[..], &[interpreter.as_os_str(), program.as_os_str()], &words].concat())
}

#[test]
fn a_place_is_a_line_of_python() {
    for interpreter in interpreters() {
        for how in ["held", "released"] {
            let output = check(&interpreter, ["freed-while-used", how]);
            let said = text(&output.stderr);
            let context = format!("{} {how}: {said}", interpreter.display());
            assert_eq!(kinds(&output), ["free-before-use"], "{context}");
            assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(1), "done\n"), "{context}");
            for place in [shown("filled", "Tensor.fill"), shown("freed", "Tensor.free.<locals>.<lambda>")] {
                assert!(said.contains(&place), "no {place}: {context}");
            }
            assert!(said.contains("3 x free-before-use"), "{context}");
        }
    }
}

/// Returns the rows of a table of layouts: the name of each, and its values. The first has the versions.
fn rows(table: &str) -> Vec<(String, Vec<String>)> {
    let row = |line: &str| {
        let (name, _) = line.trim().trim_start_matches("pub(super) const ").split_once(':')?;
        let (_, values) = line.strip_suffix("],").or(line.strip_suffix("];"))?.rsplit_once('[')?;
        Some((name.to_owned(), values.split(", ").map(str::to_owned).collect()))
    };
    table.lines().filter_map(row).collect()
}

/// The table equals what a compiler makes of the headers of the installed interpreters.
#[test]
fn layouts_are_those_of_the_headers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interpose");
    let table = rows(&fs::read_to_string(folder.join("src/python/versions.rs")).expect("a table"));
    for interpreter in interpreters() {
        let code = "import sysconfig; print(sysconfig.get_paths()['include'])";
        let output = Command::new(&interpreter).args(["-c", code]).output().expect("it starts");
        let include = PathBuf::from(text(&output.stdout).trim());
        if !include.join("internal/pycore_frame.h").is_file() {
            println!("skipped: {} has no headers", interpreter.display());
            continue;
        }
        let output = Command::new(folder.join("layouts")).arg(&include).output().expect("it starts");
        assert!(output.status.success(), "{}: {}", include.display(), text(&output.stderr));
        let measured = rows(&text(&output.stdout));
        let column = table[0].1.iter().position(|version| *version == measured[0].1[0]).expect("a known version");
        let column = table.iter().map(|(name, values)| (name.clone(), vec![values[column].clone()]));
        assert_eq!(column.collect::<Vec<_>>(), measured, "{}", include.display());
        assert_eq!(measured.len(), 27, "all rows are compared");
    }
}

/// Frames of other versions are not read, and a message says so.
#[test]
fn other_versions_have_native_places() {
    let all = fs::read_dir(std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default().join(".pyenv/versions"));
    let olds = all.into_iter().flatten().flatten().map(|version| version.path().join("bin/python3"));
    for interpreter in olds.chain(["python3.8", "python3.9", "python3.10"].map(PathBuf::from)) {
        let code = "import sys; print((3, 8) <= sys.version_info[:2] <= (3, 10))";
        let Ok(output) = Command::new(&interpreter).args(["-c", code]).output() else { continue };
        if text(&output.stdout) != "True\n" {
            continue;
        }
        let output = check(&interpreter, ["freed-while-used", "released"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("coverage: no lines of Python in 1 process"), "{}: {said}", interpreter.display());
    }
}

/// The setting for PyTorch is made for Python programs only, and `--keep-allocator` leaves it alone.
#[test]
fn the_allocator_of_pytorch_is_set() {
    let asked = "import os; print(os.environ.get('PYTORCH_CUDA_ALLOC_CONF'), os.environ.get('PYTORCH_ALLOC_CONF'))";
    for interpreter in interpreters().into_iter().take(1) {
        let words = |flags: &[&'static str]| {
            let before = flags.iter().map(OsStr::new).chain([OsStr::new("--"), interpreter.as_os_str()]);
            millpond(&before.chain(["-c", asked].map(OsStr::new)).collect::<Vec<_>>())
        };
        let output = words(&["check"]);
        assert_eq!(text(&output.stdout), "backend:cudaMallocAsync backend:cudaMallocAsync\n");
        let said =
            "millpond: PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync is set, so that every tensor of PyTorch is seen";
        assert!(text(&output.stderr).starts_with(said), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("--keep-allocator leaves it"), "{}", text(&output.stderr));
        let output = words(&["check", "--keep-allocator"]);
        assert_eq!(text(&output.stdout), "None None\n");
        assert!(!text(&output.stderr).contains("PyTorch"), "{}", text(&output.stderr));
    }
    let output = run(&["check"], "linked", &["9"]);
    assert!(!text(&output.stderr).contains("PyTorch"), "{}", text(&output.stderr));
}

#[test]
fn code_that_takes_the_place_of_other_code_has_its_own_lines() {
    for interpreter in interpreters() {
        let output = check(&interpreter, ["made-code", "released"]);
        let said = text(&output.stderr);
        let context = format!("{}: {said}", interpreter.display());
        assert_eq!(kinds(&output), ["double-free"; 3], "{context}");
        for number in 0..3 {
            assert!(said.contains(&format!("\u{fffd}wrong{number}\u{e4}.py:5 (<module>)")), "{context}");
        }
    }
}

#[test]
fn a_trace_has_the_lines_of_python() {
    for interpreter in interpreters() {
        let trace = PLACE.join("python.trace");
        let program = program();
        let words = ["freed-while-used", "released"].map(OsStr::new);
        let before = [OsStr::new("record"), OsStr::new("-o"), trace.as_os_str(), OsStr::new("--")];
        let output = millpond(&[&before[..], &[interpreter.as_os_str(), program.as_os_str()], &words].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let output = millpond(&[OsStr::new("check"), OsStr::new("--no-races"), trace.as_os_str()]);
        let said = text(&output.stdout);
        for mark in ["filled", "freed"] {
            let place = shown(mark, "");
            let place = place.split(' ').next().expect("a file and a line");
            assert!(said.contains(place), "no {place} in {said}");
        }
    }
}

#[test]
fn whole_stacks_have_the_frames_of_python() {
    for interpreter in interpreters() {
        let program = program();
        let words = ["check", "--deep", "--"].map(OsStr::new);
        let output = millpond(
            &[
                &words[..],
                &[interpreter.as_os_str(), program.as_os_str()],
                &["freed-while-used", "held"].map(OsStr::new),
            ]
            .concat(),
        );
        let said = text(&output.stderr);
        assert_eq!(kinds(&output), ["free-before-use"], "{said}");
        for frame in [shown("filled", "Tensor.fill"), shown("freed", "Tensor.free.<locals>.<lambda>")] {
            let lines = said.lines().filter(|line| line.starts_with("    at ") && line.ends_with(&frame));
            assert_eq!(lines.count(), 1, "no frame {frame}: {said}");
        }
        let outer =
            |name: &str| said.lines().filter(|line| line.starts_with("    at ") && line.ends_with(name)).count();
        assert_eq!(outer("(in_a_thread.<locals>.run)"), 2, "who called both: {said}");
        assert_eq!(outer("_PyEval_EvalFrameDefault)"), 0, "no frames of the interpreter: {said}");
    }
}
