//! Captures that come to nothing.

use super::*;
use crate::calls::capture::{millpond_stream_begin_capture, millpond_stream_end_capture};
use crate::calls::memory::{millpond_free_async, millpond_malloc_async};
use crate::calls::stream::{millpond_stream_destroy, millpond_stream_query};
use crate::status::millpond_status::*;
use crate::tables::pointers::POINTERS;

/// A stream that captures, and has allocated.
fn capturing(stream: millpond_stream_t) -> *mut c_void {
    let mut memory = nowhere();
    must(c!(millpond_stream_begin_capture(stream)));
    must(c!(millpond_malloc_async(&mut memory, 4096, stream)));
    memory
}

#[test]
fn what_a_capture_allocated_goes_with_a_refused_end() {
    let device = host_device();
    let (stream, other, mut graph) = (stream_of(device), stream_of(device), null_mut());
    let memory = capturing(stream);
    let kept = capturing(other);
    // That makes the capture invalid.
    refused(c!(millpond_stream_query(stream)), MILLPOND_ERROR_CAPTURE);
    refused(c!(millpond_stream_end_capture(stream, &mut graph)), MILLPOND_ERROR_CAPTURE);
    assert!(POINTERS.peek(memory as u64).is_none());
    refused(c!(millpond_free_async(memory, stream)), MILLPOND_ERROR_INVALID_VALUE);
    must(c!(millpond_free_async(kept, other)));
    must(c!(millpond_stream_end_capture(other, &mut graph)));
}

#[test]
fn what_a_capture_allocated_goes_with_its_stream() {
    let device = host_device();
    let (stream, other) = (stream_of(device), stream_of(device));
    let memory = capturing(stream);
    must(c!(millpond_stream_destroy(stream)));
    assert!(POINTERS.peek(memory as u64).is_none());
    refused(c!(millpond_free_async(memory, other)), MILLPOND_ERROR_INVALID_VALUE);
}
