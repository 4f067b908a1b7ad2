//! Nodes by their numbers.

use super::*;
use crate::calls::graph::{
    millpond_graph_add_dependency, millpond_graph_add_empty_node, millpond_graph_add_mem_alloc_node,
    millpond_graph_create, millpond_graph_destroy, millpond_graph_get_node_count,
};
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
    // The places of handles serve again, with few bits for whose turn it is.
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
