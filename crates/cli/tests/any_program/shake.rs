//! `millpond shake`: programs whose result depends on which stream is late, and the same with the missing edge.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// Shakes a program of `shake.c`.
fn shake(before: &[&str], way: &str, words: &[&str]) -> Output {
    run(&[&["shake"], before].concat(), way, words)
}

fn said(output: &Output) -> String {
    text(&output.stderr)
}

/// Returns the first line with a part.
#[track_caller]
fn line<'a>(said: &'a str, part: &str) -> &'a str {
    said.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part} in {said}"))
}

/// Returns the place of a mark in `shake.c`.
fn place(mark: &str) -> String {
    let at = include_str!("shake.c").lines().position(|line| line.contains(mark)).unwrap();
    format!("shake.c:{}", at + 1)
}

/// Returns what the line of a failing seed has after the seed, up to the time.
fn delays_of(said: &str) -> String {
    let line = line(said, ": FAILED");
    line.split(" in all").next().unwrap().split(": ").last().unwrap().to_owned()
}

#[test]
fn a_missing_edge_is_found_narrowed_and_named() {
    for way in ["shake", "shake-looked-up"] {
        let output = shake(&["--only-streams", "2"], way, &["prefetch"]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{way}: {said}");
        assert!(said.contains("stream 1: 6 copies") && said.contains("stream 2: 6 kernels"), "{way}: {said}");
        assert!(line(&said, ": FAILED").contains("exit status 4"), "{said}");
        assert!(said.contains("  | ") && said.contains(" of 6 values are wrong"), "the end of its output: {said}");
        assert!(line(&said, "narrowed in 2 runs").contains("to 1, with which the program fails each time"), "{said}");
        let delayed = line(&said, " late");
        let (read, copied) = (place("/* the kernel that reads */"), place("/* the copy that comes too early */"));
        assert!(delayed.contains("stream 2") && delayed.contains("a kernel") && delayed.contains(&read), "{said}");
        let edge = said.split("nothing orders it with").nth(1).unwrap_or_else(|| panic!("{said}"));
        assert!(line(edge, "  delayed ").contains(&read), "{said}");
        assert!(line(edge, "  later ").contains(&copied), "{said}");
        assert!(edge.contains("= note: stream 2 is the stream with the handle"), "{said}");
        assert!(
            edge.contains("= help: make stream 1 wait for the event that is recorded already by stream 2"),
            "{said}"
        );
    }
}

/// A late copy shows the mistake as well: then both wait, and nothing keeps them apart.
#[test]
fn whichever_stream_is_late_both_lines_are_named() {
    for options in [&[][..], &["--only-copies"]] {
        let output = shake(options, "shake", &["prefetch"]);
        let said = said(&output);
        if options.is_empty() {
            assert!(line(&said, " late").contains("a kernel"), "the one to wait for, if it may be late: {said}");
        }
        assert_eq!(output.status.code(), Some(1), "{options:?}: {said}");
        let edge = said.split("millpond: shake: ").find(|part| part.contains("  [race] ")).unwrap_or_default();
        for mark in ["/* the kernel that reads */", "/* the copy that comes too early */"] {
            assert!(edge.contains(&place(mark)), "{options:?}: {said}");
        }
    }
}

#[test]
fn its_twin_passes_and_a_pass_claims_nothing() {
    let output = shake(&["--seeds", "0..8"], "shake", &["prefetch", "right"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches(": passed").count(), 8, "{said}");
    let last = line(&said, "8 seeds passed");
    assert!(last.contains("a pass proves nothing") && last.contains(" in all; a run took "), "{said}");
}

#[test]
fn a_seed_and_what_it_is_narrowed_to_fail_again() {
    let first = said(&shake(&["--only-streams", "2"], "shake", &["prefetch"]));
    for part in ["replay: ", "replay that alone: "] {
        let words = line(&first, part).split("shake ").nth(1).unwrap().split(" -- ").next().unwrap();
        let words: Vec<&str> = words.split(' ').collect();
        for _ in 0..2 {
            let output = shake(&words, "shake", &["prefetch"]);
            let again = said(&output);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {again}");
            if part == "replay: " {
                assert_eq!(delays_of(&again), delays_of(&first));
            }
        }
        let output = shake(&words, "shake", &["prefetch", "right"]);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", said(&output));
    }
    let any = said(&shake(&[], "shake", &["prefetch"]));
    let words = line(&any, "replay that alone: ").split("shake ").nth(1).unwrap().split(" -- ").next().unwrap();
    let output = shake(&words.split(' ').collect::<Vec<_>>(), "shake", &["prefetch"]);
    assert_eq!(output.status.code(), Some(1), "{words}: {}", said(&output));
}

#[test]
fn outputs_are_compared_where_that_is_asked_for() {
    let output = shake(&["--seeds", "0..4"], "shake", &["prefetch", "quiet"]);
    assert_eq!(output.status.code(), Some(0), "its status says nothing: {}", said(&output));
    assert_eq!(text(&output.stdout), "the sum is 21\n", "that of the undelayed run alone");
    let output = shake(&["--compare"], "shake", &["prefetch", "quiet"]);
    let found = said(&output);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "the sum is 21\n".into()), "{found}");
    let failed = line(&found, ": FAILED");
    assert!(failed.contains("line 1: `the sum is ") && failed.contains("in place of `the sum is 21`"), "{found}");
    let output = shake(&["--compare", "--seeds", "6"], "shake", &["prefetch", "quiet", "right"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let output = shake(&["--compare"], "shake", &["different"]);
    let found = said(&output);
    assert!(output.status.code() == Some(2) && found.contains("two undelayed runs differ"), "{found}");
}

#[test]
fn files_are_compared_and_left_as_the_undelayed_run_wrote_them() {
    let file = PLACE.join("shaken.txt");
    let name = file.to_str().unwrap();
    let output = shake(&["--compare-file", name], "shake", &["writes", name]);
    let found = said(&output);
    assert_eq!((output.status.code(), fs::read_to_string(&file).unwrap()), (Some(1), "right\n".into()), "{found}");
    assert!(line(&found, ": FAILED").contains("line 1: `wrong` in place of `right`"), "{found}");
    let other = PLACE.join("never-written.txt");
    let output = shake(&["--compare-file", other.to_str().unwrap()], "shake", &["writes", name]);
    assert!(output.status.code() == Some(2) && said(&output).contains("never-written.txt: cannot be read"));
}

#[test]
fn a_signal_is_a_failure_too() {
    let output = shake(&[], "shake", &["aborts"]);
    let found = said(&output);
    assert_eq!(output.status.code(), Some(1), "{found}");
    assert!(line(&found, ": FAILED").contains("signal 6") && found.contains("to 1, with which"), "{found}");
}

#[test]
fn where_the_host_does_not_wait_that_is_said() {
    let output = shake(&[], "shake", &["impatient"]);
    let found = said(&output);
    assert_eq!(output.status.code(), Some(1), "{found}");
    assert!(line(&found, " late").contains(&place("/* the copy that nobody waits for */")), "{found}");
    assert!(found.contains("The host may use that memory too early"), "{found}");
    let output = shake(&["--seeds", "6"], "shake", &["impatient", "right"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn what_cannot_be_shaken_is_refused() {
    let refused = |before: &[&str], words: &[&str], reason: &str| {
        let output = shake(before, "shake", words);
        let found = said(&output);
        assert!(output.status.code() == Some(2) && found.contains(reason), "{found}");
    };
    refused(&[], &["broken"], "the program fails without delays: exit status 3");
    refused(&[], &["without-work"], "the program put no work into a stream");
    refused(&["--only-streams", "9"], &["many"], "no operation of the program may be delayed");
    refused(&["--only-copies"], &["many"], "it has stream 1: 250 fills; stream 2: 250 fills");
    refused(&["--seeds", "5..5"], &["many"], "there is no seed in 5..5");
    refused(&["--seeds", "x"], &["many"], "no range of seeds such as 0..20");
    refused(&["--seed", "1", "--seeds", "0..3"], &["many"], "cannot be used with");
    refused(&["--at", "2"], &["many"], "no delay such as 2:17=20ms");
    refused(&["--budget", "-1"], &["many"], "");
    refused(&["--total", "5"], &["many"], "no time such as 20ms");
    refused(&["--at", "99:7=1ms"], &["many"], "no delay was made");
    let program = PLACE.join("shake").to_str().unwrap().to_owned();
    refused(&["--compare-file", &program], &["many"], "is the program; name a file that it writes");
    assert!(fs::metadata(&program).unwrap().permissions().mode() & 0o100 != 0, "it is as it was");
    let output = millpond(&["shake", "--seeds", "3"].map(OsStr::new));
    assert_eq!(output.status.code(), Some(2), "a program is needed");
    let output = millpond(&["shake", "python3", "x.py"].map(OsStr::new));
    assert!(said(&output).contains("millpond shake -- python3 x.py"), "{}", said(&output));
}

#[test]
fn the_budget_is_kept() {
    let output = shake(&["--total", "30ms", "--seeds", "6"], "shake", &["many"]);
    let found = said(&output);
    assert_eq!(output.status.code(), Some(0), "{found}");
    let mut seeds = 0;
    for line in found.lines().filter(|line| line.contains(" of 500 operations delayed, ")) {
        let time = line.split("delayed, ").nth(1).unwrap().split(" in all").next().unwrap();
        let milliseconds: f64 = time.strip_suffix(" ms").unwrap().parse().unwrap();
        assert!(milliseconds > 0.0 && milliseconds <= 30.0, "{line}");
        seeds += 1;
    }
    assert_eq!(seeds, 6, "{found}");
}

#[test]
fn calls_that_wait_are_left_out_and_that_is_said() {
    let mut command = command();
    command.args(["shake", "--only-streams", "2", "--"]).arg(PLACE.join("shake")).arg("prefetch");
    let output = command.env("CUDA_LAUNCH_BLOCKING", "1").output().unwrap();
    let found = said(&output);
    assert!(output.status.code() == Some(1) && found.contains("CUDA_LAUNCH_BLOCKING is left out"), "{found}");
}

#[test]
fn only_what_is_asked_for_is_delayed() {
    for (options, of) in [(&["--only-copies"][..], 6), (&["--only-streams", "2"], 6), (&[], 12)] {
        let output = shake(&[options, &["--seeds", "6"]].concat(), "shake", &["prefetch", "right"]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(said.matches(&format!("of {of} operations delayed")).count(), 6, "{options:?}: {said}");
    }
}

#[test]
fn captures_are_left_alone_unless_asked() {
    let output = shake(&["--compare", "--seeds", "10"], "shake", &["captured"]);
    let found = said(&output);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "1 nodes\n".into()), "{found}");
    assert!(found.contains("stream 2: 1 copy, 1 launch of a graph, 1 kernel in captures"), "{found}");
    let output = shake(&["--compare", "--graphs", "--at", "2:2=1ms"], "shake", &["captured"]);
    let found = said(&output);
    assert_eq!(output.status.code(), Some(1), "{found}");
    assert!(line(&found, ": FAILED").contains("`2 nodes` in place of `1 nodes`"), "{found}");
    let output = shake(&["--graphs", "--seeds", "4"], "shake", &["captured"]);
    assert_eq!(output.status.code(), Some(0), "a delay in a graph changes no result: {}", said(&output));
}

/// A session whose second test does not wait for a late copy.
const TESTS: &str = r#"
import ctypes
import time

from order import begin, cuda, must


def copied(is_right):
    s, t = begin()
    at, to, size = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_size_t(64)
    must(cuda.cuMemAlloc_v2(ctypes.byref(at), size))
    must(cuda.cuMemHostAlloc(ctypes.byref(to), size, 0))
    must(cuda.cuMemsetD8Async(at, 7, size, s))  # filled late
    if is_right:
        must(cuda.cuStreamSynchronize(s))
    time.sleep(0.002)
    must(cuda.cuMemcpyDtoHAsync_v2(to, at, size, t))  # copied before
    must(cuda.cuCtxSynchronize())
    return ctypes.string_at(to, 64)


def test_right():
    assert copied(True) == b"\x07" * 64


def test_wrong():
    assert copied(False) == b"\x07" * 64
"#;

/// Returns an interpreter that has pytest.
fn with_pytest() -> Option<PathBuf> {
    let given = std::env::var_os("MILLPOND_TEST_PYTHON").map(PathBuf::from);
    let has = |python: &PathBuf| {
        let asked = Command::new(python).args(["-c", "import pytest"]).output();
        asked.is_ok_and(|output| output.status.success())
    };
    let found = given.into_iter().chain(super::python::interpreters()).find(has);
    if found.is_none() {
        println!("skipped: no Python here has pytest (MILLPOND_TEST_PYTHON names one that has)");
    }
    found
}

#[test]
fn a_session_of_pytest_is_shaken_and_lines_of_python_are_named() {
    let Some(interpreter) = with_pytest() else { return };
    let folder = PLACE.join("shaken-pytest");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("test_late.py"), TESTS).unwrap();
    fs::write(folder.join("order.py"), include_str!("test_order.py")).unwrap();
    let package = super::pytest::package();
    let commands = Path::new(env!("CARGO_BIN_EXE_millpond")).parent().unwrap();
    let path = std::env::join_paths([commands, Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    let pytest = |more: &[&str]| {
        let like = command();
        let mut command = Command::new(&interpreter);
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("PYTHONPATH", &package).env("PATH", &path).env("PYTHONDONTWRITEBYTECODE", "1");
        command.args(["-m", "pytest", "-p", "millpond.pytest_plugin", "-p", "no:cacheprovider"]);
        command.current_dir(&folder).args(more).output().unwrap()
    };
    let output = pytest(&["--millpond-shake=20"]);
    let found = said(&output);
    let context = format!("{found}\n{}", text(&output.stdout));
    assert_eq!(output.status.code(), Some(1), "{context}");
    assert!(text(&output.stdout).contains("2 passed"), "the output of the undelayed session: {context}");
    assert!(line(&found, ": FAILED").contains("exit status 1") && found.contains("1 failed, 1 passed"), "{context}");
    let number = |mark: &str| TESTS.lines().position(|line| line.ends_with(mark)).unwrap() + 1;
    let [filled, copied] = ["# filled late", "# copied before"].map(|mark| format!("test_late.py:{}", number(mark)));
    assert!(line(&found, " late").contains(&filled), "{context}");
    let edge = found.split("nothing orders it with").nth(1).unwrap_or_else(|| panic!("{context}"));
    assert!(edge.contains(&filled) && edge.contains(&copied), "{context}");
    let output = pytest(&["--millpond-shake=4", "test_late.py::test_right"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("4 seeds passed"), "{}", said(&output));
    let output = pytest(&["--millpond-shake=4", "--millpond"]);
    assert!(said(&output).contains("give one of them"), "{}", said(&output));
}
