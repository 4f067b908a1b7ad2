//! Programs of stream-ordered memory, served by Millpond's pool: `millpond run -- PROGRAM`.
//!
//! `fakecuda` has pools with statistics in steps of 2 MiB, keeps what it reserved, and reuses memory without order, so
//! the answers here are Millpond's. The programs are in `served.c`.

use std::ffi::OsStr;

use super::{kinds, millpond, run, serve, text};

/// The programs, linked with the library and by lookup.
const PROGRAMS: [&str; 2] = ["served", "served-looked-up"];

/// Asserts the output of a program in both ways, and the text of the report.
#[track_caller]
fn assert_served(program: &str, variables: &[(&str, &str)], expected: &[&str], report: &[&str]) {
    for way in PROGRAMS {
        let output = serve(&["--report"], way, program, variables);
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(out.lines().collect::<Vec<_>>(), expected, "{way} {program}: {said}");
        assert_eq!(output.status.code(), Some(0), "{way} {program}: {said}");
        for part in report {
            assert!(said.contains(part), "{way} {program}: no `{part}` in {said}");
        }
    }
}

#[test]
fn pools_are_served_with_their_settings() {
    let expected = [
        "follows events: 1",
        "threshold: 8 MiB",
        "allocated: 4096 KiB reserved, 4096 KiB used",
        "kept: 4096 KiB reserved, 0 KiB used",
        "trimmed: 0 KiB reserved, 0 KiB used",
        "high: 4096 KiB reserved, 4096 KiB used",
        "high again: 0 KiB reserved, 0 KiB used",
        "current: 2048 KiB reserved, 100 KiB used",
        "the default one is current: 1",
        "default: 2048 KiB reserved, 100 KiB used",
        "synchronised: 0 KiB reserved, 0 KiB used",
        "shareable, of the driver: 2048 KiB reserved, 2048 KiB used",
        "cuMemPoolDestroy(shared): 0",
        "cuMemPoolDestroy(first): 1",
        "cuMemAllocFromPoolAsync(&at, 5 * MIB, pool, s): 2",
        "cuMemAllocFromPoolAsync(&at, 3 * MIB, pool, s): 0",
        "cuMemPoolDestroy(pool): 0",
        "done",
    ];
    let report = ["1 allocation from pools that are not served came from CUDA", "device 0: 8.00 MiB reserved"];
    assert_served("pools", &[], &expected, &report);
}

#[test]
fn pools_for_decompression_are_served_where_no_device_decompresses() {
    let ours = "for decompression: 2048 KiB reserved, 100 KiB used";
    assert_served("decompression", &[], &[ours, "done"], &["1 allocation in"]);
    let drivers = "for decompression: 2048 KiB reserved, 2048 KiB used";
    let left = "1 allocation from pools that are not served came from CUDA";
    assert_served("decompression", &[("FAKECUDA_DECOMPRESSES", "1")], &[drivers, "done"], &[left]);
}

#[test]
fn pointers_are_answered_as_memory_of_a_pool() {
    let expected = [
        "cuMemGetAddressRange(&start, &bytes, at + 1000): 0",
        "its start 1, 100 KiB",
        "cuMemGetAddressRange(NULL, &bytes, at): 0",
        "cuPointerGetAttributes(6, which, places, at + 99): 0",
        "type 2, device 0, its start 1, 100 KiB, of the default pool 1",
        "cuPointerGetAttribute(&pool, 17, at): 0",
        "cuPointerGetAttribute(&number, 7, at): 0",
        "cuMemRetainAllocationHandle(&handle, (void *)at): 1",
        "cuIpcGetMemHandle(name, at): 1",
        "cuMemFreeAsync(at + 512, s): 1",
        "cuMemFree(at + 512): 1",
        "cuMemFree(at): 0",
        "cuMemFreeAsync(at, s): 1",
        "cuMemFree(at): 1",
        "cuPointerGetAttribute(&other, 7, again): 0",
        "of the default pool 1, another number 1",
        "cuMemAllocAsync(&at, 0, s) != 0 || at == 0: 0",
        "cuMemAllocAsync(NULL, 10, s): 1",
        "cuMemAllocAsync(&at, 10, (CUstream)0x1234560): 400",
        "cuMemFreeAsync(at, (CUstream)0x1234560): 400",
        "cuMemFreeAsync(at, s): 0",
        "done",
    ];
    assert_served("pointers", &[], &expected, &["3 frees"]);
}

#[test]
fn memory_serves_another_stream_only_after_its_last_use() {
    assert_served("apart", &[], &["wrong bytes: 0", "done"], &["2 allocations"]);
    let output = serve(&["--report", "--driver-pool"], PROGRAMS[0], "apart", &[]);
    let said = text(&output.stderr);
    assert!(said.contains("CUDA's pool: 2 allocations") && said.contains("device 0: 2.00 MiB reserved"), "{said}");
    assert!(text(&output.stdout).contains("wrong bytes: 65536"), "the driver of this test looks at no order");
}

#[test]
fn who_finds_no_memory_gets_what_is_idle() {
    let expected = [
        "8, then 2",
        "cuMemAllocAsync(&at, 24 * MIB, t): 0",
        "cuMemFreeAsync(at, t): 0",
        "kept: 1",
        "cuMemAlloc(&at, 30 * MIB): 0",
        "kept: 0",
        "cuMemAllocAsync(&at, 4 * MIB, s): 2",
        "done",
    ];
    assert_served("exhaust", &[("FAKECUDA_BYTES", "33554432")], &expected, &["32.00 MiB reserved"]);
}

#[test]
fn a_capture_that_finds_no_memory_goes_on() {
    let expected = ["cuMemAllocAsync(&at, 1ull << 40, s): 2", "cuStreamEndCapture(s, &graph): 0", "done"];
    assert_served("captured-exhaust", &[("FAKECUDA_BYTES", "33554432")], &expected, &[]);
}

#[test]
fn memory_of_captures_is_the_drivers() {
    let expected = [
        "before: 2048 KiB reserved, 4 KiB used",
        "in a capture: 2048 KiB reserved, 8 KiB used",
        "after: 0 KiB reserved, 0 KiB used",
        "done",
    ];
    assert_served("captured", &[], &expected, &["1 allocation in captures came from CUDA", "2 allocations in"]);
}

#[test]
fn a_stream_that_takes_part_in_a_capture_may_go_before_its_end() {
    let expected =
        ["cuStreamDestroy(side): 0", "cuStreamEndCapture(s, &graph): 0", "after: 0 KiB reserved, 0 KiB used", "done"];
    assert_served("side-captured", &[("FAKECUDA_FORKS", "1")], &expected, &["2 allocations in"]);
}

#[test]
fn streams_contexts_and_threads_end_in_any_order() {
    let freed = "freed by another thread: 0 KiB reserved, 0 KiB used";
    assert_served("other-thread", &[], &[freed, "done"], &["64 allocations", "64 frees"]);
    let exit = "at exit: 2048 KiB reserved, 4 KiB used";
    assert_served("ends", &[], &["done", exit], &["41 allocations", "40 frees"]);
    let after = "after the contexts: 0 KiB reserved, 0 KiB used";
    let defaults = "after the default streams: 0 KiB reserved, 0 KiB used";
    let passed = "1 allocation from pools that are not served came from CUDA";
    assert_served("other-default", &[], &[defaults, "done"], &["1 allocation in", passed]);
    let captures = "after the captures: 0 KiB reserved, 0 KiB used";
    assert_served("captures-beside", &[], &[captures, "done"], &["Millpond's pool"]);
    let given_up = "after the capture: 0 KiB reserved, 0 KiB used";
    assert_served("given-up", &[], &[given_up, "done"], &["2 allocations", "2 frees"]);
    assert_served("context-ends", &[], &[after, "done"], &["6 allocations"]);
    let after = "after the streams: 0 KiB reserved, 0 KiB used";
    assert_served("short-streams", &[], &[after, "done"], &["300 allocations", "300 frees"]);
}

#[test]
fn devices_use_each_others_memory() {
    let expected =
        ["access: 3", "cuMemFreeAsync(at, far): 0", "freed by the other device: 0 KiB reserved, 0 KiB used", "done"];
    let left = "1 allocation from pools that are not served came from CUDA";
    assert_served("two-devices", &[], &expected, &["device 0: 2.00 MiB", "device 1: 2.00 MiB", left]);
}

#[test]
fn a_forked_process_gets_the_drivers_answers() {
    // That driver lets the child allocate, and does not know the parent's pointer.
    let expected = ["the child: 0 1", "it ended with 5", "cuMemFreeAsync(at, s): 0", "done"];
    assert_served("fork-after", &[], &expected, &["1 allocation in", "1 free in"]);
}

#[test]
fn a_library_that_is_closed_stays() {
    let output = serve(&["--report"], PROGRAMS[1], "closes", &[]);
    assert_eq!(text(&output.stdout), "closed: 2048 KiB reserved, 0 KiB used\ndone\n", "{}", text(&output.stderr));
}

#[test]
fn all_programs_run_as_without() {
    for way in ["linked", "looked-up"] {
        for program in
            ["1", "2", "3", "4", "5", "6", "7", "8", "9", "right-capture", "default-streams", "threads", "forks"]
        {
            let output = run(&["run"], way, &[program]);
            let status = if program == "forks" { 3 } else { 0 };
            assert_eq!(output.status.code(), Some(status), "{way} {program}: {}", text(&output.stderr));
            assert_eq!(text(&output.stderr), "", "{way} {program}: nothing is said where nothing is asked for");
            let right = text(&output.stdout).matches("right: 1").count();
            assert_eq!(right, usize::from(program == "9") + 2 * usize::from(program == "forks"), "{way} {program}");
        }
        let output = run(&["run"], way, &["2", "42"]);
        assert_eq!(output.status.code(), Some(42), "{}", text(&output.stderr));
    }
}

#[test]
fn what_is_served_can_be_checked() {
    for way in ["linked", "looked-up"] {
        for (program, found) in [("1", "use-before-alloc"), ("2", "free-before-use"), ("8", "use-after-free")] {
            let output = run(&["run", "--check", "--report"], way, &[program]);
            let said = text(&output.stderr);
            assert_eq!((kinds(&output), output.status.code()), (vec![found.to_owned()], Some(1)), "{said}");
            assert!(said.contains("Millpond's pool: 1 allocation in"), "{said}");
            assert!(!said.contains("not understood"), "calls of Millpond's own are not the program's: {said}");
        }
        let output = run(&["run", "--check"], way, &["9"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(0) && said.contains("no violation in 1 process"), "{said}");
        assert!(said.contains("23 calls understood; 2 launches, 2 with an address"), "as under `check`: {said}");
    }
}

#[test]
fn a_device_that_cannot_be_served_is_the_drivers() {
    // No addresses are left for a pool; that is reported once.
    let output = serve(&["--report"], PROGRAMS[0], "apart", &[("FAKECUDA_FAIL", "cuMemAddressReserve@0=999")]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("memory of device 0 is left to the driver's pool: ").count(), 1, "{said}");
    assert!(said.contains("2 allocations from pools that are not served came from CUDA"), "{said}");
}

#[test]
fn what_cannot_be_run_is_refused_with_a_reason() {
    let output = run(&["run"], "static", &["none"]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("statically"));
    let words = ["run", "--driver-pool", "--", "true"].map(OsStr::new);
    assert!(text(&millpond(&words).stderr).contains("--report"), "there is nothing else to it");
    let output = run(&["run", "--report"], "linked", &["none"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(5) && said.contains("no figures"), "{said}");
}
