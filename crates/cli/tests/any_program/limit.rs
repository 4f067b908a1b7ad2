//! Programs under a limit of device memory: `millpond run --limit`.
//!
//! The programs are in `limit.c`. They print what `cuMemGetInfo` answers. Each row is something that a limit gets wrong
//! easily; the rows of HAMi-core's reports name them.

use std::process::Output;

use super::{PLACE, serve, text};

/// The programs, linked with the library and by lookup.
const PROGRAMS: [&str; 2] = ["limit", "limit-looked-up"];

/// Asserts the output of a program in both ways.
#[track_caller]
fn assert_output(before: &[&str], program: &str, variables: &[(&str, &str)], expected: &[&str]) -> String {
    let mut said = String::new();
    for way in PROGRAMS {
        let output = serve(before, way, program, variables);
        said = text(&output.stderr);
        assert_eq!(text(&output.stdout).lines().collect::<Vec<_>>(), expected, "{way} {program}: {said}");
        assert_eq!(output.status.code(), Some(0), "{way} {program}: {said}");
    }
    said
}

const LIMIT: [&str; 2] = ["--limit", "64MiB"];
/// The driver's pools serve the program.
const BY_DRIVER: [&str; 3] = ["--limit", "64MiB", "--driver-pool"];

#[test]
fn what_a_program_asks_is_within_the_limit() {
    let asked = ["cuDeviceTotalMem(&bytes, 0): 0", "64 in all"];
    // HAMi-core#333: a null place.
    let null = ["cuMemGetInfo(NULL, &bytes): 0", "cuMemGetInfo(&bytes, NULL): 0", "done"];
    let expected = [&["at first: 64.00 of 64.00"], &asked[..], &null].concat();
    assert_output(&LIMIT, "info", &[], &expected);
    // A limit above the device's memory changes nothing.
    let real = [("FAKECUDA_BYTES", "67108864")];
    assert_output(&["--limit", "8GiB"], "info", &real, &expected);
    assert_output(&["--limit", "50%"], "info", &[("FAKECUDA_BYTES", "134217728")], &expected);
    assert_output(&["--limit", "1GiB,0:64m"], "info", &[], &expected);
    assert_output(&[], "info", &real, &expected);
    // Another device's limit is not this one's.
    assert_output(&["--limit", "1:32MiB"], "info", &real, &expected);
}

#[test]
fn nvml_answers_within_the_limit() {
    let expected = [
        "device 0: 64 of 64 free, 0 used",
        "device 1: 16 of 16 free, 0 used",
        "device 0: 64 of 64 free, 0 used, version 2000028",
        "device 0: 40 of 64 free, 24 used",
        "device 1: 16 of 16 free, 0 used",
        "device 0: 40 of 64 free, 24 used, version 2000028",
        "ask(NULL, memory): 2",
        "done",
    ];
    // Before CUDA is used, the number of a device is not known: only the amount for all devices counts.
    assert_output(
        &["--limit", "16MiB,0:64MiB"],
        "nvml",
        &[],
        &expected.map(|line| match line {
            "device 0: 64 of 64 free, 0 used" => "device 0: 16 of 16 free, 0 used",
            "device 0: 64 of 64 free, 0 used, version 2000028" => "device 0: 16 of 16 free, 0 used, version 2000028",
            other => other,
        }),
    );
    let of_all =
        expected.map(|line| if line.starts_with("device 1") { "device 1: 64 of 64 free, 0 used" } else { line });
    assert_output(&LIMIT, "nvml", &[], &of_all);
    let real = serve(&[], PROGRAMS[0], "nvml", &[]);
    assert!(text(&real.stdout).starts_with("device 0: 80896 of 81920 free, 1024 used\n"), "{}", text(&real.stdout));
}

#[test]
fn each_kind_of_memory_counts_until_it_ends() {
    let expected = [
        "cuMemAlloc: 56.00 of 64.00",
        "cuMemAllocPitch: 56.00 of 64.00",
        "cuMemAllocManaged: 56.00 of 64.00",
        "cuArrayCreate: 56.00 of 64.00",
        "cuArray3DCreate: 56.00 of 64.00",
        "cuMipmappedArrayCreate: 55.00 of 64.00",
        "cuMemAllocAsync: 56.00 of 64.00",
        "at the end: 64.00 of 64.00",
        "done",
    ];
    assert_output(&LIMIT, "kinds", &[], &expected);
}

#[test]
fn physical_memory_counts_until_it_is_released_and_unmapped() {
    let expected = [
        "mapped: 56.00 of 64.00",
        "released, and still mapped: 56.00 of 64.00",
        "unmapped: 64.00 of 64.00",
        "made and released: 64.00 of 64.00",
        "done",
    ];
    assert_output(&LIMIT, "virtual", &[], &expected);
}

/// HAMi-core#187: the place of memory that is not a device's was taken for a device; #172: no current context.
#[test]
fn memory_of_the_host_does_not_count() {
    let expected = [
        "cuMemCreate(&handle, 128 * MIB, &props, 0): 0",
        "of the host: 64.00 of 64.00",
        "cuMemRelease(handle): 0",
        "cuMemCreate(&handle, 8 * MIB, &props, 0): 201",
        "without a context: 64.00 of 64.00",
        "done",
    ];
    assert_output(&LIMIT, "host", &[], &expected);
}

/// HAMi-core#55: the code of a refused allocation is CUDA's.
#[test]
fn an_allocation_that_would_pass_the_limit_gets_the_code_for_no_memory() {
    let expected = [
        "cuMemAlloc(&at, 17 * MIB): 2",
        "cuMemAllocManaged(&at, 17 * MIB, 1): 2",
        "cuMemAllocPitch(&at, &pitch, 1 * MIB, 17, 4): 2",
        "cuMemCreate(&handle, 18 * MIB, &props, 0): 2",
        "cuArrayCreate(&array, &flat): 2",
        "cuMemAllocAsync(&at, 17 * MIB, s): 2",
        "cuMemAlloc(&at, 1ull << 60): 2",
        "not written: 1",
        "after all that: 16.00 of 64.00",
        "cuMemAlloc(&at, 16 * MIB): 0",
        "cuMemAlloc(&at, 1): 2",
        "cuMemFree(first): 0",
        "cuMemAllocAsync(&at, 48 * MIB, s): 0",
        "done",
    ];
    let said = assert_output(&LIMIT, "refused", &[], &expected);
    let first = "millpond: device 0: an allocation is refused: 17.00 MiB more would pass the limit of 64.00 MiB; \
                 48.00 MiB are used: 48.00 MiB by cuMemAlloc\n";
    assert_eq!(said, first, "once");
    let said = assert_output(&["--limit", "64MiB", "--report"], "refused", &[], &expected);
    for line in ["device 0: 64.00 MiB of 64.00 MiB used at most", "limit: 8 allocations refused"] {
        assert!(said.contains(line), "no `{line}` in {said}");
    }
    let said = assert_output(&["--limit", "64MiB", "--check"], "refused", &[], &expected);
    let line = include_str!("limit.c").lines().position(|line| line.contains("/* made here */")).unwrap() + 1;
    let lines = "48.00 MiB by cuMemAlloc; most of them: 48.00 MiB by ";
    let place = format!("limit.c:{line} (alloc)\n");
    assert!(said.contains(lines) && said.contains(&place), "no {place} in {said}");
}

/// HAMi-core#93 and #217: memory of pools was not counted, and its free was refused. #96: a device's figure only grew.
#[test]
fn memory_of_pools_counts_whoever_serves_it() {
    let expected = |at_end: &'static str| {
        [
            "from a pool with handles: 56.00 of 64.00",
            "from a pool: 48.00 of 64.00",
            "from the current pool: 40.00 of 64.00",
            "cuMemAllocFromPoolAsync(&at, 48 * MIB, shared, s): 2",
            "cuMemAllocFromPoolAsync(&at, 48 * MIB, own, s): 2",
            "cuMemAllocAsync(&at, 48 * MIB, s): 2",
            "cuMemFreeAsync(a, s): 0",
            "cuMemFreeAsync(b, s): 0",
            "cuMemFree(c): 0",
            "cuCtxSynchronize(): 0",
            "cuMemPoolTrimTo(shared, 0): 0",
            "cuMemPoolDestroy(shared): 0",
            "cuMemPoolDestroy(own): 0",
            at_end,
            "done",
        ]
    };
    let said = assert_output(&LIMIT, "pools", &[], &expected("at the end: 64.00 of 64.00"));
    assert!(said.contains("24.00 MiB are used: 16.00 MiB by Millpond's pool, 8.00 MiB by CUDA's pools\n"), "{said}");
    // The default pool of that driver keeps what it has.
    assert_output(&BY_DRIVER, "pools", &[], &expected("at the end: 56.00 of 64.00"));
}

#[test]
fn what_is_idle_is_given_back_before_an_allocation_is_refused() {
    let round = ["kept: 24.00 of 64.00", "cuMemAlloc(&at, 60 * MIB): 0", "taken: 4.00 of 64.00"];
    let expected = [&round[..], &round, &round, &["at the end: 64.00 of 64.00", "done"]].concat();
    let said = assert_output(&LIMIT, "idle", &[], &expected);
    assert_eq!(said, "", "nothing was refused to the program");
    assert_output(&BY_DRIVER, "idle", &[], &expected);
}

#[test]
fn a_pool_serves_from_what_is_idle_and_takes_no_more_than_the_limit() {
    let expected = |idle| {
        [
            "cuMemAllocAsync(&at, 40 * MIB, s): 0",
            "cuMemFreeAsync(at, s): 0",
            "cuMemAllocAsync(&at, 40 * MIB, s): 0",
            "cuMemFreeAsync(at, s): 0",
            idle,
            "cuMemAlloc(&at, 60 * MIB): 0",
            "cuMemFree(at): 0",
            "cuMemAllocAsync(&at, 62 * MIB + 1, s): 2",
            "cuMemAllocAsync(&at, 62 * MIB, s): 0",
            "full: 1.00 of 64.00",
            "done",
        ]
    };
    assert_output(&BY_DRIVER, "reused", &[], &expected("idle: 24.00 of 64.00"));
    assert_output(&LIMIT, "reused", &[], &expected("idle: 24.00 of 64.00"));
}

#[test]
fn a_pool_serves_from_what_is_idle_beyond_the_limit_too() {
    let calls = ["over: 0.00 of 64.00", "cuMemAllocAsync(&at, 40 * MIB, s): 0", "cuMemAlloc(&at, 1): 2", "done"];
    assert_output(&BY_DRIVER, "over", &[("FAKENVML_CONTEXT_MIB", "10")], &calls);
}

#[test]
fn a_pool_gets_the_last_free_bytes() {
    let expected = [
        "cuMemAllocAsync(&at, i == 0 ? 2 * MIB : 100 * KIB, s): 0",
        "cuMemAllocAsync(&at, i == 0 ? 2 * MIB : 100 * KIB, s): 0",
        "cuMemAllocAsync(&at, 2 * MIB + 1, s): 2",
        "done",
    ];
    assert_output(&LIMIT, "narrow", &[], &expected);
}

/// HAMi#1181 and HAMi-core#200: after a while the figures were absurd.
#[test]
fn figures_do_not_drift() {
    let expected = ["other codes: 0", "at the end: 64.00 of 64.00", "done"];
    assert_output(&LIMIT, "loop", &[], &expected);
    // The default pool of that driver keeps the most that it had.
    assert_output(&BY_DRIVER, "loop", &[], &[expected[0], "at the end: 52.00 of 64.00", "done"]);
    let expected = ["after the threads: 64.00 of 64.00", "done"];
    assert_output(&LIMIT, "threads", &[], &expected);
}

/// HAMi-core#306: a call that failed left its count. HAMi#1181: a free of what was not counted.
#[test]
fn calls_that_fail_count_nothing() {
    let failing = "cuMemAlloc@1=999,cuMemCreate@0=999,cuMemFree@0=999";
    let failures = ["cuMemAlloc(&at, 8 * MIB): 999", "cuMemCreate(&handle, 8 * MIB, &props, 0): 999"];
    let expected = [
        "cuMemAllocAsync(&at, 8 * MIB, s): 0",
        "after failures: 48.00 of 64.00",
        "cuMemFree(one): 999",
        "after a free that failed: 48.00 of 64.00",
        "cuMemFree(one): 0",
        "after all frees: 56.00 of 64.00",
        "done",
    ];
    assert_output(&LIMIT, "failed", &[("FAKECUDA_FAIL", failing)], &[&failures[..], &expected].concat());
    let failing = &format!("{failing},cuMemAllocAsync@0=999");
    let expected = [
        "cuMemAllocAsync(&at, 8 * MIB, s): 999",
        "after failures: 56.00 of 64.00",
        "cuMemFree(one): 999",
        "after a free that failed: 56.00 of 64.00",
        "cuMemFree(one): 0",
        "after all frees: 64.00 of 64.00",
        "done",
    ];
    assert_output(&BY_DRIVER, "failed", &[("FAKECUDA_FAIL", failing)], &[&failures[..], &expected].concat());
}

/// HAMi-core#310: the counter of the current device was lowered.
#[test]
fn memory_counts_on_its_own_device() {
    let expected = [
        "device 1: 16.00 of 32.00",
        "device 0: 64.00 of 64.00",
        "device 0, after the frees: 64.00 of 64.00",
        "device 1, after the frees: 32.00 of 32.00",
        "device 0, with memory of device 1's pool: 64.00 of 64.00",
        "device 1: 24.00 of 32.00",
        "cuMemAlloc(&a, 40 * MIB): 2",
        "cuMemAlloc(&a, 40 * MIB): 0",
        "done",
    ];
    assert_output(&["--limit", "0:64MiB,1:32MiB"], "devices", &[], &expected);
}

#[test]
fn memory_ends_with_its_context() {
    let expected = [
        "in a context: 56.00 of 64.00",
        "after it: 64.00 of 64.00",
        "after a reset: 64.00 of 64.00",
        "after the last holder: 64.00 of 64.00",
        "done",
    ];
    assert_output(&LIMIT, "contexts", &[], &expected);
}

#[test]
fn graphs_and_modules_count() {
    let expected = [
        "a node: 56.00 of 64.00",
        "cuGraphAddMemAllocNode(&node, graph, NULL, 0, &many): 2",
        "cuMemAllocAsync(&at, 80 * MIB, s): 2",
        "a captured node: 48.00 of 64.00",
        "launched: 48.00 of 64.00",
        "done",
    ];
    assert_output(&LIMIT, "graphs", &[], &expected);
    let expected = ["loaded: 60.00 of 64.00", "another: 56.00 of 64.00", "unloaded: 60.00 of 64.00", "done"];
    assert_output(&LIMIT, "modules", &[("FAKECUDA_MODULE_BYTES", "4194304")], &expected);
}

#[test]
fn contexts_and_kernels_count_where_nvml_knows_the_process() {
    let expected = [
        "at first: 54.00 of 64.00",
        "cuMemAlloc(&at, 55 * MIB): 2",
        "cuMemAlloc(&at, 54 * MIB): 0",
        "full: 0.00 of 64.00",
        "in the child: 0.00 of 64.00",
        "cuMemAlloc(&at, 1): 2",
        "freed: 54.00 of 64.00",
        "loaded: 52.00 of 64.00",
        "unloaded: 54.00 of 64.00",
        "reset: 64.00 of 64.00",
        "done",
    ];
    let said = assert_output(&LIMIT, "rest", &[("FAKENVML_CONTEXT_MIB", "10")], &expected);
    assert!(
        said.contains(
            "55.00 MiB more would pass the limit of 64.00 MiB; 10.00 MiB are used: 10.00 MiB by contexts and kernels"
        ),
        "{said}"
    );
}

#[test]
fn captures_stay_valid_beside_a_pool_that_takes_too_much() {
    assert_output(&BY_DRIVER, "beyond", &[], &["some were refused: 1", "done"]);
}

#[test]
fn what_is_freed_beside_a_capture_counts_no_longer() {
    assert_output(&BY_DRIVER, "long-capture", &[], &["other codes: 0", "done"]);
}

#[test]
fn nodes_of_a_slow_capture_count_beside_contexts() {
    let node = |code| format!("cuMemAllocAsync(&at, 10 * MIB, s): {code}");
    let expected = [node(0), node(0), node(2), node(2), "done".to_owned()];
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_output(&BY_DRIVER, "slow-capture", &[("FAKENVML_CONTEXT_MIB", "40")], &expected);
}

#[test]
fn a_process_that_the_c_library_did_not_fork_has_its_own_memory() {
    let expected = ["cuMemAlloc(&at, 40 * MIB): 0", "in the child: 24.00 of 64.00", "in the parent: 64.00 of 64.00"];
    let report = ["--limit", "64MiB", "--report"];
    let said = assert_output(&report, "forked-by-the-system", &[], &[&expected[..], &["done"]].concat());
    assert!(said.contains("40.00 MiB of 64.00 MiB used at most"), "the environment is gone: {said}");
}

#[test]
fn captures_stay_valid_beside_measurements() {
    // A pool's two allocations and a node take 2 MiB each of that driver.
    assert_output(&LIMIT, "beside", &[], &["at the end: 58.00 of 64.00", "done"]);
}

#[test]
fn children_share_the_limit_and_give_their_share_back_when_they_are_killed() {
    let expected = [
        "in the child: 16.00 of 64.00",
        "in the parent: 16.00 of 64.00",
        "cuMemAlloc(&at, 24 * MIB): 2",
        "cuMemAlloc(&at, 16 * MIB): 0",
        "cuMemAlloc(&at, 24 * MIB): 0",
        "after the kill: 24.00 of 64.00",
        "after the wait: 24.00 of 64.00",
        "done",
    ];
    let said = assert_output(&LIMIT, "children", &[], &expected);
    assert!(
        said.contains("40.00 MiB by cuMemAlloc, 8.00 MiB by Millpond's pool; 48.00 MiB of all that by other"),
        "{said}"
    );
}

#[test]
fn a_process_has_what_it_made_itself() {
    let expected = [
        "in the child: 48.00 of 64.00",
        "cuMemAlloc(&at, 56 * MIB): 2",
        "cuMemAlloc(&at, 40 * MIB): 0",
        "in the child: 8.00 of 64.00",
        "in the parent: 48.00 of 64.00",
        "in the parent: 64.00 of 64.00",
        "done",
    ];
    assert_output(&LIMIT, "forks", &[], &expected);
    let after = ["cuDeviceTotalMem(&bytes, 0): 0", "64 in all", "cuMemGetInfo(NULL, &bytes): 0"];
    let expected = [
        &["before: 24.00 of 64.00", "at first: 64.00 of 64.00"],
        &after[..],
        &["cuMemGetInfo(&bytes, NULL): 0", "done"],
    ];
    assert_output(&LIMIT, "replaced", &[], &expected.concat());
}

#[test]
fn many_processes_at_once_stay_within_the_limit() {
    let expected = ["processes that passed the limit: 0", "after their ends: 64.00 of 64.00", "done"];
    assert_output(&LIMIT, "crowd", &[], &expected);
}

#[test]
fn the_memory_of_a_program_that_was_replaced_does_not_count() {
    let expected = ["still there: 24.00 of 64.00", "beside it: 64.00 of 64.00", "done"];
    assert_output(&LIMIT, "replaced-by-another", &[], &expected);
}

#[test]
fn the_memory_of_a_process_counts_until_it_has_ended() {
    let expected = ["while it ends: 24.00 of 64.00", "after its end: 64.00 of 64.00", "done"];
    assert_output(&LIMIT, "ending", &[], &expected);
}

#[test]
fn a_process_that_cannot_open_the_accounting_file_any_more_shares_the_limit() {
    let expected = ["cuMemAlloc(&(CUdeviceptr){0}, 25 * MIB): 2", "cuMemAlloc(&(CUdeviceptr){0}, 24 * MIB): 0"];
    assert_output(&LIMIT, "confined", &[], &[&expected[..], &["done"]].concat());
}

#[test]
fn a_process_that_is_forked_during_the_first_call_makes_calls() {
    assert_output(&LIMIT, "forked-early", &[], &["rounds that failed: 0", "done"]);
}

#[test]
fn rows_count_with_their_distance() {
    let calls = [
        "cuMemAllocPitch(&at, &pitch, 1, 64 * 2048 + 1, 4): 2",
        "cuMemAllocPitch(&at, &pitch, 1, 64 * 2048, 4): 0",
        "full: 0.00 of 64.00",
        "at the end: 64.00 of 64.00",
        "done",
    ];
    assert_output(&LIMIT, "rows", &[], &calls);
}

#[test]
fn what_graphs_keep_is_given_back_before_an_allocation_is_refused() {
    let expected = ["kept: 24.00 of 64.00", "cuMemAlloc(&at, 60 * MIB): 0", "taken: 4.00 of 64.00", "done"];
    assert_output(&LIMIT, "idle-graphs", &[], &expected);
}

#[test]
fn memory_that_another_process_opens_counts_once() {
    let expected = ["opened: 40.00 of 64.00", "closed: 40.00 of 64.00", "at the end: 40.00 of 64.00", "done"];
    assert_output(&LIMIT, "ipc", &[], &expected);
}

#[test]
fn a_device_is_the_same_in_every_process_whatever_its_number_is() {
    let other = ["full: 4.00 of 64.00", "done"];
    let expected = [&other[..], &other, &["at the end: 4.00 of 64.00", "done"]].concat();
    assert_output(&LIMIT, "renumbered", &[], &expected);
}

#[test]
fn hamis_variables_are_read_and_the_option_wins() {
    let first = |output: Output| text(&output.stdout).lines().next().unwrap_or_default().to_owned();
    let of_all = ("CUDA_DEVICE_MEMORY_LIMIT", "32m");
    let said = |before: &[&str], variables: &[(&str, &str)]| first(serve(before, PROGRAMS[0], "info", variables));
    assert_eq!(said(&[], &[of_all]), "at first: 32.00 of 32.00");
    assert_eq!(said(&[], &[of_all, ("CUDA_DEVICE_MEMORY_LIMIT_0", "16777216")]), "at first: 16.00 of 16.00");
    assert_eq!(said(&[], &[("CUDA_DEVICE_MEMORY_LIMIT_1", "1g")]), "at first: 65536.00 of 65536.00");
    assert_eq!(said(&LIMIT, &[of_all, ("CUDA_DEVICE_MEMORY_LIMIT_0", "much")]), "at first: 64.00 of 64.00");
    let mut check = super::command();
    check.args(["check", "--"]).arg(PLACE.join(PROGRAMS[0])).arg("info").env(of_all.0, of_all.1);
    assert_eq!(first(check.output().unwrap()), "at first: 65536.00 of 65536.00", "only `run` has limits");
    let mut nested = super::command();
    nested.args(["run", "--limit", "64MiB", "--", env!("CARGO_BIN_EXE_millpond"), "run", "--"]);
    nested.arg(PLACE.join(PROGRAMS[0])).arg("info").env("FAKECUDA_DEVICES", "2").env(of_all.0, of_all.1);
    assert_eq!(first(nested.output().unwrap()), "at first: 64.00 of 64.00", "the outer limit stays");
    let output = serve(&[], PROGRAMS[0], "info", &[("CUDA_DEVICE_MEMORY_LIMIT_0", "much")]);
    let said = text(&output.stderr);
    assert!(said.contains("CUDA_DEVICE_MEMORY_LIMIT_0=`much`") && said.contains("help: give bytes"), "{said}");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
}

#[test]
fn a_wrong_limit_is_refused_with_what_is_right() {
    for (limit, wrong) in [("8GB", "`8GB`"), ("0", "`0`"), ("0:1g,0:2g", "`0:2g`"), ("110%", "`110%`"), ("x:1g", "`x`")]
    {
        let output = serve(&["--limit", limit], PROGRAMS[0], "info", &[]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{said}");
        for part in ["--limit", wrong, "give bytes such as 8GiB"] {
            assert!(said.contains(part), "{limit}: no `{part}` in {said}");
        }
    }
}
