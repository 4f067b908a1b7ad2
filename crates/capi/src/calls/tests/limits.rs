//! The messages when the host has no memory left, or no room in a file. Each test is a process of its own.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::Command;

use millpond_core::trace::ops::Reader;

use super::*;
use crate::calls::capture::{millpond_stream_begin_capture, millpond_stream_end_capture};
use crate::calls::device::millpond_device_destroy;
use crate::calls::event::{millpond_event_create, millpond_event_record};
use crate::calls::exec::{millpond_graph_instantiate, millpond_graph_launch};
use crate::calls::memory::{millpond_free_async, millpond_malloc_async};
use crate::calls::picture::{millpond_memory_picture, millpond_string_free};
use crate::calls::stream::{millpond_stream_synchronize, millpond_stream_wait_event};
use crate::calls::trace::{millpond_trace_flush, millpond_trace_start, millpond_trace_stop};
use crate::calls::work::{millpond_memcpy_htod_async, millpond_memset_async};
use crate::status::millpond_status::*;

/// Runs a test of this file, which is otherwise ignored, as a program.
fn run(program: &str) {
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    let name = format!("calls::tests::limits::{program}");
    let output = command.args(["--exact", "--ignored", "--nocapture", &name]).output().expect("it starts");
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Sets the limit of a resource of this process.
fn limit(which: libc::__rlimit_resource_t, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is valid for the call.
    assert_eq!(unsafe { libc::setrlimit(which, &limit) }, 0);
}

/// The size of the process's address space.
fn addresses() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("a system with /proc");
    pages.split(' ').next().and_then(|it| it.parse::<u64>().ok()).expect("a number") * 4096
}

#[test]
fn a_copy_that_the_host_has_no_memory_for_is_refused() {
    run("copy_without_host_memory");
}

#[test]
#[ignore = "a program for another test"]
fn copy_without_host_memory() {
    const BYTES: usize = 256 << 20;
    let (stream, mut memory, from) = (stream_of(host_device()), nowhere(), vec![7_u8; BYTES]);
    must(c!(millpond_malloc_async(&mut memory, BYTES, stream)));
    must(c!(millpond_memset_async(memory, 3, BYTES, stream)));
    must(c!(millpond_stream_synchronize(stream)));
    limit(libc::RLIMIT_AS, addresses() + (64 << 20));
    let copied = c!(millpond_memcpy_htod_async(memory, from.as_ptr().cast(), BYTES, stream));
    let text = refused(copied, MILLPOND_ERROR_DRIVER);
    assert!(text.contains("the host has no 268435456 B of memory left for the copy"), "{text}");
    must(c!(millpond_free_async(memory, stream)));
}

/// A file for a trace of this process.
fn trace_file(name: &str) -> (PathBuf, CString) {
    let path = std::env::temp_dir().join(format!("millpond-{}-{name}.trace", std::process::id()));
    let text = CString::new(path.to_str().expect("UTF-8")).expect("no zero");
    (path, text)
}

#[test]
fn a_trace_that_was_lost_is_never_flushed_again() {
    run("trace_without_room");
}

#[test]
#[ignore = "a program for another test"]
fn trace_without_room() {
    // SAFETY: the signal is ignored, so that the call fails instead.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    for (room, records) in [(30_000, 20_000), (30_000, 200_000), (100_000, 200_000), (60, 10)] {
        let (path, text) = trace_file("lost");
        limit(libc::RLIMIT_FSIZE, libc::RLIM_INFINITY);
        must(c!(millpond_trace_start(text.as_ptr())));
        let (device, mut event) = (host_device(), null_mut());
        let stream = stream_of(device);
        must(c!(millpond_event_create(&mut event)));
        limit(libc::RLIMIT_FSIZE, room);
        for _ in 0..records {
            must(c!(millpond_event_record(event, stream)));
        }
        let first = refused(c!(millpond_trace_flush(device)), MILLPOND_ERROR_INVALID_VALUE);
        assert!(first.contains("File too large"), "{first}");
        // Also if there is nothing new to write.
        assert_eq!(refused(c!(millpond_trace_flush(device)), MILLPOND_ERROR_INVALID_VALUE), first);
        let mut reader = Reader::new();
        reader.feed(&std::fs::read(&path).expect("a file"));
        while reader.next_op().expect("whole frames only").is_some() {}
        reader.end().expect("the end of a frame");
        must(c!(millpond_trace_stop()));
        std::fs::remove_file(path).expect("it is there");
    }
}

#[test]
fn a_trace_that_is_being_written_is_not_begun_again() {
    let (path, text) = trace_file("twice");
    must(c!(millpond_trace_start(text.as_ptr())));
    let device = host_device();
    // While the trace is on, and then as long as it has a device.
    refused(c!(millpond_trace_start(text.as_ptr())), MILLPOND_ERROR_INVALID_VALUE);
    must(c!(millpond_trace_stop()));
    let refused = refused(c!(millpond_trace_start(text.as_ptr())), MILLPOND_ERROR_INVALID_VALUE);
    assert!(refused.contains("this process writes a trace to it still"), "{refused}");
    must(c!(millpond_device_destroy(device)));
    std::fs::remove_file(path).expect("it is there");
}

#[test]
fn a_trace_is_written_to_a_file_of_any_name() {
    run("trace_with_a_name_of_bytes");
}

#[test]
#[ignore = "a program for another test"]
fn trace_with_a_name_of_bytes() {
    let mut path = std::env::temp_dir().into_os_string().into_vec();
    path.extend(format!("/millpond-{}-", std::process::id()).bytes().chain([0xFF]));
    let text = CString::new(path.clone()).expect("no zero");
    must(c!(millpond_trace_start(text.as_ptr())));
    let device = host_device();
    must(c!(millpond_trace_stop()));
    must(c!(millpond_device_destroy(device)));
    std::fs::remove_file(OsString::from_vec(path)).expect("it is there");
}

#[test]
fn a_call_needs_no_more_stack_than_the_header_says() {
    run("calls_on_a_small_stack");
}

#[test]
#[ignore = "a program for another test"]
fn calls_on_a_small_stack() {
    let calls = || {
        let device = host_device();
        let (left, right, mut event) = (stream_of(device), stream_of(device), null_mut());
        let (mut graph, mut exec, mut memory, mut json) = (null_mut(), null_mut(), nowhere(), null_mut());
        must(c!(millpond_event_create(&mut event)));
        must(c!(millpond_malloc_async(&mut memory, 4096, left)));
        refused(c!(millpond_free_async(memory, right)), MILLPOND_ERROR_ORDER);
        must(c!(millpond_event_record(event, left)));
        must(c!(millpond_stream_wait_event(right, event)));
        must(c!(millpond_free_async(memory, right)));
        must(c!(millpond_stream_begin_capture(left)));
        must(c!(millpond_malloc_async(&mut memory, 4096, left)));
        must(c!(millpond_memset_async(memory, 7, 4096, left)));
        must(c!(millpond_stream_end_capture(left, &mut graph)));
        must(c!(millpond_graph_instantiate(&mut exec, graph, 0)));
        must(c!(millpond_graph_launch(exec, left)));
        must(c!(millpond_free_async(memory, left)));
        must(c!(millpond_memory_picture(&mut json, device)));
        c!(millpond_string_free(json));
        must(c!(millpond_stream_synchronize(left)));
        must(c!(millpond_device_destroy(device)));
    };
    let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(calls).expect("a thread");
    thread.join().expect("no panic");
}

#[test]
fn an_address_limit_is_said_to_be_one() {
    run("map_beyond_the_limit");
}

#[test]
#[ignore = "a program for another test"]
fn map_beyond_the_limit() {
    let (stream, mut memory) = (stream_of(host_device()), nowhere());
    must(c!(millpond_malloc_async(&mut memory, 1 << 20, stream)));
    // The stream's thread exists already: it could not start under the limit.
    must(c!(millpond_memset_async(memory, 1, 1 << 20, stream)));
    must(c!(millpond_stream_synchronize(stream)));
    limit(libc::RLIMIT_AS, addresses() - (1 << 20));
    let status = c!(millpond_malloc_async(&mut memory, 8 << 20, stream));
    limit(libc::RLIMIT_AS, libc::RLIM_INFINITY);
    let text = refused(status, MILLPOND_ERROR_DRIVER);
    assert!(text.contains("RLIMIT_AS") && !text.contains("max_map_count"), "{text}");
}
