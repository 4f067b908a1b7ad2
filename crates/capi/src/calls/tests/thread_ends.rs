//! The end of a thread: the system's destructors run after Rust's thread-local values are gone.

use std::sync::{Mutex, PoisonError};

use super::*;
use crate::calls::memory::{millpond_free_async, millpond_malloc_async};
use crate::calls::stream::{millpond_stream_destroy, millpond_stream_per_thread, millpond_stream_synchronize};
use crate::calls::work::millpond_memset_async;
use crate::status::millpond_status::*;

/// The device, and each call's status with its text.
static SEEN: Mutex<(usize, Vec<(millpond_status, String)>)> = Mutex::new((0, Vec::new()));

/// Uses the thread's own stream, and fails twice.
unsafe extern "C" fn at_the_end(_: *mut c_void) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let device = seen.0 as millpond_device_t;
    let (mut stream, mut memory) = (null_mut(), nowhere());
    let mut said = |status| seen.1.push((status, last_error()));
    said(c!(millpond_stream_per_thread(&mut stream, device)));
    said(c!(millpond_malloc_async(&mut memory, 4096, stream)));
    said(c!(millpond_memset_async(memory, 1, 4096, stream)));
    said(c!(millpond_stream_synchronize(stream)));
    said(c!(millpond_free_async(memory, stream)));
    said(c!(millpond_free_async(memory, stream)));
    said(c!(millpond_stream_destroy(stream)));
    said(c!(millpond_stream_destroy(stream)));
}

/// `true` if the thread has failed before: then it has a text when its values are dropped.
fn end_a_thread(has_failed: bool) {
    let mut key = 0;
    // SAFETY: the place is valid for the call; the function takes any value.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(at_the_end)) }, 0);
    std::thread::spawn(move || {
        if has_failed {
            refused(c!(millpond_stream_destroy(null_mut())), MILLPOND_ERROR_INVALID_HANDLE);
        }
        // SAFETY: the key was made; the value is not looked at.
        assert_eq!(unsafe { libc::pthread_setspecific(key, std::ptr::dangling()) }, 0);
    })
    .join()
    .expect("no panic");
    // SAFETY: no thread has a value of it any more.
    assert_eq!(unsafe { libc::pthread_key_delete(key) }, 0);
}

#[test]
fn a_thread_that_is_ending_has_its_stream_and_its_text() {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).0 = host_device() as usize;
    for has_failed in [false, true] {
        end_a_thread(has_failed);
        let seen = std::mem::take(&mut SEEN.lock().unwrap_or_else(PoisonError::into_inner).1);
        let statuses: Vec<_> = seen.iter().map(|(status, _)| *status).collect();
        let (done, freed, gone) = (MILLPOND_SUCCESS, MILLPOND_ERROR_INVALID_VALUE, MILLPOND_ERROR_INVALID_HANDLE);
        assert_eq!(statuses, [done, done, done, done, done, freed, done, gone], "{seen:?}");
        assert!(seen[5].1.contains("is not the start of a live allocation"), "{seen:?}");
        assert!(seen[7].1.contains("not a stream handle"), "{seen:?}");
    }
}
