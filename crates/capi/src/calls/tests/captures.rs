//! Captures of several threads, and captures that fail.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::scope;

use super::*;
use crate::calls::capture::{millpond_stream_begin_capture, millpond_stream_end_capture};
use crate::calls::exec::{millpond_graph_exec_destroy, millpond_graph_instantiate, millpond_graph_launch};
use crate::calls::graph::millpond_graph_destroy;
use crate::calls::memory::{millpond_free, millpond_free_async, millpond_malloc, millpond_malloc_async};
use crate::calls::stream::{millpond_stream_destroy, millpond_stream_get_number, millpond_stream_query};
use crate::calls::work::millpond_memset_async;
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

/// An allocation at the same time as the end of another thread's capture is known at the end of its own capture.
#[test]
fn captures_of_two_threads_lose_no_allocation() {
    let device = host_device();
    let (own, other, is_over) = (stream_of(device), Shared(stream_of(device)), AtomicBool::new(false));
    scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                let mut graph = null_mut();
                must(c!(millpond_stream_begin_capture(other.get())));
                must(c!(millpond_stream_end_capture(other.get(), &mut graph)));
                must(c!(millpond_graph_destroy(graph)));
            }
        });
        let mut lost = None;
        for round in 0..5_000 {
            let (mut graph, mut exec) = (null_mut(), null_mut());
            let memory = capturing(own);
            must(c!(millpond_stream_end_capture(own, &mut graph)));
            must(c!(millpond_graph_instantiate(&mut exec, graph, 0)));
            must(c!(millpond_graph_launch(exec, own)));
            if c!(millpond_memset_async(memory, 7, 4096, own)) != MILLPOND_SUCCESS {
                lost = Some((round, last_error()));
                break;
            }
            must(c!(millpond_free_async(memory, own)));
            must(c!(millpond_graph_exec_destroy(exec)));
            must(c!(millpond_graph_destroy(graph)));
        }
        is_over.store(true, SeqCst);
        assert_eq!(lost, None);
    });
}

/// Another thread may be in a call on the stream while the stream is destroyed.
#[test]
fn a_capture_goes_with_its_stream_beside_calls_of_it() {
    let (device, handle, is_over) = (host_device(), AtomicUsize::new(0), AtomicBool::new(false));
    scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                let mut number = 0;
                let _ = c!(millpond_stream_get_number(&mut number, handle.load(SeqCst) as millpond_stream_t));
            }
        });
        for _ in 0..2000 {
            let (stream, mut memory) = (stream_of(device), nowhere());
            handle.store(stream as usize, SeqCst);
            must(c!(millpond_stream_begin_capture(stream)));
            must(c!(millpond_stream_destroy(stream)));
            // An open capture would refuse this.
            must(c!(millpond_malloc(&mut memory, 64, device)));
            must(c!(millpond_free(memory, device)));
        }
        is_over.store(true, SeqCst);
    });
}
