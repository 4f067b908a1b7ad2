//! Suites of tests in Python: `pytest --millpond` and `python -m millpond.unittest`. A finding fails its test.

use super::python::interpreters;
use super::*;

/// A module that calls the driver, and tests: one is wrong twice, others are right.
const TESTS: &str = include_str!("test_order.py");

/// Makes a folder with the tests. Returns it.
fn suite(name: &str) -> PathBuf {
    let folder = PLACE.join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("test_order.py"), TESTS).unwrap();
    folder
}

/// Returns a folder with the package alone. Metadata of a build beside it would register the plugin twice.
pub(super) fn package() -> PathBuf {
    let package = PLACE.join("python");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/millpond");
    // Another test may have made it.
    let _ = fs::create_dir_all(&package).and_then(|()| std::os::unix::fs::symlink(source, package.join("millpond")));
    package
}

/// Runs an interpreter in a folder, with this package and the command.
fn python(interpreter: &Path, folder: &Path, words: &[&str]) -> Output {
    let package = package();
    let commands = Path::new(env!("CARGO_BIN_EXE_millpond")).parent().unwrap();
    let path = std::env::join_paths([commands, Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    let like = command();
    let mut command = Command::new(interpreter);
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PYTHONPATH", package).env("PATH", path).env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(folder).args(words).output().unwrap()
}

/// Returns the interpreters that have pytest, and whether they have pytest-xdist.
fn with_pytest() -> Vec<(PathBuf, bool)> {
    let given = std::env::var_os("MILLPOND_TEST_PYTHON").map(PathBuf::from);
    let has = |python: &Path, module: &str| {
        let asked = Command::new(python).args(["-c", &format!("import {module}")]).output();
        asked.is_ok_and(|output| output.status.success())
    };
    let all = given.into_iter().chain(interpreters());
    let found: Vec<_> = all.filter(|it| has(it, "pytest")).map(|it| (it.clone(), has(&it, "xdist"))).collect();
    if found.is_empty() {
        println!("skipped: no Python here has pytest (MILLPOND_TEST_PYTHON names one that has)");
    }
    found
}

fn line(mark: &str) -> String {
    let line = 1 + TESTS.lines().position(|line| line.ends_with(mark)).unwrap();
    format!("test_order.py:{line} (use)")
}

#[test]
fn pytest_fails_the_tests_that_make_findings() {
    for (at, (interpreter, has_xdist)) in with_pytest().into_iter().enumerate() {
        let folder = suite(&format!("pytest-{at}"));
        let plugin = ["-m", "pytest", "-p", "millpond.pytest_plugin", "-p", "no:cacheprovider", "-rA"];
        let run = |more: &[&str]| python(&interpreter, &folder, &[&plugin[..], more].concat());
        let output = run(&[]);
        assert_eq!(output.status.code(), Some(0), "without the option nothing is checked: {}", text(&output.stdout));
        for workers in [&[][..], &["-n", "2"]].into_iter().take(1 + usize::from(has_xdist)) {
            let output = run(&[&["--millpond"], workers].concat());
            let said = text(&output.stdout);
            let context = format!("{} {workers:?}: {said}\n{}", interpreter.display(), text(&output.stderr));
            assert_eq!(output.status.code(), Some(1), "{context}");
            assert!(said.contains("2 failed, 3 passed"), "{context}");
            for test in ["test_b_wrong", "test_d_wrong_at_the_same_lines"] {
                assert!(said.contains(&format!("FAILED test_order.py::TestOrder::{test}")), "{context}");
            }
            for place in [line("# used"), line("# freed")] {
                assert!(said.matches(&place).count() >= 2, "both reports have {place}: {context}");
            }
            assert!(text(&output.stderr).contains("2 violations at 1 place"), "the command's summary: {context}");
        }
        // Also where the command starts the session: each test that makes the finding again fails.
        let tests = suite(&format!("pytest-many-{at}"));
        let many = "import os, pytest\nfrom test_order import begin, use\n\n\n\
            @pytest.mark.parametrize('number', range(7))\ndef test_wrong(number, monkeypatch):\n    \
            os.environ.pop('MILLPOND_INTERPOSE_REPORT', None)\n    use(*begin(), False)\n";
        fs::write(tests.join("test_many.py"), many).unwrap();
        let words = ["-m", "millpond", "check", "--", interpreter.to_str().unwrap()];
        let output = python(&interpreter, &tests, &[&words[..], &plugin, &["--millpond", "test_many.py"]].concat());
        assert!(text(&output.stdout).contains("7 failed"), "{}\n{}", text(&output.stdout), text(&output.stderr));
        let output = run(&["--millpond-option=--races"]);
        assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
        fs::write(folder.join("rules.txt"), "function=use").unwrap();
        let output = run(&["--millpond", "--millpond-option=--suppressions=rules.txt"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
        assert!(text(&output.stderr).contains("suppressed 2 violations: rules.txt:1"), "{}", text(&output.stderr));
    }
}

#[test]
fn unittest_fails_the_tests_that_make_findings() {
    for (at, interpreter) in interpreters().into_iter().enumerate() {
        let folder = suite(&format!("unittest-{at}"));
        let output = python(&interpreter, &folder, &["-m", "millpond.unittest", "-v", "test_order"]);
        let said = text(&output.stderr);
        let context = format!("{}: {said}", interpreter.display());
        assert_eq!(output.status.code(), Some(1), "{context}");
        assert!(said.contains("FAILED (failures=2)") && said.contains("Ran 5 tests"), "{context}");
        for test in ["test_b_wrong", "test_d_wrong_at_the_same_lines"] {
            assert!(said.contains(&format!("FAIL: {test}")), "{context}");
        }
        for place in [line("# used"), line("# freed")] {
            assert!(said.matches(&place).count() >= 2, "both reports have {place}: {context}");
        }
        let output = python(&interpreter, &folder, &["-m", "millpond.unittest", "test_order.TestOrder.test_a_right"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
}
