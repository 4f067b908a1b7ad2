//! Unchanged programs of the driver API, as real processes: recorded and checked, linked with the library and by
//! lookup.
//!
//! The programs are `program.c`, `graphs.c`, `peers.c`, `reused.c`, `unsafe.c`, `hostile.c`, `served.c`, `limit.c`
//! and `shake.c`; the C compiler makes them. `fakecuda` is their `libcuda.so.1`.

mod graphs;
mod hostile;
mod limit;
mod peers;
mod pytest;
mod python;
mod reports;
mod reused;
mod sarif;
mod served;
mod shake;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The folder of the programs and their library.
static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("any-program-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    fs::copy(fakecuda::library(), place.join("libcuda.so.1")).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/any_program/program.c");
    let folder = format!("-L{}", place.display());
    let runtime = source.with_file_name("runtime.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-o"]).arg(place.join("libcudart.so.13"));
    compiler.arg(runtime).args([&folder, "-l:libcuda.so.1"]);
    assert!(compiler.status().unwrap().success(), "the runtime is compiled");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(place.join("libnvidia-ml.so.1")).arg(source.with_file_name("nvml.c"));
    assert!(compiler.status().unwrap().success(), "NVML is compiled");
    let ways: [(&str, &[&str]); 21] = [
        ("by-runtime", &["-rdynamic", "-DBY_RUNTIME", &folder, "-l:libcudart.so.13", "-l:libcuda.so.1"]),
        ("linked", &["-rdynamic", &folder, "-l:libcuda.so.1"]),
        ("bare", &["-rdynamic", &folder, "-l:libcuda.so.1"]),
        ("looked-up", &["-rdynamic", "-DBY_LOOKUP"]),
        ("static", &["-static", "-DBY_LOOKUP", "-w"]),
        ("graphs", &["-rdynamic", &folder, "-l:libcuda.so.1"]),
        ("graphs-looked-up", &["-rdynamic", "-DBY_LOOKUP"]),
        ("reused", &["-rdynamic", &folder, "-l:libcuda.so.1"]),
        ("reused-looked-up", &["-rdynamic", "-DBY_LOOKUP"]),
        ("unsafe", &["-rdynamic", &folder, "-l:libcuda.so.1"]),
        ("unsafe-looked-up", &["-rdynamic", "-DBY_LOOKUP"]),
        ("hostile", &["-rdynamic", &folder, "-l:libcuda.so.1"]),
        ("hostile-looked-up", &["-rdynamic", "-DBY_LOOKUP"]),
        ("peers", &["-rdynamic", &folder, "-l:libcuda.so.1"]),
        ("peers-looked-up", &["-rdynamic", "-DBY_LOOKUP"]),
        ("served", &["-rdynamic", &folder, "-l:libcuda.so.1"]),
        ("served-looked-up", &["-rdynamic", "-DBY_LOOKUP"]),
        ("limit", &["-rdynamic", &folder, "-l:libcuda.so.1"]),
        ("limit-looked-up", &["-rdynamic", "-DBY_LOOKUP"]),
        ("shake", &["-rdynamic", &folder, "-l:libcuda.so.1"]),
        ("shake-looked-up", &["-rdynamic", "-DBY_LOOKUP"]),
    ];
    for (name, flags) in ways {
        let mut compiler = Command::new("cc");
        let debug = if name == "bare" { "-g0" } else { "-g" };
        let others = ["graphs", "hostile", "limit", "peers", "reused", "served", "shake", "unsafe"];
        let other = others.iter().find(|other| name.starts_with(**other));
        let source = other.map_or(source.clone(), |other| source.with_file_name(format!("{other}.c")));
        compiler.args([debug, "-o"]).arg(place.join(name)).arg(&source).args(flags).args(["-ldl", "-lpthread"]);
        assert!(compiler.status().unwrap().success(), "{name} is compiled");
    }
    place
});

const WAYS: [&str; 2] = ["linked", "looked-up"];

/// Makes the command, without its arguments.
fn command() -> Command {
    let library = std::env::current_exe().unwrap().with_file_name("libmillpond_cuda.so");
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command
        .env("LD_LIBRARY_PATH", &*PLACE)
        .env("MILLPOND_CUDA_LIBRARY", library)
        .env("FAKECUDA_FORKS", "1")
        // Otherwise a thread of the driver may map its heap where device memory was freed just before.
        .env("MALLOC_ARENA_MAX", "1")
        .env("FAKECUDA_REUSED_HANDLES", "1");
    command
}

/// Runs the command with arguments.
fn millpond(words: &[&OsStr]) -> Output {
    command().args(words).output().unwrap()
}

fn run(before: &[&str], way: &str, words: &[&str]) -> Output {
    let program = PLACE.join(way);
    let before = before.iter().map(OsStr::new).chain([OsStr::new("--"), program.as_os_str()]);
    millpond(&before.chain(words.iter().map(OsStr::new)).collect::<Vec<_>>())
}

/// Serves a program, with environment variables, on two devices whose driver has neither forks nor reused handles.
fn serve(before: &[&str], way: &str, program: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = command();
    command.env_remove("FAKECUDA_FORKS").env_remove("FAKECUDA_REUSED_HANDLES").env("FAKECUDA_DEVICES", "2");
    command.arg("run").args(before).arg("--").arg(PLACE.join(way)).arg(program);
    command.envs(variables.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the kinds that were reported as they happened.
fn kinds(output: &Output) -> Vec<String> {
    let text = text(&output.stderr);
    let said = text.lines().filter_map(|line| line.strip_prefix("millpond: error["));
    said.map(|line| line.split(']').next().unwrap().to_owned()).collect()
}

/// Returns the place of a mark in the programs.
fn place_of(mark: &str) -> String {
    let files = [
        ("program.c", include_str!("program.c")),
        ("graphs.c", include_str!("graphs.c")),
        ("hostile.c", include_str!("hostile.c")),
        ("peers.c", include_str!("peers.c")),
        ("reused.c", include_str!("reused.c")),
        ("unsafe.c", include_str!("unsafe.c")),
        ("helpers.h", include_str!("helpers.h")),
    ];
    let line = |text: &str| text.lines().position(|line| line.contains(mark));
    let mut found = files.iter().filter_map(|(name, text)| Some(format!("{name}:{}", line(text)? + 1)));
    found.next().unwrap_or_else(|| panic!("{mark} is in the programs"))
}

#[track_caller]
fn assert_found(program: &str, expected: &[&str], mark: &str) {
    for way in WAYS {
        let output = run(&["check"], way, &[program]);
        let said = text(&output.stderr);
        assert_eq!(kinds(&output), expected, "{way} {program}: {said}");
        assert_eq!(output.status.code(), Some(1), "{way} {program}: {said}");
        assert!(text(&output.stdout).ends_with("done\n"), "the program ran to its end");
        let place = place_of(mark);
        assert!(said.contains(&place), "{way} {program}: no {place} in {said}");
        assert!(said.contains(&format!("1 x {}", expected[0])), "the summary has it, too: {said}");
    }
}

#[test]
fn the_eight_mistakes_are_found() {
    assert_found("1", &["use-before-alloc"], "/* a launch */");
    assert_found("2", &["free-before-use"], "/* wrong 2 */");
    assert_found("3", &["free-before-alloc"], "/* wrong 3 */");
    assert_found("4", &["free-before-use"], "/* wrong 4 */");
    assert_found("5", &["use-before-alloc"], "/* a kernel node */");
    assert_found("6", &["use-before-alloc", "free-before-alloc"], "/* wrong 6 */");
    assert_found("7", &["auto-free-before-use"], "/* wrong 7 */");
    assert_found("8", &["use-after-free"], "/* a launch */");
    let said = text(&run(&["check"], "linked", &["8"]).stderr);
    assert!(said.contains("is in argument 1 (8 B) of touch_kernel, which may not use it"), "{said}");
}

#[test]
fn places_are_those_above_the_cuda_libraries() {
    let output = run(&["check"], "by-runtime", &["2"]);
    let said = text(&output.stderr);
    let (launch, free) = (place_of("/* a launch */"), place_of("/* wrong 2 */"));
    for place in [format!("{launch} (launch)"), format!("{free} (freed_while_used)")] {
        assert!(said.contains(&place), "no {place} in {said}");
    }
}

/// nvcc puts functions between the line of a launch and the runtime: those of a header, and those of the kernel's line.
#[test]
fn the_place_of_a_launch_is_its_line() {
    for (program, mark, function) in [
        ("syntax", "/* a launch by syntax */", "launched_by_syntax"),
        ("inlined", "/* an inlined launch */", "launched_inline"),
    ] {
        for way in ["by-runtime", "linked"] {
            let output = run(&["check"], way, &[program]);
            let said = text(&output.stderr);
            assert_eq!(kinds(&output), ["free-before-use"], "{said}");
            assert!(said.contains(&format!("{} ({function})", place_of(mark))), "{way} {program}: {said}");
        }
    }
}

#[test]
fn code_that_took_the_place_of_other_code_has_its_own_place() {
    let code = "int cuMemFreeAsync(unsigned long long, void *);\n\
                int plug(unsigned long long at, void *stream) { return cuMemFreeAsync(at, stream) + 0; }\n";
    for number in ["0", "1"] {
        let source = PLACE.join(format!("plugin-{number}.c"));
        fs::write(&source, code).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-g", "-O0", "-shared", "-fPIC", "-o"]).arg(source.with_extension("so")).arg(&source);
        assert!(compiler.status().unwrap().success());
    }
    let output = run(&["check"], "linked", &["plugins"]);
    let said = text(&output.stderr);
    assert_eq!(kinds(&output), ["free-before-alloc", "free-before-alloc"], "{said}");
    for file in ["(plugin-0.so)", "(plugin-1.so)"] {
        assert!(said.contains(file), "no {file} in {said}");
    }
    assert_eq!(said.matches("  2 x free-before-alloc").count(), 2, "each is counted by itself: {said}");
}

#[test]
fn further_mistakes_are_found() {
    assert_found("copies", &["free-before-use"], "/* wrong copy */");
    assert!(!text(&run(&["check"], "linked", &["2"]).stderr).contains("is in argument"), "nothing was freed before");
    assert_found("filled", &["use-after-free"], "/* a structure */");
    assert_found("double-free", &["double-free", "free-before-alloc"], "/* second */");
    assert_found("default-streams", &["free-before-alloc"], "/* wrong default */");
    assert_found("refused-free", &["free-before-alloc"], "/* after a refused one */");
    assert_found("side-captured", &["free-before-alloc"], "/* after a capture */");
    assert_found("used-asleep", &["use-after-free"], "/* asleep */");
    assert_found("mapped-range", &["free-before-use"], "/* the range is in use */");
    assert_found("wrong-capture", &["use-before-alloc"], "/* launched */");
}

#[test]
fn what_a_loop_does_wrong_is_said_once_and_counted() {
    let output = run(&["check"], "linked", &["many"]);
    let said = text(&output.stderr);
    assert_eq!((kinds(&output), output.status.code()), (vec!["free-before-alloc".to_owned()], Some(1)), "{said}");
    assert!(said.contains("1000 violations at 1 place in 1 process") && said.contains("1000 x free"), "{said}");
}

#[test]
fn both_sides_have_their_whole_stacks_where_they_are_wanted() {
    let output = run(&["check", "--deep"], "by-runtime", &["2"]);
    let said = text(&output.stderr);
    assert_eq!(kinds(&output), ["free-before-use"], "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let side = |verb: &str| lines.iter().position(|line| line.trim_start().starts_with(verb)).expect(verb);
    let frames = |from: usize| lines[from + 1..].iter().take_while(|line| line.starts_with("    at ")).copied();
    let (launch, free) = (place_of("/* a launch */"), place_of("/* wrong 2 */"));
    let used: Vec<&str> = frames(side("read")).collect();
    let freed: Vec<&str> = frames(side("freed")).collect();
    let has = |frames: &[&str], name: &str| frames.iter().any(|frame| frame.contains(name));
    assert!(has(&used, "cudaLaunch") && has(&freed, "cudaFree2"), "CUDA's libraries, too: {said}");
    let order = [&format!("{launch} (launch)"), "(freed_while_used)", "(main)"];
    let places: Vec<_> = order.iter().map(|place| used.iter().position(|frame| frame.contains(*place))).collect();
    assert!(places.is_sorted() && places.iter().all(Option::is_some), "from the innermost on: {said}");
    assert!(freed.iter().any(|frame| frame.contains(&format!("{free} (freed_while_used)"))), "{said}");
    let output = run(&["check"], "by-runtime", &["2"]);
    assert!(!text(&output.stderr).contains("    at "), "{}", text(&output.stderr));
    let refused = millpond(&["check", "--deep", "a.trace"].map(OsStr::new));
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_place_without_debug_data_is_named_without_a_line() {
    let output = run(&["check"], "bare", &["2"]);
    let said = text(&output.stderr);
    assert_eq!(kinds(&output), ["free-before-use"], "{said}");
    assert!(said.contains("(bare)") && !said.contains("(bare):"), "{said}");
}

#[test]
fn right_programs_are_found_right() {
    for way in WAYS {
        for program in [
            "9",
            "right-graph",
            "right-capture",
            "relaxed-watchdog",
            "watchdog-elsewhere",
            "threads",
            "joined",
            "filled-in-part",
            "host-again",
            "awake",
            "mapped-apart",
            "host-told",
        ] {
            let output = run(&["check"], way, &[program]);
            let said = text(&output.stderr);
            assert_eq!((kinds(&output), output.status.code()), (vec![], Some(0)), "{way} {program}: {said}");
            assert!(said.contains("no violation in 1 process"), "{said}");
        }
    }
}

#[test]
fn what_a_capture_forbids_to_other_threads_is_found() {
    assert_found("watchdog", &["capture-unsupported"], "/* polled beside a capture */");
}

#[test]
fn a_host_function_tells_of_what_came_before_it_only() {
    assert_found("host-not-told", &["free-before-use"], "/* wrong: not told */");
}

#[test]
fn the_programs_own_status_and_output_are_kept() {
    for way in WAYS {
        let output = run(&["check"], way, &["2", "42"]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(42), "done\n".into()));
        let output = run(&["check"], way, &["none"]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(5), "no CUDA\n".into()));
        assert!(text(&output.stderr).contains("made no CUDA call"));
    }
}

/// Without this, `true` would pass like a right program.
#[test]
fn a_program_without_calls_is_refused_where_calls_are_required() {
    let check = |words: &[&str]| millpond(&words.iter().map(OsStr::new).collect::<Vec<_>>());
    assert_eq!(check(&["check", "--", "true"]).status.code(), Some(0));
    let output = check(&["check", "--require-calls", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no CUDA call was seen"), "{}", text(&output.stderr));
    assert_eq!(check(&["check", "--require-calls", "--", "false"]).status.code(), Some(1), "the program's own");
    assert_eq!(run(&["check", "--require-calls"], "linked", &["9"]).status.code(), Some(0));
}

#[test]
fn a_trace_is_kept_until_another_one_takes_its_place() {
    let trace = PLACE.join("keep.trace");
    fs::write(&trace, "what was there").unwrap();
    let output = run(&["record", "-o", trace.to_str().unwrap()], "linked", &["none"]);
    assert_eq!((output.status.code(), fs::read_to_string(&trace).unwrap()), (Some(5), "what was there".into()));
    assert!(text(&output.stderr).contains("keep.trace is as it was"), "{}", text(&output.stderr));
    let output = run(&["record", "-o", trace.to_str().unwrap()], "linked", &["9"]);
    assert_eq!((output.status.code(), check(&trace).1), (Some(0), Some(0)), "{}", text(&output.stderr));
    let beside = fs::read_dir(&*PLACE).unwrap().flatten();
    let beside = beside.filter(|it| it.file_name().to_string_lossy().starts_with("keep.trace")).count();
    assert_eq!(beside, 1, "nothing is left beside it");
}

#[test]
fn launches_are_covered() {
    let output = run(&["check"], "linked", &["9"]);
    let said = text(&output.stderr);
    assert!(said.contains("2 launches, 2 with an address of known memory, 0 without"), "{said}");
}

#[test]
fn calls_that_are_not_understood_are_passed_on_and_counted() {
    let output = run(&["check"], "looked-up", &["unknown"]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "done\n".into()), "{said}");
    assert!(said.contains("not understood, 3 times: cuCtxRecordEvent"), "{said}");
}

#[test]
fn races_are_found_where_they_are_asked_for() {
    let output = run(&["check", "--races"], "linked", &["race"]);
    assert_eq!((kinds(&output), output.status.code()), (vec!["race".to_owned()], Some(1)));
    let output = run(&["check"], "linked", &["race"]);
    assert_eq!((kinds(&output), output.status.code()), (vec![], Some(0)));
}

/// Records a program. Returns the name of the trace, and the command's output.
fn record(way: &str, program: &str) -> (PathBuf, Output) {
    // Tests run at the same time, and the command removes an existing file.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let trace = PLACE.join(format!("{way}-{program}-{}.trace", NEXT.fetch_add(1, Ordering::Relaxed)));
    let output = run(&["record", "-o", trace.to_str().unwrap()], way, &[program]);
    (trace, output)
}

fn check(trace: &Path) -> (String, Option<i32>) {
    let words = ["check", "--no-leaks", "--no-advice"].map(OsStr::new);
    let output = millpond(&words.into_iter().chain([trace.as_os_str()]).collect::<Vec<_>>());
    (text(&output.stdout) + &text(&output.stderr), output.status.code())
}

#[test]
fn a_trace_has_the_same_verdict() {
    for way in WAYS {
        let wrong = ["1", "2", "3", "4", "5", "6", "7", "8"].map(|program| (program, Some(1)));
        for (program, status) in wrong.into_iter().chain([("9", Some(0)), ("right-graph", Some(0)), ("awake", Some(0))])
        {
            let (trace, output) = record(way, program);
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            assert!(text(&output.stderr).contains(&trace.display().to_string()));
            let (said, found) = check(&trace);
            assert_eq!(found, status, "{way} {program}: {said}");
            assert!(!said.contains("was stopped"), "the trace is whole: {said}");
        }
    }
}

#[test]
fn a_trace_can_be_served_again() {
    let replay = |program: &str| {
        let (trace, _) = record("linked", program);
        let output = millpond(&["replay", "--json", trace.to_str().unwrap()].map(OsStr::new));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).replace([' ', '\n'], "")
    };
    // Four threads of 200 allocations of 4 KiB each.
    let said = replay("threads");
    assert!(said.contains("\"allocations\":800") && said.contains("operationtrace"), "{said}");
    // One in stream order, two immediate. The one of the host is left out.
    let said = replay("9");
    assert!(said.contains("\"allocations\":3") && said.contains("\"other_memory\":1"), "{said}");
    // One before the capture, and one immediate during it. The one inside it is the graph's.
    let said = replay("right-capture");
    assert!(said.contains("\"allocations\":2") && said.contains("\"other_memory\":1"), "{said}");
    // For each device, one in stream order and one immediate.
    let said = replay("two-devices");
    assert_eq!(said.matches("\"allocations\":2").count(), 2, "{said}");
    let (trace, _) = record("linked", "right-graph");
    let output = millpond(&["replay", trace.to_str().unwrap()].map(OsStr::new));
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("no allocation is in the trace"));
}

#[test]
fn a_trace_can_be_drawn() {
    let (trace, _) = record("linked", "9");
    let page = PLACE.join("page.html");
    let output = millpond(&[OsStr::new("view"), trace.as_os_str(), OsStr::new("-o"), page.as_os_str()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(fs::metadata(page).unwrap().len() > 10_000);
    let bytes = fs::read(trace).unwrap();
    assert!(bytes.windows(12).any(|part| part == b"touch_kernel"), "kernels have their names");
}

#[test]
fn a_crash_is_passed_on_and_the_trace_is_there() {
    for way in WAYS {
        let (trace, output) = record(way, "crash");
        assert_eq!(output.status.signal(), Some(11), "{}", text(&output.stderr));
        let (said, status) = check(&trace);
        assert!(status == Some(2) && said.contains("was stopped"), "{said}");
        assert!(said.contains("6 operations, no violations"), "all that it had done is there: {said}");
    }
}

#[test]
fn a_signal_ends_a_program_whose_handler_calls_the_one_before() {
    for (name, signal) in [("terminated", 15), ("faulting", 11)] {
        for way in WAYS {
            let (trace, output) = record(way, name);
            assert_eq!(output.status.signal(), Some(signal), "{name}: {}", text(&output.stderr));
            let (said, status) = check(&trace);
            assert!(status == Some(2) && said.contains("was stopped"), "{said}");
        }
    }
}

#[test]
fn each_process_has_a_trace() {
    for way in WAYS {
        let (trace, output) = record(way, "forks");
        assert_eq!((output.status.code(), text(&output.stdout).matches("right: 1").count()), (Some(3), 2));
        let said = text(&output.stderr);
        let traces: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("millpond: trace ")).collect();
        assert_eq!(traces.len(), 2, "{said}");
        assert!(traces.contains(&trace.to_str().unwrap()));
        for trace in traces {
            let (said, status) = check(Path::new(trace));
            assert!(status == Some(0) && !said.contains("was stopped"), "{said}");
        }
    }
}

#[test]
fn a_fork_without_cuda_changes_nothing() {
    let (trace, output) = record("linked", "fork-after");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(check(&trace).1, Some(0));
}

#[test]
fn what_cannot_be_looked_at_is_refused_with_a_reason() {
    let refused = |output: Output, reason: &str| {
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(reason), "{said}");
        assert_eq!(text(&output.stdout), "");
    };
    refused(run(&["check"], "static", &["none"]), "statically");
    refused(run(&["record", "-o", "/dev/null"], "linked", &["none"]), "a device: a trace is written to a file");
    let pipe = PLACE.join("pipe");
    let _ = fs::remove_file(&pipe);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // It has no reader, so opening it would block for ever.
    refused(run(&["record", "-o", &pipe.display().to_string()], "linked", &["none"]), "a pipe: a trace is written");
    assert!(pipe.exists());
    refused(run(&["record", "-o", &PLACE.display().to_string()], "linked", &["none"]), "a directory: a trace");
    refused(run(&["check"], "libcuda.so.missing", &[]), "cannot be run");
    // The program still exists afterwards, and so does a file that is named to it.
    for (program, word) in [("kept", "none"), ("linked", "kept")] {
        fs::copy(PLACE.join("linked"), PLACE.join("kept")).unwrap();
        let (kept, word) = (PLACE.join("kept"), PLACE.join(word));
        refused(
            run(&["record", "-o", kept.to_str().unwrap()], program, &[word.to_str().unwrap()]),
            "it is the program, or one",
        );
        assert!(kept.exists());
    }
    // The loader would continue without a file that is not a library, or is another one.
    for library in ["libcuda.so.1", "none"] {
        fs::write(PLACE.join("none"), "no library").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
        command.args(["check", "--", "true"]).env("MILLPOND_CUDA_LIBRARY", PLACE.join(library));
        refused(command.output().unwrap(), "which is not libmillpond_cuda.so");
    }
    let words = ["check", "--", "no-such-program-is-here"].map(OsStr::new);
    refused(millpond(&words), "PATH");
}

#[test]
fn a_script_is_followed() {
    let script = PLACE.join("script");
    fs::write(&script, format!("#!/bin/sh\n{0} 2\n{0} 9\n", PLACE.join("linked").display())).unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = run(&["check"], "script", &[]);
    assert_eq!((kinds(&output), output.status.code()), (vec!["free-before-use".to_owned()], Some(1)));
    assert!(text(&output.stderr).contains("in 2 process"), "{}", text(&output.stderr));
}
