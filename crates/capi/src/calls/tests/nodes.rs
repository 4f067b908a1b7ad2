//! Nodes by their numbers.

use super::*;
use crate::calls::exec::{millpond_graph_instantiate, millpond_graph_launch};
use crate::calls::graph::{
    millpond_graph_add_child_graph_node, millpond_graph_add_dependency, millpond_graph_add_empty_node,
    millpond_graph_add_mem_alloc_node, millpond_graph_add_memcpy_node, millpond_graph_add_memset_node,
    millpond_graph_create, millpond_graph_destroy, millpond_graph_get_node_count,
};
use crate::calls::memory::millpond_malloc_async;
use crate::calls::work::{millpond_memcpy_dtoh, millpond_memset_async};
use crate::status::millpond_status::*;
use crate::tables::graph::{millpond_graph_node_t, millpond_graph_t};

fn graph_of(device: millpond_device_t) -> millpond_graph_t {
    let mut graph = null_mut();
    must(c!(millpond_graph_create(&mut graph, device)));
    graph
}

fn empty_node(graph: millpond_graph_t) -> millpond_graph_node_t {
    let mut node = 0;
    must(c!(millpond_graph_add_empty_node(&mut node, graph, null(), 0)));
    node
}

#[test]
fn a_number_of_a_graph_that_is_gone_is_good_for_no_other() {
    let device = host_device();
    let first = graph_of(device);
    let (gone, own) = (empty_node(first), empty_node(first));
    must(c!(millpond_graph_add_dependency(first, gone, own)));
    must(c!(millpond_graph_destroy(first)));
    // The slots of handles are reused, and few bits tell their generations apart.
    for _ in 0..8 {
        let graph = graph_of(device);
        let (node, mut after) = (empty_node(graph), 0);
        refused(c!(millpond_graph_add_empty_node(&mut after, graph, &gone, 1)), MILLPOND_ERROR_INVALID_HANDLE);
        refused(c!(millpond_graph_add_dependency(graph, gone, node)), MILLPOND_ERROR_INVALID_HANDLE);
        must(c!(millpond_graph_destroy(graph)));
    }
}

#[test]
fn an_alloc_node_that_is_refused_writes_nothing() {
    let (device, mut node, mut count) = (host_device(), 99, 0);
    let (graph, there) = (graph_of(device), 0x1234 as *mut c_void);
    let mut pointer = there;
    refused(c!(millpond_graph_add_mem_alloc_node(&mut node, graph, null(), 0, 0, &mut pointer)), MILLPOND_ERROR_GRAPH);
    must(c!(millpond_graph_get_node_count(&mut count, graph)));
    assert_eq!((node, pointer, count), (99, there, 0));
}

/// Nodes of 0 bytes do nothing. Only an access of 0 bytes means all to the end.
#[test]
fn a_node_of_no_bytes_touches_nothing() {
    let (device, mut exec) = (host_device(), null_mut());
    let (stream, graph) = (stream_of(device), graph_of(device));
    let [mut p, mut q] = [nowhere(); 2];
    for (pointer, value) in [(&mut p, 7), (&mut q, 9)] {
        must(c!(millpond_malloc_async(pointer, 64, stream)));
        must(c!(millpond_memset_async(*pointer, value, 64, stream)));
    }
    let mut node = 0;
    must(c!(millpond_graph_add_memset_node(&mut node, graph, null(), 0, p, 1, 0)));
    must(c!(millpond_graph_add_memcpy_node(null_mut(), graph, &node, 1, q, p, 0)));
    must(c!(millpond_graph_instantiate(&mut exec, graph, 0)));
    must(c!(millpond_graph_launch(exec, stream)));
    for (pointer, value) in [(p, 7), (q, 9)] {
        let mut bytes = [0_u8; 64];
        must(c!(millpond_memcpy_dtoh(bytes.as_mut_ptr().cast(), pointer, 64, stream)));
        assert_eq!(bytes, [value; 64]);
    }
}

/// Several threads use one graph as a child; two make each other's parents.
#[test]
fn a_child_is_used_by_several_threads() {
    let device = host_device();
    let (child, one, other) = (Shared(graph_of(device)), Shared(graph_of(device)), Shared(graph_of(device)));
    empty_node(child.get());
    let add = |graph: Shared<_>, of: Shared<_>| {
        must(c!(millpond_graph_add_child_graph_node(null_mut(), graph.get(), null(), 0, of.get())));
    };
    std::thread::scope(|scope| {
        for graph in [one, other] {
            scope.spawn(move || (0..200).for_each(|_| add(graph, child)));
        }
    });
    let (left, right) = (Shared(graph_of(device)), Shared(graph_of(device)));
    std::thread::scope(|scope| {
        scope.spawn(|| (0..6).for_each(|_| add(left, right)));
        scope.spawn(|| (0..6).for_each(|_| add(right, left)));
    });
    let own = c!(millpond_graph_add_child_graph_node(null_mut(), one.get(), null(), 0, one.get()));
    assert!(refused(own, MILLPOND_ERROR_INVALID_VALUE).contains("its own child"));
}
