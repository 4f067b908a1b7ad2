//! Refusals, and their texts.

use std::thread::scope;

use super::*;
use crate::calls::capture::{millpond_stream_begin_capture, millpond_stream_end_capture};
use crate::calls::device::{millpond_device_get_default_pool, millpond_device_get_pool, millpond_host_config};
use crate::calls::event::{millpond_event_create, millpond_event_record};
use crate::calls::exec::{
    millpond_graph_exec_destroy, millpond_graph_exec_t, millpond_graph_instantiate, millpond_graph_launch,
};
use crate::calls::graph::{
    millpond_graph_add_empty_node, millpond_graph_add_mem_alloc_node, millpond_graph_add_mem_free_node,
    millpond_graph_create,
};
use crate::calls::memory::{
    millpond_free, millpond_free_async, millpond_malloc, millpond_malloc_async, millpond_set_name,
};
use crate::calls::pool::{millpond_pool_config, millpond_pool_create};
use crate::calls::stream::{
    millpond_stream_from_cuda, millpond_stream_is_capturing, millpond_stream_query, millpond_stream_set_name,
    millpond_stream_synchronize, millpond_stream_wait_event,
};
use crate::calls::work::{millpond_launch, millpond_memset_async};
use crate::status::millpond_status::*;
use crate::status::{Failure, answer};
use crate::tables::graph::{millpond_graph_node_t, millpond_graph_t};

/// An instance of a graph that leaves memory live, and the memory's address.
fn producer(device: millpond_device_t) -> (millpond_graph_exec_t, *mut c_void) {
    let (mut graph, mut exec, mut memory) = (null_mut(), null_mut(), nowhere());
    must(c!(millpond_graph_create(&mut graph, device)));
    must(c!(millpond_graph_add_mem_alloc_node(null_mut(), graph, null(), 0, 4096, &mut memory)));
    must(c!(millpond_graph_instantiate(&mut exec, graph, 0)));
    (exec, memory)
}

#[test]
fn a_second_free_of_a_graphs_memory_is_said_to_be_one() {
    let device = host_device();
    let (stream, (exec, memory)) = (stream_of(device), producer(device));
    let both = |said: &str| {
        let calls = [c!(millpond_free_async(memory, stream)), c!(millpond_free(memory, device))];
        assert_eq!(calls, [MILLPOND_ERROR_INVALID_VALUE; 2]);
        let text = refused(c!(millpond_free_async(memory, stream)), MILLPOND_ERROR_INVALID_VALUE);
        assert!(text.contains(said) && !text.contains("captured"), "{text}");
    };
    both("only a launch of that graph makes live");
    must(c!(millpond_graph_launch(exec, stream)));
    must(c!(millpond_free_async(memory, stream)));
    both("freed on stream");
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// A text for C has no places in this library.
#[track_caller]
fn has_no_place(text: &str) {
    assert!(!text.contains(".rs") && !text.contains("crates"), "{text}");
}

#[test]
fn no_text_names_a_place_in_this_library() {
    let device = host_device();
    let (stream, other) = (stream_of(device), stream_of(device));
    let (mut memory, mut graph, mut exec, mut event) = (nowhere(), null_mut(), null_mut(), null_mut());
    must(c!(millpond_malloc_async(&mut memory, 100, stream)));
    must(c!(millpond_stream_begin_capture(stream)));
    must(c!(millpond_memset_async(memory, 1, 100, stream)));
    must(c!(millpond_stream_end_capture(stream, &mut graph)));
    must(c!(millpond_graph_instantiate(&mut exec, graph, 0)));
    must(c!(millpond_free_async(memory, stream)));
    must(c!(millpond_malloc_async(&mut memory, 100, stream)));
    let stale_name = refused(c!(millpond_graph_launch(exec, stream)), MILLPOND_ERROR_ORDER);
    assert!(stale_name.contains("allocated anew: stream"), "{stale_name}");
    has_no_place(&stale_name);

    must(c!(millpond_event_create(&mut event)));
    must(c!(millpond_stream_begin_capture(stream)));
    must(c!(millpond_event_record(event, stream)));
    must(c!(millpond_stream_wait_event(other, event)));
    must(c!(millpond_launch(other, Some(nothing), null_mut(), null(), 0)));
    let unjoined = refused(c!(millpond_stream_end_capture(stream, &mut graph)), MILLPOND_ERROR_CAPTURE);
    assert!(unjoined.contains("its last node is kernel node 0"), "{unjoined}");
    has_no_place(&unjoined);

    let (graph, alloc, free, memory) = freed_in_graph(device);
    let mut again = 0;
    let twice = refused(
        c!(millpond_graph_add_mem_free_node(&mut again, graph, [alloc, free].as_ptr(), 2, memory)),
        MILLPOND_ERROR_ORDER,
    );
    has_no_place(&twice);
}

/// A graph that allocates and frees.
fn freed_in_graph(
    device: millpond_device_t,
) -> (millpond_graph_t, millpond_graph_node_t, millpond_graph_node_t, *mut c_void) {
    let (mut graph, mut alloc, mut free, mut memory) = (null_mut(), 0, 0, nowhere());
    must(c!(millpond_graph_create(&mut graph, device)));
    must(c!(millpond_graph_add_mem_alloc_node(&mut alloc, graph, null(), 0, 100, &mut memory)));
    must(c!(millpond_graph_add_mem_free_node(&mut free, graph, &alloc, 1, memory)));
    (graph, alloc, free, memory)
}

#[test]
fn a_capture_without_a_place_for_its_graph_goes_on() {
    let (stream, mut graph, mut is_capturing) = (stream_of(host_device()), null_mut(), 0);
    must(c!(millpond_stream_begin_capture(stream)));
    refused(c!(millpond_stream_end_capture(stream, null_mut())), MILLPOND_ERROR_INVALID_VALUE);
    must(c!(millpond_stream_is_capturing(&mut is_capturing, stream)));
    assert_eq!(is_capturing, 1);
    must(c!(millpond_stream_end_capture(stream, &mut graph)));
}

#[test]
fn a_capture_is_ended_by_the_thread_that_began_it() {
    let (stream, mut graph) = (Shared(stream_of(host_device())), null_mut());
    must(c!(millpond_stream_begin_capture(stream.get())));
    scope(|scope| {
        scope.spawn(|| {
            let (mut graph, mut is_capturing) = (null_mut(), 0);
            let ended = c!(millpond_stream_end_capture(stream.get(), &mut graph));
            refused(ended, MILLPOND_ERROR_CAPTURE);
            must(c!(millpond_stream_is_capturing(&mut is_capturing, stream.get())));
            assert_eq!(is_capturing, 1, "it goes on");
        });
    });
    must(c!(millpond_stream_end_capture(stream.get(), &mut graph)));
}

#[test]
fn memory_at_once_is_refused_while_a_capture_goes_on() {
    let device = host_device();
    let (stream, mut graph, mut memory) = (stream_of(device), null_mut(), nowhere());
    must(c!(millpond_stream_begin_capture(stream)));
    refused(c!(millpond_malloc(&mut memory, 4096, device)), MILLPOND_ERROR_CAPTURE);
    refused(c!(millpond_stream_end_capture(stream, &mut graph)), MILLPOND_ERROR_CAPTURE);
    must(c!(millpond_malloc(&mut memory, 4096, device)));
    must(c!(millpond_free(memory, device)));
}

#[test]
fn a_host_device_takes_over_no_stream() {
    let (device, mut stream) = (host_device(), null_mut());
    for handle in 0..4_usize {
        let taken = c!(millpond_stream_from_cuda(&mut stream, device, handle as *mut c_void));
        refused(taken, MILLPOND_ERROR_INVALID_VALUE);
        assert!(stream.is_null());
    }
}

#[test]
fn an_answer_leaves_the_text_of_the_last_failure() {
    unsafe extern "C" fn sleep(_: *mut c_void) {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let stream = stream_of(host_device());
    let text = refused(c!(millpond_free_async(8 as *mut c_void, stream)), MILLPOND_ERROR_INVALID_VALUE);
    must(c!(millpond_launch(stream, Some(sleep), null_mut(), null(), 0)));
    assert_eq!((c!(millpond_stream_query(stream)), last_error()), (MILLPOND_NOT_READY, text));
    must(c!(millpond_stream_synchronize(stream)));
}

#[test]
fn values_that_cannot_be_are_said_in_words_of_c() {
    let (mut device, mut pool, mut graph, mut memory) = (null_mut(), null_mut(), null_mut(), nowhere());
    for (granularity, reason) in [(1 << 63, "is larger than any memory"), (100, "is not a power of two of")] {
        let config = millpond_host_config { total_bytes: 0, granularity };
        let text = refused(c!(millpond_device_create_host(&mut device, &config)), MILLPOND_ERROR_INVALID_VALUE);
        assert!(text.contains(reason), "{text}");
    }

    let device = host_device();
    let config = millpond_pool_config { release_threshold: 0, max_bytes: u64::MAX, slack: 0.0, guard: 0 };
    let text = refused(c!(millpond_pool_create(&mut pool, device, &config)), MILLPOND_ERROR_INVALID_VALUE);
    assert!(text.contains("0 means no limit") && !text.contains("None"), "{text}");

    must(c!(millpond_graph_create(&mut graph, device)));
    let text = refused(
        c!(millpond_graph_add_mem_alloc_node(null_mut(), graph, null(), 0, usize::MAX, &mut memory)),
        MILLPOND_ERROR_OUT_OF_MEMORY,
    );
    assert!(text.contains("no 18446744073709551615 B of physical memory left"), "{text}");
    let text = refused(c!(millpond_graph_add_empty_node(null_mut(), graph, &7, 1)), MILLPOND_ERROR_INVALID_HANDLE);
    assert!(text.contains("not a node of this graph"), "{text}");
}

#[test]
fn captures_and_instances_are_refused_in_words_of_c() {
    let device = host_device();
    let (stream, mut graph) = (stream_of(device), null_mut());
    must(c!(millpond_stream_begin_capture(stream)));
    let text = refused(c!(millpond_stream_query(stream)), MILLPOND_ERROR_CAPTURE);
    assert!(text.contains("a query while stream 1 is captured"), "{text}");
    refused(c!(millpond_stream_end_capture(stream, &mut graph)), MILLPOND_ERROR_CAPTURE);

    let (mut one, mut other, mut memory) = (null_mut(), null_mut(), nowhere());
    must(c!(millpond_graph_create(&mut graph, device)));
    must(c!(millpond_graph_add_mem_alloc_node(null_mut(), graph, null(), 0, 4096, &mut memory)));
    must(c!(millpond_graph_instantiate(&mut one, graph, 0)));
    let text = refused(c!(millpond_graph_instantiate(&mut other, graph, 0)), MILLPOND_ERROR_GRAPH);
    assert!(text.contains("has an instance already"), "{text}");
    assert!(!text.contains("symbolic"), "{text}");
}

/// Also if a graph has freed it, and not a call of the program with its pointer.
#[test]
fn memory_that_is_freed_gets_no_name() {
    let device = host_device();
    let (stream, (exec, memory)) = (stream_of(device), producer(device));
    let (mut freeing, mut frees) = (null_mut(), null_mut());
    must(c!(millpond_graph_create(&mut freeing, device)));
    must(c!(millpond_graph_add_mem_free_node(null_mut(), freeing, null(), 0, memory)));
    must(c!(millpond_graph_instantiate(&mut frees, freeing, 0)));
    must(c!(millpond_graph_launch(exec, stream)));
    must(c!(millpond_set_name(memory, c"weights".as_ptr())));
    must(c!(millpond_graph_launch(frees, stream)));
    let late = refused(c!(millpond_set_name(memory, c"late".as_ptr())), MILLPOND_ERROR_INVALID_VALUE);
    assert!(late.contains("is not the start of a live allocation"), "{late}");
    let again = refused(c!(millpond_free_async(memory, stream)), MILLPOND_ERROR_ORDER);
    assert!(
        again.contains("`weights` (allocation 0, 4.00 KiB) is freed on stream 1, but it is freed already"),
        "{again}"
    );
}

/// The pointer of a use may point anywhere into an allocation. The text speaks of bytes, not of elements, and of
/// memory, not of a buffer.
#[test]
fn a_use_outside_of_an_allocation_is_said_in_bytes() {
    let device = host_device();
    let (stream, mut memory) = (stream_of(device), nowhere());
    must(c!(millpond_malloc_async(&mut memory, 100, stream)));
    for (offset, bytes, said) in [
        (0, 101, "bytes 0..101 do not lie within the 100 B that are allocated at 0x"),
        (50, usize::MAX, "bytes 50..18446744073709551665 do not lie within the 100 B"),
        (100, 1, "is in no live allocation: it is 100 B inside allocation"),
        (4096, 1, "is in no live allocation: the nearest below is allocation"),
    ] {
        let used = c!(millpond_memset_async(memory.wrapping_byte_add(offset), 1, bytes, stream));
        let text = refused(used, MILLPOND_ERROR_INVALID_VALUE);
        assert!(text.contains(said), "{text}");
    }
}

/// Lines of this library are not given as places in the program, and no blanks are left where they were.
#[test]
fn no_line_of_a_text_ends_with_a_blank() {
    let device = host_device();
    let (stream, other, mut memory, mut graph) = (stream_of(device), stream_of(device), nowhere(), null_mut());
    must(c!(millpond_malloc_async(&mut memory, 100, stream)));
    let unordered = refused(c!(millpond_free_async(memory, other)), MILLPOND_ERROR_ORDER);
    must(c!(millpond_free_async(memory, stream)));
    must(c!(millpond_graph_create(&mut graph, device)));
    let (exec, left) = producer(device);
    must(c!(millpond_graph_launch(exec, stream)));
    must(c!(millpond_free_async(left, stream)));
    let not_live = refused(c!(millpond_memset_async(left, 1, 1, stream)), MILLPOND_ERROR_ORDER);
    must(c!(millpond_graph_exec_destroy(exec)));
    let gone = refused(c!(millpond_memset_async(left, 1, 1, stream)), MILLPOND_ERROR_ORDER);
    for text in [unordered, not_live, gone] {
        assert!(text.lines().all(|line| !line.ends_with(' ')), "{text:?}");
        has_no_place(&text);
    }
}

/// A message gives a stream's work by the stream's name.
#[test]
fn a_stream_is_called_by_its_name_wherever_it_is_named() {
    let (stream, mut memory) = (stream_of(host_device()), nowhere());
    must(c!(millpond_stream_set_name(stream, c"copies".as_ptr())));
    must(c!(millpond_malloc_async(&mut memory, 100, stream)));
    let inside = refused(c!(millpond_free_async(memory.wrapping_byte_add(1), stream)), MILLPOND_ERROR_INVALID_VALUE);
    assert!(inside.contains("allocated on stream `copies`"), "{inside}");
    must(c!(millpond_free_async(memory, stream)));
    let twice = refused(c!(millpond_free_async(memory, stream)), MILLPOND_ERROR_INVALID_VALUE);
    assert!(twice.contains("freed on stream `copies`"), "{twice}");
}

/// If there is no place for the handle, no object is made: a pool without a handle would keep its device.
#[test]
fn a_result_without_a_place_makes_nothing() {
    let made = answer(null_mut::<u32>(), "result", || panic!("nothing is made"));
    assert!(matches!(made, Err(Failure::Null("result"))));
    let device = host_device();
    refused(c!(millpond_device_get_default_pool(null_mut(), device)), MILLPOND_ERROR_INVALID_VALUE);
    refused(c!(millpond_device_get_pool(null_mut(), device)), MILLPOND_ERROR_INVALID_VALUE);
    refused(c!(millpond_event_create(null_mut())), MILLPOND_ERROR_INVALID_VALUE);
}

/// Every bit of a handle counts.
#[test]
fn a_handle_with_a_bit_more_is_none() {
    let stream = stream_of(host_device());
    let other = (stream as usize | 1 << 63) as millpond_stream_t;
    refused(c!(millpond_stream_synchronize(other)), MILLPOND_ERROR_INVALID_HANDLE);
}
