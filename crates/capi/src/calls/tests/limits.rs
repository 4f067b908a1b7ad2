//! What is said where the host has no memory left, or no room in a file. Each is a process of its own.

use std::process::Command;

use super::*;
use crate::calls::memory::{millpond_free_async, millpond_malloc_async};
use crate::calls::stream::millpond_stream_synchronize;
use crate::calls::work::{millpond_memcpy_htod_async, millpond_memset_async};
use crate::status::millpond_status::*;

/// Runs a test of this file, which is ignored otherwise, as a program.
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

/// Addresses that the process has.
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
