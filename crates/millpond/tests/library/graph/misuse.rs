//! Graphs built node by node: the refusals, and what is allowed beyond CUDA.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millpond::Error;
use millpond::check::Kind;
use millpond::error::Invalid;
use millpond::graph::{Graph, Instantiate};
use millpond_driver::DriverError;

use super::made::{change, each, expect, is_kind, with_alloc};
use crate::common::visit;

fn fault(graph: &Graph) -> (Kind, String) {
    let refused = graph.instantiate(Instantiate::default()).unwrap_err();
    let fault = refused.violation().filter(|it| it.graph.is_some()).unwrap_or_else(|| panic!("{refused}"));
    (fault.kind, fault.help())
}

/// Asserts that the advice for a fault is an edge between two nodes, with their places.
fn assert_edge((kind, help): (Kind, String), expected: Kind, [from, to]: [&str; 2]) {
    assert_eq!(kind, expected);
    assert!(help.starts_with(&format!("add an edge from {from} (")), "{help}");
    assert!(help.contains(&format!(" to {to} (")), "{help}");
}

#[test]
fn missing_paths_are_named() {
    each(|on| {
        let device = &on.device;
        let (mut graph, x, alloc) = with_alloc(device);
        let stream = device.stream()?;
        let sink = stream.alloc::<u32>(&device.default_pool(), 16)?;
        let fill = graph.add_memset(&[], x.write(), 1)?;
        assert_edge(fault(&graph), Kind::UseBeforeAlloc, ["mem alloc node 0", "memset node 1"]);
        graph.add_edge(alloc, fill)?;
        let free = graph.add_free(&[alloc], x)?;
        assert_edge(fault(&graph), Kind::FreeBeforeUse, ["memset node 1", "mem free node 2"]);
        graph.add_edge(fill, free)?;
        let late = graph.add_copy(&[free], x.read(), sink.write())?;
        assert_eq!(fault(&graph).0, Kind::UseAfterFree);
        graph.remove_node(late)?;
        let racing = graph.add_copy(&[alloc], x.read(), sink.write())?;
        graph.add_edge(racing, free)?;
        assert_eq!(fault(&graph).0, Kind::Race);
        graph.add_edge(fill, racing)?;
        let _ = graph.instantiate(Instantiate::default())?.launch(&stream)?;
        expect(&stream, sink.read(), 1);
        Ok(())
    });
}

#[test]
fn who_may_free_what() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (mut owner, x, alloc) = with_alloc(device);
        // Never launched: by address and by name.
        assert!(stream.free_address(x.address()).unwrap_err().invalid().is_some());
        assert!(device.free_address(x.address()).unwrap_err().invalid().is_some());
        // Freed in its graph: not outside, not twice, not by another graph.
        let free = owner.add_free(&[alloc], x)?;
        assert!(change(owner.add_free(&[alloc], x).unwrap_err(), Kind::DoubleFree).contains("is freed already"));
        let exec = owner.instantiate(Instantiate::default())?;
        let launch = exec.launch(&stream)?;
        assert!(matches!(launch.take(x).unwrap_err().invalid(), Some(Invalid::NoOutput)));
        stream.synchronize()?;
        assert!(device.free_address(x.address()).unwrap_err().invalid().is_some());
        // Freed by another graph: then not by a third, nor by the owner.
        owner.remove_node(free)?;
        let mut other = device.graph()?;
        let other_free = other.add_free(&[], x)?;
        let mut third = device.graph()?;
        let by_other = |error: Error| is_kind(&error, Kind::DoubleFree);
        assert!(by_other(third.add_free(&[], x).unwrap_err()));
        assert!(by_other(owner.add_free(&[alloc], x).unwrap_err()));
        other.remove_node(other_free)?;
        third.add_free(&[], x)?;
        drop(third);
        owner.add_free(&[alloc], x)?;
        Ok(())
    });
}

#[test]
fn live_memory_is_freed_by_stream_host_address_or_capture() {
    each(|on| {
        let device = &on.device;
        let (stream, other) = (device.stream()?, device.stream()?);
        let (graph, x, _) = with_alloc(device);
        let exec = graph.instantiate(Instantiate::default())?;
        let _ = exec.launch(&stream)?;
        assert!(stream.free_address(x.address() + 256).unwrap_err().invalid().is_some());
        assert_eq!(other.free_address(x.address()).unwrap_err().violation().unwrap().kind, Kind::FreeBeforeAlloc);
        stream.free_address(x.address())?;
        let _ = exec.launch(&stream)?;
        stream.synchronize()?;
        device.free_address(x.address())?;
        let buffer = exec.launch(&stream)?.take(x)?;
        let (freeing, ()) = stream.capture(|s| s.free(buffer).map_err(Error::from))?;
        let freeing = freeing.instantiate(Instantiate::default())?;
        let _ = freeing.launch(&stream)?;
        // A dropped buffer frees, too.
        drop(exec.launch(&stream)?.take(x)?);
        let launch = exec.launch(&stream)?;
        let buffer = launch.take(x)?;
        assert!(matches!(launch.take(x).unwrap_err().invalid(), Some(Invalid::Taken)));
        other.wait(&stream.record()?)?;
        other.free(buffer)?;
        assert_eq!(visit(&stream, x.read()).unwrap_err().violation().unwrap().kind, Kind::UseAfterFree);
        Ok(())
    });
}

#[test]
fn sizes_that_cannot_be() {
    each(|on| {
        let device = &on.device;
        let mut graph = device.graph()?;
        assert!(change(graph.add_alloc::<u8>(&[], 0).unwrap_err(), Kind::GraphRefused).contains("at least 1 byte"));
        let huge = graph.add_alloc::<u8>(&[], 1 << 50).unwrap_err();
        assert!(
            matches!(huge, Error::Driver(ref error) if matches!(**error, DriverError::OutOfMemory { .. })),
            "{huge}"
        );
        let (other, _, node) = with_alloc(device);
        assert!(change(graph.add_empty(&[node]).unwrap_err(), Kind::GraphRefused).contains("is not in this graph"));
        drop(other);
        assert!(graph.is_empty());
        Ok(())
    });
}

#[test]
fn launches_of_an_instance_run_one_after_the_other() {
    each(|on| {
        let device = &on.device;
        let (left, right) = (device.stream()?, device.stream()?);
        let (early, late) = (left.alloc::<u32>(&device.default_pool(), 16)?, left.alloc(&device.default_pool(), 16)?);
        right.wait(&left.record()?)?;
        let (mut graph, x, alloc) = with_alloc(device);
        let running = Arc::new(AtomicU32::new(0));
        let (begun, over) = (Arc::clone(&running), Arc::clone(&running));
        let begin = graph.add_host_function(&[alloc], move || assert_eq!(begun.fetch_add(1, Ordering::AcqRel), 0))?;
        let fill = graph.add_memset(&[begin], x.write(), 1)?;
        let pause = graph.add_host_function(&[fill], || std::thread::sleep(Duration::from_millis(2)))?;
        let copy = graph.add_copy(&[pause], x.read(), early.write())?;
        let fill = graph.add_memset(&[copy], x.write(), 2)?;
        let copy = graph.add_copy(&[fill], x.read(), late.write())?;
        let end = graph.add_host_function(&[copy], move || assert_eq!(over.fetch_sub(1, Ordering::AcqRel), 1))?;
        graph.add_free(&[end], x)?;
        // The program does not order the two streams. The launches are ordered because they have the same addresses,
        // even if the instance is another one.
        let mut exec = graph.instantiate(Instantiate::default())?;
        for round in 0..6 {
            let _ = exec.launch([&left, &right][round % 2])?;
            if round == 2 {
                drop(exec);
                exec = graph.instantiate(Instantiate::default())?;
            }
        }
        left.wait(&right.record()?)?;
        expect(&left, early.read(), 1);
        expect(&left, late.read(), 2);
        Ok(())
    });
}

#[test]
fn child_graphs_may_hold_memory_nodes_once() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (mut child, x, alloc) = with_alloc(device);
        child.add_memset(&[alloc], x.write(), 1)?;
        let mut parent = device.graph()?;
        let node = parent.add_child(&[], &child)?;
        let copied = stream.alloc::<u32>(&device.default_pool(), 16)?;
        let copy = parent.add_copy(&[node], x.read(), copied.write())?;
        let last = parent.add_memset(&[copy], x.write(), 2)?;
        let exec = parent.instantiate(Instantiate::default())?;
        let buffer = exec.launch(&stream)?.take(x)?;
        expect(&stream, copied.read(), 1);
        expect(&stream, buffer.read(), 2);
        assert!(is_kind(&parent.add_child(&[last], &child).unwrap_err(), Kind::GraphRefused));
        Ok(())
    });
}

#[test]
fn a_race_between_a_graph_and_a_stream_is_refused_at_the_launch() {
    each(|on| {
        let device = &on.device;
        let (left, right) = (device.stream()?, device.stream()?);
        let x = left.alloc::<u32>(&device.default_pool(), 16)?;
        let mut graph = device.graph()?;
        graph.add_memset(&[], x.write(), 0)?;
        let exec = graph.instantiate(Instantiate::default())?;
        assert_eq!(exec.launch(&right).unwrap_err().violation().unwrap().kind, Kind::UseBeforeAlloc);
        right.wait(&left.record()?)?;
        visit(&left, x.read())?;
        assert_eq!(exec.launch(&right).unwrap_err().violation().unwrap().kind, Kind::Race);
        let _ = exec.launch(&left)?;
        assert_eq!(visit(&right, x.read()).unwrap_err().violation().unwrap().kind, Kind::Race);
        Ok(())
    });
}
