//! Graphs, node by node.

use std::cmp::Ordering;
use std::ffi::c_void;
use std::sync::Arc;

use millpond::graph::GraphNode;

use super::access::{Part, graph_memory, list, millpond_access, part};
use super::work::{Kernel, millpond_kernel};
use crate::status::{Failure, Result, guard, millpond_status, place, slice};
use crate::tables::device::{DEVICES, millpond_device_t};
use crate::tables::event::{millpond_event_t, with_external};
use crate::tables::graph::{GRAPHS, GraphEntry, add, millpond_graph_node_t, millpond_graph_t};
use millpond_driver::locks::lock;

/// Adds a node to a graph; all entries here use this.
fn add_node(
    node: *mut millpond_graph_node_t,
    graph: millpond_graph_t,
    dependencies: *const millpond_graph_node_t,
    count: usize,
    make: impl FnOnce(&mut GraphEntry, &[GraphNode]) -> Result<GraphNode>,
) -> Result<()> {
    let numbers = slice(dependencies, count, "dependencies")?;
    let entry = GRAPHS.find(graph)?;
    add_node_to(&mut lock(&entry), node, numbers, make)
}

fn add_node_to(
    entry: &mut GraphEntry,
    node: *mut millpond_graph_node_t,
    numbers: &[millpond_graph_node_t],
    make: impl FnOnce(&mut GraphEntry, &[GraphNode]) -> Result<GraphNode>,
) -> Result<()> {
    let after = numbers.iter().map(|number| entry.node(*number)).collect::<Result<Vec<_>>>()?;
    let made = make(entry, &after)?;
    let number = entry.number(made);
    if !node.is_null() {
        *place(node, "node")? = number;
    }
    Ok(())
}

/// Makes an empty graph (CUDA: cudaGraphCreate).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_create(
    graph: *mut millpond_graph_t,
    device: millpond_device_t,
) -> millpond_status {
    guard("millpond_graph_create", || {
        let (graph, device) = (place(graph, "graph")?, DEVICES.find(device)?);
        *graph = add(device.device.graph()?, device)?;
        Ok(())
    })
}

/// Destroys a graph (CUDA: cudaGraphDestroy). Its instances, and what they allocated, live on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_destroy(graph: millpond_graph_t) -> millpond_status {
    guard("millpond_graph_destroy", || GRAPHS.remove(graph).map(drop))
}

/// Adds an alloc node (CUDA: cudaGraphAddMemAllocNode). Its address is known at once and does not change. It may be the
/// address of an earlier allocation whose free node comes before this node, by the edges that exist now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_add_mem_alloc_node(
    node: *mut millpond_graph_node_t,
    graph: millpond_graph_t,
    dependencies: *const millpond_graph_node_t,
    count: usize,
    bytes: usize,
    pointer: *mut *mut c_void,
) -> millpond_status {
    guard("millpond_graph_add_mem_alloc_node", || {
        let pointer = place(pointer, "pointer")?;
        add_node(node, graph, dependencies, count, |entry, after| {
            let memory = entry.graph.add_alloc::<u8>(after, bytes)?;
            let node = entry.graph.node_of(memory).ok_or(Failure::Value("an alloc node needs bytes".into()))?;
            *pointer = memory.address() as *mut c_void;
            Ok(node)
        })
    })
}

/// Adds a free node for memory of this graph, or of another graph that leaves it live (CUDA: cudaGraphAddMemFreeNode).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_add_mem_free_node(
    node: *mut millpond_graph_node_t,
    graph: millpond_graph_t,
    dependencies: *const millpond_graph_node_t,
    count: usize,
    pointer: *mut c_void,
) -> millpond_status {
    guard("millpond_graph_add_mem_free_node", || {
        add_node(node, graph, dependencies, count, |entry, after| {
            let found = graph_memory(&entry.device, Some(&entry.graph), pointer as u64);
            match found {
                Some((memory, 0)) => Ok(entry.graph.add_free(after, memory)?),
                _ => Err(Failure::Value(format!("{pointer:p} is not the start of a graph's allocation"))),
            }
        })
    })
}

/// Adds a kernel node (CUDA: cudaGraphAddKernelNode). Each launch runs the kernel again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_add_kernel_node(
    node: *mut millpond_graph_node_t,
    graph: millpond_graph_t,
    dependencies: *const millpond_graph_node_t,
    count: usize,
    kernel: millpond_kernel,
    argument: *mut c_void,
    accesses: *const millpond_access,
    access_count: usize,
) -> millpond_status {
    guard("millpond_graph_add_kernel_node", || {
        let kernel = Kernel::new(kernel, argument)?;
        let accesses = slice(accesses, access_count, "accesses")?;
        add_node(node, graph, dependencies, count, |entry, after| {
            let accesses = list(&entry.device, Some(&entry.graph), accesses)?;
            Ok(entry.graph.add_kernel(after, accesses, move |()| kernel.run())?)
        })
    })
}

/// Adds a node that sets each byte (CUDA: cudaGraphAddMemsetNode).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_add_memset_node(
    node: *mut millpond_graph_node_t,
    graph: millpond_graph_t,
    dependencies: *const millpond_graph_node_t,
    count: usize,
    pointer: *mut c_void,
    value: i32,
    bytes: usize,
) -> millpond_status {
    guard("millpond_graph_add_memset_node", || {
        add_node(node, graph, dependencies, count, |entry, after| {
            let own = Some(&entry.graph);
            let Part { memory, offset, bytes } = part(&entry.device, own, pointer as u64, Some(bytes))?;
            Ok(entry.graph.add_memset(after, memory.write(offset, bytes)?, value as u8)?)
        })
    })
}

/// Adds a copy between device memory (CUDA: cudaGraphAddMemcpyNode1D).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_add_memcpy_node(
    node: *mut millpond_graph_node_t,
    graph: millpond_graph_t,
    dependencies: *const millpond_graph_node_t,
    count: usize,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> millpond_status {
    guard("millpond_graph_add_memcpy_node", || {
        add_node(node, graph, dependencies, count, |entry, after| {
            let own = Some(&entry.graph);
            let source = part(&entry.device, own, from as u64, Some(bytes))?;
            let target = part(&entry.device, own, to as u64, Some(bytes))?;
            let read = source.memory.read(source.offset, source.bytes)?;
            Ok(entry.graph.add_copy(after, read, target.memory.write(target.offset, target.bytes)?)?)
        })
    })
}

/// Adds a node that does nothing, where edges can meet (CUDA: cudaGraphAddEmptyNode).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_add_empty_node(
    node: *mut millpond_graph_node_t,
    graph: millpond_graph_t,
    dependencies: *const millpond_graph_node_t,
    count: usize,
) -> millpond_status {
    guard("millpond_graph_add_empty_node", || {
        add_node(node, graph, dependencies, count, |entry, after| Ok(entry.graph.add_empty(after)?))
    })
}

/// Adds a node that records an event at each launch (CUDA: cudaGraphAddEventRecordNode). Work that waits for the event
/// afterwards comes after this node and all nodes before it, not after the whole launch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_add_event_record_node(
    node: *mut millpond_graph_node_t,
    graph: millpond_graph_t,
    dependencies: *const millpond_graph_node_t,
    count: usize,
    event: millpond_event_t,
) -> millpond_status {
    guard("millpond_graph_add_event_record_node", || {
        add_node(node, graph, dependencies, count, |entry, after| {
            let GraphEntry { graph, device, .. } = entry;
            with_external(event, &device.device, |event| Ok(graph.add_event_record(after, event)?))
        })
    })
}

/// Adds a node that waits, at each launch, for the event's last record at that time (CUDA: cudaGraphAddEventWaitNode).
/// Only nodes after this one wait. An event that was never recorded has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_add_event_wait_node(
    node: *mut millpond_graph_node_t,
    graph: millpond_graph_t,
    dependencies: *const millpond_graph_node_t,
    count: usize,
    event: millpond_event_t,
) -> millpond_status {
    guard("millpond_graph_add_event_wait_node", || {
        add_node(node, graph, dependencies, count, |entry, after| {
            let GraphEntry { graph, device, .. } = entry;
            with_external(event, &device.device, |event| Ok(graph.add_event_wait(after, event)?))
        })
    })
}

/// Adds a copy of a whole graph as one node, with its memory nodes (CUDA: cudaGraphAddChildGraphNode).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_add_child_graph_node(
    node: *mut millpond_graph_node_t,
    graph: millpond_graph_t,
    dependencies: *const millpond_graph_node_t,
    count: usize,
    child: millpond_graph_t,
) -> millpond_status {
    guard("millpond_graph_add_child_graph_node", || {
        let numbers = slice(dependencies, count, "dependencies")?;
        let (parent, child) = (GRAPHS.find(graph)?, GRAPHS.find(child)?);
        let (mut parent, child) = match Arc::as_ptr(&parent).cmp(&Arc::as_ptr(&child)) {
            Ordering::Less => {
                let parent = lock(&parent);
                (parent, lock(&child))
            }
            Ordering::Greater => {
                let child = lock(&child);
                (lock(&parent), child)
            }
            Ordering::Equal => return Err(Failure::Value("a graph cannot be its own child".into())),
        };
        add_node_to(&mut parent, node, numbers, |entry, after| Ok(entry.graph.add_child(after, &child.graph)?))
    })
}

/// Adds an edge (CUDA: cudaGraphAddDependencies).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_add_dependency(
    graph: millpond_graph_t,
    from: millpond_graph_node_t,
    to: millpond_graph_node_t,
) -> millpond_status {
    guard("millpond_graph_add_dependency", || {
        let entry = GRAPHS.find(graph)?;
        let mut entry = lock(&entry);
        let (from, to) = (entry.node(from)?, entry.node(to)?);
        Ok(entry.graph.add_edge(from, to)?)
    })
}

/// Returns the number of nodes of a graph (CUDA: cudaGraphGetNodes).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_get_node_count(count: *mut usize, graph: millpond_graph_t) -> millpond_status {
    guard("millpond_graph_get_node_count", || {
        let entry = GRAPHS.find(graph)?;
        *place(count, "count")? = lock(&entry).graph.len();
        Ok(())
    })
}
