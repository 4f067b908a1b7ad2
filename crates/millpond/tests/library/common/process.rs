//! Tests in processes of their own: this test program again.

use std::process::Command;

const ALONE: &str = "MILLPOND_ALONE";

/// Makes a command that runs one test of this program, `module::test`, even if it is ignored.
pub(crate) fn test(path: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([path, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// Runs the body of a test in a process where no other test runs. Call it with a closure, in the test itself.
#[track_caller]
pub(crate) fn alone<Body: FnOnce()>(body: Body) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let closure = std::any::type_name::<Body>();
    let (_, path) = closure.split_once("::").expect("a path of this program");
    let output = test(path.trim_end_matches("::{{closure}}")).env(ALONE, "1").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success() && text.contains("1 passed"), "{path}: {}", output.status);
}
