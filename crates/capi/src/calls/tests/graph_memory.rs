//! The memory of graphs that an address means.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::scope;

use millpond::config::Trace;
use millpond::{Device, HostConfig};
use millpond_core::check::{Checker, Settings};
use millpond_core::trace::ops::Reader;

use super::*;
use crate::calls::capture::{millpond_stream_begin_capture, millpond_stream_end_capture};
use crate::calls::device::millpond_device_destroy;
use crate::calls::exec::{
    millpond_graph_exec_destroy, millpond_graph_exec_t, millpond_graph_instantiate, millpond_graph_launch,
};
use crate::calls::graph::{
    millpond_graph_add_mem_alloc_node, millpond_graph_add_mem_free_node, millpond_graph_add_memset_node,
    millpond_graph_create, millpond_graph_destroy, millpond_graph_get_node_count,
};
use crate::calls::memory::{millpond_free_async, millpond_malloc_async};
use crate::calls::stream::{millpond_stream_destroy, millpond_stream_per_thread};
use crate::calls::work::millpond_memset_async;
use crate::status::millpond_status::*;
use crate::tables::device::{DEVICES, DeviceEntry};
use crate::tables::graph::{millpond_graph_node_t, millpond_graph_t};

/// A graph whose nodes come one after the other, and its instances.
struct Line {
    graph: millpond_graph_t,
    last: millpond_graph_node_t,
    execs: Vec<millpond_graph_exec_t>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.execs.iter().for_each(|exec| must(c!(millpond_graph_exec_destroy(*exec))));
        must(c!(millpond_graph_destroy(self.graph)));
    }
}

impl Line {
    fn new(device: millpond_device_t) -> Self {
        let mut graph = null_mut();
        must(c!(millpond_graph_create(&mut graph, device)));
        Self { graph, last: 0, execs: Vec::new() }
    }

    fn add(&mut self, add: impl FnOnce(*mut u64, millpond_graph_t, *const u64, usize) -> millpond_status) {
        let (after, mut node) = (self.last, 0);
        must(add(&mut node, self.graph, &after, usize::from(after != 0)));
        self.last = node;
    }

    fn alloc(&mut self, bytes: usize) -> *mut c_void {
        let mut at = nowhere();
        self.add(|node, graph, after, count| {
            c!(millpond_graph_add_mem_alloc_node(node, graph, after, count, bytes, &mut at))
        });
        at
    }

    fn free(&mut self, at: *mut c_void) {
        self.add(|node, graph, after, count| c!(millpond_graph_add_mem_free_node(node, graph, after, count, at)));
    }

    fn fill(&mut self, at: *mut c_void, bytes: usize) {
        self.add(|node, graph, after, count| {
            c!(millpond_graph_add_memset_node(node, graph, after, count, at, 7, bytes))
        });
    }

    fn instance(&mut self) -> millpond_graph_exec_t {
        let mut exec = null_mut();
        must(c!(millpond_graph_instantiate(&mut exec, self.graph, 0)));
        self.execs.push(exec);
        exec
    }
}

/// Runs `act` on a stream of a device with a trace: a checker finds nothing wrong there either.
fn right(name: &str, act: impl FnOnce(millpond_device_t, millpond_stream_t)) {
    let path = std::env::temp_dir().join(format!("millpond-{}-{name}.trace", std::process::id()));
    let trace = Trace::create(&path).expect("a trace");
    let opened = Device::host(HostConfig::default().trace(Some(trace.clone()))).expect("a host device");
    let device = DEVICES.insert(Arc::new(DeviceEntry::new(opened))).ok().expect("there is room");
    let stream = stream_of(device);
    act(device, stream);
    must(c!(millpond_stream_destroy(stream)));
    must(c!(millpond_device_destroy(device)));
    drop(trace);
    let (mut reader, mut checker, mut findings) = (Reader::new(), Checker::new(Settings::default()), Vec::new());
    reader.feed(&std::fs::read(&path).expect("it was written"));
    while let Some(op) = reader.next_op().expect("it is whole") {
        checker.check(&op, reader.names(), &mut findings);
    }
    assert!(reader.is_finished(), "the device is gone");
    checker.finish(reader.names(), &mut findings);
    findings.retain(|finding| !finding.kind.is_advice());
    assert!(findings.is_empty(), "{findings:?}");
    std::fs::remove_file(path).expect("it is there");
}

/// Two small allocations, then one in the place of both and more.
#[test]
fn an_address_within_a_later_allocation_means_that_one() {
    right("within", |device, stream| {
        let mut line = Line::new(device);
        let small = [line.alloc(512), line.alloc(512)];
        small.iter().for_each(|at| line.free(*at));
        let large = line.alloc(4096);
        assert_eq!([large, large.wrapping_byte_add(512)], small, "the addresses serve again");
        for offset in [600, 1030] {
            line.fill(large.wrapping_byte_add(offset), 100);
        }
        must(c!(millpond_graph_launch(line.instance(), stream)));
        for offset in [600, 1030] {
            must(c!(millpond_memset_async(large.wrapping_byte_add(offset), 7, 100, stream)));
        }
        must(c!(millpond_free_async(large, stream)));
    });
}

/// An address in the rest of a former allocation means that allocation, and its uses are refused as such.
#[test]
fn an_address_of_the_rest_of_a_former_allocation_means_that_one() {
    let device = host_device();
    let mut line = Line::new(device);
    let large = line.alloc(4096);
    line.free(large);
    assert_eq!(line.alloc(512), large);
    line.fill(large, 512);
    line.fill(large.wrapping_byte_add(1024), 512);
    let refused = refused(c!(millpond_graph_instantiate(&mut null_mut(), line.graph, 0)), MILLPOND_ERROR_GRAPH);
    assert!(refused.contains("graph allocation 0 (4.00 KiB) is written by memset node 4, after it"), "{refused}");
}

/// An instance leaves live what its graph left when the instance was made, whatever nodes the graph got since.
#[test]
fn what_an_instance_leaves_is_known_when_its_graph_has_another_node_there() {
    right("another_node", |device, stream| {
        let mut line = Line::new(device);
        let memory = line.alloc(512);
        let before = line.instance();
        line.free(memory);
        assert_eq!(line.alloc(512), memory);
        for _ in 0..2 {
            must(c!(millpond_graph_launch(before, stream)));
            must(c!(millpond_memset_async(memory, 7, 512, stream)));
            must(c!(millpond_memset_async(memory.wrapping_byte_add(100), 7, 100, stream)));
            must(c!(millpond_free_async(memory, stream)));
        }
    });
}

/// One thread ends a capture while another allocates on a second handle of its stream. Memory allocated before the end
/// is the graph's, however late that thread is.
#[test]
fn an_allocation_beside_the_end_of_its_capture_is_the_graphs() {
    const ASKED: usize = usize::MAX;
    let (device, at, mut own, mut second) = (host_device(), AtomicUsize::new(0), null_mut(), null_mut());
    must(c!(millpond_stream_per_thread(&mut own, device)));
    must(c!(millpond_stream_per_thread(&mut second, device)));
    let second = Shared(second);
    let rounds = 400;
    scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                while at.load(SeqCst) != ASKED {
                    std::thread::yield_now();
                }
                let mut memory = nowhere();
                must(c!(millpond_malloc_async(&mut memory, 4096, second.get())));
                at.store(memory as usize, SeqCst);
            }
        });
        for round in 0..rounds {
            let (mut graph, mut exec, mut nodes) = (null_mut(), null_mut(), 0);
            must(c!(millpond_stream_begin_capture(own)));
            at.store(ASKED, SeqCst);
            (0..round % 16 * 100).for_each(|_| std::hint::spin_loop());
            must(c!(millpond_stream_end_capture(own, &mut graph)));
            while at.load(SeqCst) == ASKED {
                std::thread::yield_now();
            }
            must(c!(millpond_graph_get_node_count(&mut nodes, graph)));
            must(c!(millpond_graph_instantiate(&mut exec, graph, 0)));
            must(c!(millpond_graph_launch(exec, own)));
            let memory = at.load(SeqCst) as *mut c_void;
            let filled = c!(millpond_memset_async(memory, 7, 4096, own));
            assert_eq!(filled, MILLPOND_SUCCESS, "round {round}, {nodes} nodes: {}", last_error());
            must(c!(millpond_free_async(memory, own)));
            must(c!(millpond_graph_exec_destroy(exec)));
            must(c!(millpond_graph_destroy(graph)));
        }
    });
}
