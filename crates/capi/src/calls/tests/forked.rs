//! The answers of the C functions in a forked process, and that the parent loses nothing.

use std::ffi::c_int;
use std::process::Command;

use super::*;
use crate::calls::device::{millpond_device_destroy, millpond_device_get_default_pool};
use crate::calls::memory::{millpond_free_async, millpond_malloc_async};
use crate::calls::pool::{millpond_pool_destroy, millpond_pool_trim_to};
use crate::calls::stream::{millpond_stream_destroy, millpond_stream_synchronize};
use crate::calls::work::{millpond_memcpy_dtoh, millpond_memset_async};
use crate::status::millpond_status::MILLPOND_ERROR_DEVICE_LOST;

// SAFETY: functions of the C library, with its types.
unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
    safe fn alarm(seconds: u32) -> u32;
    safe fn exit(status: c_int) -> !;
}

/// The program of the test.
#[test]
#[ignore = "a program for another test"]
fn program() {
    let (device, mut pool, mut memory) = (host_device(), null_mut(), nowhere());
    let stream = stream_of(device);
    must(c!(millpond_device_get_default_pool(&mut pool, device)));
    must(c!(millpond_malloc_async(&mut memory, 4096, stream)));
    must(c!(millpond_memset_async(memory, 5, 4096, stream)));
    must(c!(millpond_stream_synchronize(stream)));
    let child = c!(fork());
    if child == 0 {
        alarm(20);
        let (mut other, mut again) = (null_mut(), null_mut());
        let answers = [
            c!(millpond_malloc_async(&mut other, 4096, stream)),
            c!(millpond_memset_async(memory, 7, 4096, stream)),
            c!(millpond_free_async(memory, stream)),
            c!(millpond_stream_synchronize(stream)),
            c!(millpond_pool_trim_to(pool, 0)),
            c!(millpond_stream_destroy(stream)),
            c!(millpond_pool_destroy(pool)),
            c!(millpond_device_destroy(device)),
            c!(millpond_device_create_host(&mut again, null())),
        ];
        let is_right = answers.iter().all(|it| *it == MILLPOND_ERROR_DEVICE_LOST) && last_error().contains("forked");
        // With the exit handlers, as in a process that ends normally.
        exit(if is_right { 0 } else { 1 });
    }
    let mut status = -1;
    let mut found = [0_u8; 4096];
    c!(waitpid(child, &mut status, 0));
    assert_eq!(status, 0, "the child's answers");
    must(c!(millpond_memcpy_dtoh(found.as_mut_ptr().cast(), memory, 4096, stream)));
    assert_eq!(found, [5; 4096]);
    must(c!(millpond_free_async(memory, stream)));
    must(c!(millpond_stream_destroy(stream)));
    must(c!(millpond_device_destroy(device)));
}

#[test]
fn a_forked_process_is_refused_and_its_parent_loses_nothing() {
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    let output = command.args(["--exact", "--ignored", "calls::tests::forked::program"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
