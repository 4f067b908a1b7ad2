//! Programs that do unexpected things: they run as without the library, and their mistakes are found.

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use super::*;

const HOSTILE: [&str; 2] = ["hostile", "hostile-looked-up"];

#[test]
fn right_programs_run_as_they_are() {
    for way in HOSTILE {
        for (program, printed) in [("many-threads", "done\n"), ("wrong-handles", "refused: 11\ndone\n")] {
            for before in [&["check"][..], &["run"], &["run", "--check"]] {
                let output = run(before, way, &[program]);
                let said = text(&output.stderr);
                let context = format!("{before:?} {way} {program}: {said}");
                assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), printed), "{context}");
                assert_eq!(kinds(&output), Vec::<String>::new(), "{context}");
            }
        }
    }
}

#[test]
fn all_arguments_of_a_wide_kernel_are_looked_at() {
    for way in HOSTILE {
        let output = run(&["check"], way, &["many-arguments"]);
        let said = text(&output.stderr);
        assert_eq!((kinds(&output), output.status.code()), (vec!["free-before-alloc".to_owned()], Some(1)), "{said}");
    }
}

#[test]
fn arguments_are_found_however_they_come() {
    for way in HOSTILE {
        let output = run(&["check"], way, &["arguments"]);
        let said = text(&output.stderr);
        assert_eq!((kinds(&output), output.status.code()), (vec!["free-before-alloc".to_owned()], Some(1)), "{said}");
        assert!(said.contains("4 x free-before-alloc"), "{said}");
        assert!(said.contains("5 launches, 4 with an address of known memory, 0 without"), "{said}");
    }
}

#[test]
fn many_threads_may_launch_at_once() {
    for before in [&["check"][..], &["check", "--races"]] {
        let output = run(before, "hostile", &["at-once"]);
        let said = text(&output.stderr);
        assert_eq!((kinds(&output), output.status.code()), (vec![], Some(0)), "{said}");
        assert!(said.contains("32000 launches, 32000 with an address of known memory, 0 without"), "{said}");
    }
    let (trace, _) = record("hostile", "at-once");
    let (said, status) = check(&trace);
    assert!(status == Some(0) && !said.contains("was stopped"), "{said}");
}

/// Runs the command with its output closed.
fn unread(way: &str, program: &str) -> (Option<i32>, String) {
    let library = std::env::current_exe().unwrap().with_file_name("libmillpond_cuda.so");
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command.args(["check", "--"]).arg(PLACE.join(way)).arg(program);
    command.env("LD_LIBRARY_PATH", &*PLACE).env("MILLPOND_CUDA_LIBRARY", library);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).arg0("millpond").spawn().unwrap();
    drop(child.stderr.take());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), text(&output.stdout))
}

#[test]
fn what_is_said_to_nobody_ends_no_program() {
    for way in HOSTILE {
        assert_eq!(unread(way, "wrong"), (Some(1), "done\n".to_owned()), "{way}");
        let output = run(&["check"], way, &["no-stderr"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "done\n".to_owned()), "{said}");
        assert!(said.contains("1 x free-before-alloc"), "the command says it: {said}");
    }
}

#[test]
fn a_trace_at_the_limit_of_files_ends_no_program() {
    for way in HOSTILE {
        let trace = PLACE.join(format!("{way}-small-files.trace"));
        let output = run(&["record", "-o", trace.to_str().unwrap()], way, &["small-files"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "done\n".to_owned()), "{said}");
        assert!(said.contains("millpond: the trace ends here: File too large"), "{said}");
        let (said, _) = check(&trace);
        assert!(said.contains("was stopped") && said.contains("no violations"), "what was written is read: {said}");
    }
}

#[test]
fn a_program_that_is_replaced_leaves_its_whole_trace() {
    for (number, way) in (0..9).zip(HOSTILE.into_iter().cycle()) {
        let trace = PLACE.join(format!("replaced-{number}.trace"));
        let words = ["replaced", &number.to_string()];
        let output = run(&["record", "-o", trace.to_str().unwrap()], way, &words);
        let printed = text(&output.stdout);
        assert!(output.status.code() == Some(0) && printed.ends_with("replaced\n"), "{number}: {printed}");
        let (said, status) = check(&trace);
        // Two streams, an event, an allocation, two launches, a free.
        assert!(status == Some(0) && said.contains("7 operations, no violations"), "{number}: {said}");
        assert!(!said.contains("was stopped"), "{number}: {said}");
        let said = text(&run(&["check"], way, &words).stderr);
        assert!(said.contains("1 process was stopped or replaced"), "{number}: {said}");
    }
}

#[test]
fn who_makes_other_programs_goes_on() {
    for way in HOSTILE {
        let (trace, output) = record(way, "spawning");
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "done\n".to_owned()));
        let (said, status) = check(&trace);
        assert!(status == Some(0) && said.contains("7 operations, no violations"), "{said}");
        assert!(!said.contains("was stopped"), "{said}");
    }
}

#[test]
fn nothing_is_written_into_a_programs_own_files() {
    for way in HOSTILE {
        let (trace, output) = record(way, "closes-all");
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "done\n".to_owned()), "{said}");
        let (said, status) = check(&trace);
        assert!(status == Some(0) && said.contains("operations, no violations"), "{said}");
        assert!(!said.contains("was stopped"), "{said}");
    }
}

/// Imported memory exists until `cuIpcCloseMemHandle` has closed it as often as it was opened.
#[test]
fn memory_of_others_is_there_until_it_is_closed_for_the_last_time() {
    for way in HOSTILE {
        for (number, found) in [("0", vec![]), ("1", vec!["use-after-free".to_owned()])] {
            for before in [&["check"][..], &["run", "--check"]] {
                let output = run(before, way, &["opened-twice", number]);
                let said = text(&output.stderr);
                assert_eq!(text(&output.stdout), "done\n", "{said}");
                assert_eq!(
                    (kinds(&output), output.status.code()),
                    (found.clone(), Some(!found.is_empty() as i32)),
                    "{said}"
                );
            }
        }
    }
}

/// Another process waits for an event of this one, and this one for an event that the other records after that.
#[test]
fn an_order_that_comes_back_from_another_process_is_one() {
    for way in HOSTILE {
        for (number, found) in [("0", &[][..]), ("1", &[]), ("2", &[]), ("3", &["use-before-alloc"])] {
            let output = run(&["check"], way, &["relayed", number]);
            let said = text(&output.stderr);
            assert_eq!(text(&output.stdout), "done\n", "{number}: {said}");
            assert_eq!(kinds(&output), found, "{number}: {said}");
            assert_eq!(output.status.code(), Some(!found.is_empty() as i32), "{number}: {said}");
        }
    }
}

/// Numbers are not used twice, because two things would be taken for one.
#[test]
fn nothing_is_judged_where_numbers_are_used_up() {
    for (way, (number, what)) in
        HOSTILE.into_iter().cycle().zip(["pools", "graphs", "instances", "threads"].into_iter().enumerate())
    {
        let program = PLACE.join(way);
        let of = |before: &[&str]| {
            let mut command = command();
            command.args(before).arg("--").arg(&program).args(["numbers", &number.to_string()]);
            // Four numbers are left.
            command.env("MILLPOND_INTERPOSE_FIRST_NUMBER", (u32::MAX - 1024 - 4).to_string()).output().unwrap()
        };
        let output = of(&["check"]);
        let said = text(&output.stderr);
        assert_eq!((kinds(&output), output.status.code()), (vec!["use-before-alloc".to_owned()], Some(1)), "{said}");
        assert_eq!(text(&output.stdout), "done\n");
        assert!(said.contains("1 x use-before-alloc"), "the second is not looked at: {said}");
        let stopped = format!("millpond: there are no numbers left for {what}: nothing is checked from here on\n");
        assert!(said.contains(&stopped) && said.contains("since the numbers of what the program makes were"), "{said}");
        let trace = PLACE.join(format!("numbers-{what}.trace"));
        let said = text(&of(&["record", "-o", trace.to_str().unwrap()]).stderr);
        assert!(
            said.contains(&format!("millpond: the trace ends here: there are no numbers left for {what}\n")),
            "{said}"
        );
        let (said, _) = check(&trace);
        assert!(said.contains("was stopped") && said.contains("use-before-alloc"), "{said}");
    }
}

/// Default streams of threads that have ended are not kept, and no order with them is lost.
#[test]
fn a_server_with_a_thread_for_each_request_keeps_nothing_of_it() {
    for way in HOSTILE {
        let output = run(&["check"], way, &["threads-that-end"]);
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{said}");
        let grown: u64 = printed.split(' ').next().unwrap().parse().unwrap();
        assert!(grown < 32 << 10, "{printed}");
    }
}
