//! The C programs of `examples/`, compiled by the system's compiler against the header and the library, and run: on a
//! host device, and on CUDA those whose kernels are not C functions (over `fakecuda`, or with
//! `MILLPOND_TEST_DEVICE=cuda` on a GPU).

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use common::{library_folder, run};
use millpond_core::check::{Checker, Finding, Settings};
use millpond_core::trace::ops::Reader;

/// PyTorch gets a C++ exception if there is no memory.
#[test]
fn out_of_memory_is_thrown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (folder, target) = (library_folder(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("out_of_memory"));
    let mut compile = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compile.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(root.join("include"));
    compile.arg(root.join("tests/out_of_memory.cpp")).arg("-L").arg(folder).args(["-lmillpond", "-o"]).arg(&target);
    run(&mut compile, "the C++ compiler");
    let out = run(Command::new(&target).env("LD_LIBRARY_PATH", folder), "out_of_memory");
    assert!(out.contains("caught: CUDA out of memory. millpond_torch_alloc: out of memory"), "{out}");
}

/// A server keeps nothing for each request.
#[test]
fn nothing_is_kept_for_each_request() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (folder, target) = (library_folder(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("steady"));
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(root.join("include"));
    compile.arg("-I").arg(root.join("examples")).arg(root.join("tests/steady.c"));
    compile.arg("-L").arg(folder).args(["-lmillpond", "-o"]).arg(&target);
    run(&mut compile, "the C compiler");
    let out = run(Command::new(&target).env("LD_LIBRARY_PATH", folder), "steady");
    assert!(out.ends_with("kept: 0\n"), "{out}");
}

/// Compiles one program, with warnings as errors. Returns its path. Tests in parallel may need the same one.
fn compiled(name: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _compiling = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = library_folder();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if is_compiled(name) {
        return target;
    }
    let mut compile = Command::new(&compiler);
    compile.args(["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    compile.arg("-I").arg(root.join("include"));
    compile.arg(root.join("examples").join(format!("{name}.c")));
    compile.arg("-L").arg(folder).args(["-lmillpond", "-o"]).arg(&target);
    run(&mut compile, "the C compiler");
    target
}

/// Returns `true` if this process has compiled it, and records that it has.
fn is_compiled(name: &str) -> bool {
    static DONE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    !DONE.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned())
}

/// Compiles one program and runs it. Returns its output.
fn program(name: &str) -> String {
    run(Command::new(compiled(name)).env("LD_LIBRARY_PATH", library_folder()), name)
}

/// Returns the findings in a complete trace.
fn findings(path: &Path) -> Vec<Finding> {
    let mut reader = Reader::new();
    reader.feed(&std::fs::read(path).expect("the trace was written"));
    let mut checker = Checker::new(Settings::RECORDED);
    let mut findings = Vec::new();
    while let Some(op) = reader.next_op().expect("it is whole") {
        checker.check(&op, reader.names(), &mut findings);
    }
    checker.finish(reader.names(), &mut findings);
    reader.end().expect("it has its end");
    findings
}

#[test]
fn traces_are_written_by_a_call_and_by_the_environment() {
    let program = compiled("trace");
    for by_call in [true, false] {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("from_c_{by_call}.trace"));
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", library_folder()).env_remove("MILLPOND_TRACE");
        match by_call {
            true => command.arg(&path),
            false => command.env("MILLPOND_TRACE", &path),
        };
        run(&mut command, "trace");
        let found = findings(&path);
        let wrong: Vec<_> = found.iter().filter(|finding| !finding.kind.is_advice()).collect();
        let [used, freed] = wrong[..] else { panic!("the use and the free that nothing orders: {found:?}") };
        assert_stands_at(used, "millpond_declare");
        assert_stands_at(freed, "millpond_free_async");
    }
}

/// Asserts that the later side is the program's line with that call, and not a line of the library.
fn assert_stands_at(finding: &Finding, call: &str) {
    let spot = &finding.later.as_ref().expect("a use").spot;
    let source = std::fs::read_to_string(spot.file.as_ref().expect("a file")).expect("the program's source");
    let line = source.lines().nth(spot.line.expect("a line") as usize - 1).expect("a line of it");
    assert!(line.contains(call), "{spot:?}: {line}");
}

/// The same with the library linked into the program, so that their frames are in one object.
#[test]
fn a_program_that_the_library_is_linked_into_has_its_lines_in_the_trace() {
    let (program, path) = (compiled("trace"), Path::new(env!("CARGO_TARGET_TMPDIR")).join("from_static_c.trace"));
    let target = program.with_file_name("trace_static");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile.args(["-std=c11", "-g", "-O1", "-pthread", "-I"]).arg(root.join("include"));
    compile.arg(root.join("examples/trace.c")).arg(library_folder().join("libmillpond.a"));
    compile.args(["-lm", "-ldl", "-o"]).arg(&target);
    run(&mut compile, "the C compiler");
    run(Command::new(&target).arg(&path).env_remove("MILLPOND_TRACE"), "trace_static");
    let found = findings(&path);
    let wrong: Vec<_> = found.iter().filter(|finding| !finding.kind.is_advice()).collect();
    assert_stands_at(wrong[0], "millpond_declare");
}

/// Without debug data the line is unknown, but the function is known.
#[test]
fn a_program_without_debug_data_has_its_functions_in_the_trace() {
    let program = compiled("trace");
    let (target, path) = (program.with_file_name("trace_bare"), program.with_file_name("from_bare_c.trace"));
    std::fs::copy(&program, &target).expect("a copy");
    run(Command::new("strip").arg("--strip-debug").arg(&target), "strip");
    let mut command = Command::new(&target);
    command.arg(&path).env("LD_LIBRARY_PATH", library_folder()).env_remove("MILLPOND_TRACE");
    run(&mut command, "trace_bare");
    for finding in findings(&path).iter().filter(|finding| !finding.kind.is_advice()) {
        let file = finding.later.as_ref().and_then(|later| later.spot.file.clone()).expect("a place");
        assert!(file.starts_with("main+0x") && file.ends_with(" (trace_bare)"), "{file}");
    }
}

macro_rules! programs {
    ($($name:ident: $($said:literal),+;)*) => {$(
        #[test]
        fn $name() {
            let out = program(stringify!($name));
            assert!(!out.contains("crates/"), "places are those of the program, not of the library:\n{out}");
            for said in [$($said),+] {
                assert!(out.contains(said), "`{said}` is not in:\n{out}");
            }
        }
    )*};
}

programs! {
    graph_memory_outside: "one stream", "an event between two streams", "event nodes inside both graphs";
    graph_auto_free: "round 6", "the last ones are freed by hand";
    across_streams: "refused", "help: make stream", "freed on the other stream";
    mixed_frees: "allocated at once, freed in stream order", "allocated in stream order, freed at once";
    another_context: "freed by another handle on another thread", "belongs to another device";
    wrong_pointer: "64 B inside", "freed on stream", "no device of this process has that address", "nothing is lost";
    two_devices: "grants it no access", "ordered by an event", "work of it may still use the memory", "nothing is left";
    graph_nodes: "missing", "built by hand";
    checks: "report:", "off:";
    handles: "stale", "null", "foreign";
    threads: "threads done";
}

macro_rules! programs_on_cuda {
    ($($name:ident)*) => {
        mod on_cuda {
            $(#[test]
            fn $name() {
                super::run_on_cuda(stringify!($name));
            })*
        }
    };
}

programs_on_cuda! {
    graph_memory_outside graph_auto_free across_streams mixed_frees another_context wrong_pointer checks handles threads
    trace
}

/// The cases of `trusted.c`: work, streams and captures that only the program knows.
macro_rules! trusted {
    ($($case:ident)*) => {
        mod trusted {
            $(#[test]
            fn $case() {
                super::trusted_case(stringify!($case));
            })*
        }
    };
}

trusted! {
    recorded_user_of_a_graphs_memory recorded_user_of_memory_freed_in_a_recording default_streams_of_two_threads
    replay_on_an_unknown_stream captures_that_are_not_announced freed_on_another_stream current_context
    sizes_near_the_maximum pool_released_before_its_end two_captures_at_once
}

fn trusted_case(case: &str) {
    run_command_on_cuda(Command::new(compiled("trusted")).arg(case));
}

/// A GPU has more memory than that.
#[test]
fn idle_memory_for_a_capture() {
    let mut command = Command::new(compiled("trusted"));
    run_command_on_cuda(command.arg("idle_memory_for_a_capture").env("FAKECUDA_BYTES", (96_u64 << 20).to_string()));
}

fn run_on_cuda(name: &str) {
    run_command_on_cuda(&mut Command::new(compiled(name)));
}

fn run_command_on_cuda(command: &mut Command) {
    command.env("LD_LIBRARY_PATH", library_folder()).env("MILLPOND_EXAMPLE_DEVICE", "0").env_remove("MILLPOND_TRACE");
    match std::env::var("MILLPOND_TEST_DEVICE").unwrap_or_default().as_str() {
        "" | "fake" => command.env("MILLPOND_LIBCUDA", fakecuda::library()),
        "cuda" => &mut *command,
        other => return eprintln!("skipped: MILLPOND_TEST_DEVICE={other}"),
    };
    println!("{}", run(command, "the program"));
}
