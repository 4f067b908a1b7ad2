//! The error of each misuse of graphs that no litmus program can state: a test for each. A refusal changes nothing:
//! most tests end with a right launch of the same graph. Misuse of captures is in `capture_refusals.rs`, and the rules
//! of who may free what in `crates/litmus/tests/live/refusals`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millpond::check::Kind;
use millpond::error::Invalid;
use millpond::graph::{Graph, GraphExec, Instantiate};
use millpond::{Error, Result};
use millpond_driver::DriverError;

use super::made::{change, each, expect, filled, instance, is_kind, is_of_graph, with_alloc};
use crate::common::visit;

fn is_unfreed(error: &Error) -> bool {
    is_kind(error, Kind::UnfreedLaunch)
}

fn is_no_allocation(error: &Error) -> bool {
    matches!(error.invalid(), Some(Invalid::Pointer { .. }))
}

#[test]
fn a_relaunch_with_unfreed_memory_enqueues_nothing() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let count = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&count);
        let (mut graph, out, _) = with_alloc(device);
        graph.add_host_function(&[], move || {
            counter.fetch_add(1, Ordering::Relaxed);
        })?;
        let exec = instance(&graph)?;
        let _ = exec.launch(&stream)?;
        for _ in 0..3 {
            assert!(is_unfreed(&exec.launch(&stream).unwrap_err()));
        }
        stream.synchronize()?;
        assert_eq!(count.load(Ordering::Relaxed), 1);
        // Once the free is issued, even if it has not run.
        stream.free_address(out.address())?;
        let _ = exec.launch(&stream)?;
        stream.synchronize()?;
        assert_eq!(count.load(Ordering::Relaxed), 2);
        stream.free_address(out.address())
    });
}

#[test]
fn a_relaunch_on_another_stream_than_the_free_waits_for_nothing_but_its_order() {
    each(|on| {
        let device = &on.device;
        let (left, right) = (device.stream()?, device.stream()?);
        let (graph, out, _) = with_alloc(device);
        let exec = instance(&graph)?;
        let buffer = exec.launch(&left)?.take(out)?;
        right.wait(&left.record()?)?;
        right.free(buffer)?;
        // The addresses are free after a point of `right`. On the device, the launch comes after that on any stream.
        let buffer = exec.launch(&left)?.take(out)?;
        left.memset(buffer.write(), 3)?;
        expect(&left, buffer.read(), 3);
        Ok(())
    });
}

#[test]
fn memory_is_taken_from_a_launch_once_and_only_if_that_leaves_it() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (mut graph, x, alloc) = with_alloc(device);
        let exec = instance(&graph)?;
        let launch = exec.launch(&stream)?;
        // What is taken and dropped is free.
        drop(launch.take(x)?);
        assert!(matches!(launch.take(x).unwrap_err().invalid(), Some(Invalid::Taken)));
        drop((launch, exec));
        graph.add_free(&[alloc], x)?;
        let launch = instance(&graph)?.launch(&stream)?;
        assert!(matches!(launch.take(x).unwrap_err().invalid(), Some(Invalid::NoOutput)));
        Ok(())
    });
}

#[test]
fn a_free_of_no_base_is_refused_with_what_is_there() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (graph, x, _) = with_alloc(device);
        let _ = instance(&graph)?.launch(&stream)?;
        for offset in [1, 32, 64, 256] {
            let refused = stream.free_address(x.address() + offset).unwrap_err();
            assert!(is_no_allocation(&refused), "{refused}");
            assert!(refused.report().to_string().contains(&format!("it is {offset} B inside allocation")), "{refused}");
        }
        for address in [0x1000, (&raw const device) as u64] {
            assert!(is_no_allocation(&stream.free_address(address).unwrap_err()));
        }
        stream.free_address(0)?;
        stream.free_address(x.address())
    });
}

#[test]
fn a_free_node_that_is_one_too_many_foreign_or_of_nothing_is_refused() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (mut graph, x, alloc) = with_alloc(device);
        let plain = stream.alloc::<u32>(&device.default_pool(), 4)?.into_alloc_node();
        assert!(change(graph.add_free(&[], plain).unwrap_err(), Kind::CaptureForeignFree).contains("this is none"));
        assert_eq!(plain.address(), 0);
        let elsewhere = with_alloc(&on.another().device).1;
        assert!(graph.add_free(&[], elsewhere).unwrap_err().report().to_string().contains("another device"));
        graph.add_free(&[alloc], x)?;
        assert!(change(graph.add_free(&[alloc], x).unwrap_err(), Kind::DoubleFree).contains("is freed already"));
        assert_eq!(graph.len(), 2, "what was refused is not there");
        let _ = instance(&graph)?.launch(&stream)?;
        Ok(())
    });
}

#[test]
fn an_alloc_node_without_bytes_or_larger_than_the_device_is_refused() {
    each(|on| {
        let device = &on.device;
        let mut graph = device.graph()?;
        assert!(change(graph.add_alloc::<u8>(&[], 0).unwrap_err(), Kind::GraphRefused).contains("at least 1 byte"));
        for bytes in [1 << 50, usize::MAX] {
            let huge = graph.add_alloc::<u64>(&[], bytes).unwrap_err();
            let is_memory = |error: &DriverError| matches!(error, DriverError::OutOfMemory { .. });
            assert!(matches!(huge, Error::Driver(ref error) if is_memory(error)), "{huge}");
        }
        assert!(graph.is_empty());
        Ok(())
    });
}

#[test]
fn dependencies_that_are_foreign_repeated_or_gone_are_refused() {
    each(|on| {
        let device = &on.device;
        let (mut graph, x, alloc) = with_alloc(device);
        assert!(change(graph.add_empty(&[alloc, alloc]).unwrap_err(), Kind::GraphRefused).contains("is there already"));
        let foreign = device.graph()?.add_empty(&[])?;
        assert!(change(graph.add_empty(&[foreign]).unwrap_err(), Kind::GraphRefused).contains("is not in this graph"));
        let gone = graph.add_empty(&[])?;
        graph.remove_node(gone)?;
        assert!(
            change(graph.add_alloc::<u8>(&[gone], 1).unwrap_err(), Kind::GraphRefused).contains("is not in this graph")
        );
        assert!(change(graph.add_free(&[gone], x).unwrap_err(), Kind::GraphRefused).contains("is not in this graph"));
        assert!(change(graph.add_edge(alloc, gone).unwrap_err(), Kind::GraphRefused).contains("is not in this graph"));
        let after = graph.add_memset(&[alloc], x.write(), 0)?;
        assert!(change(graph.add_edge(after, alloc).unwrap_err(), Kind::GraphRefused).contains("would close a circle"));
        assert!(change(graph.add_edge(alloc, alloc).unwrap_err(), Kind::GraphRefused).contains("would close a circle"));
        assert!(change(graph.remove_edge(after, alloc).unwrap_err(), Kind::GraphRefused).contains("there is no edge"));
        assert!(change(graph.remove_node(alloc).unwrap_err(), Kind::GraphRefused).contains("uses its memory"));
        assert_eq!(graph.len(), 2);
        let _ = instance(&graph)?.launch(&device.stream()?)?;
        Ok(())
    });
}

#[test]
fn conditional_nodes_are_refused() {
    each(|on| {
        let device = &on.device;
        let (mut graph, _, alloc) = with_alloc(device);
        let refused = graph.add_conditional(&[alloc]).unwrap_err();
        assert!(refused.report().to_string().contains("conditional nodes are not supported"), "{refused}");
        assert!(change(refused, Kind::GraphRefused).contains("conditional nodes are not supported"));
        assert_eq!(graph.len(), 1);
        Ok(())
    });
}

/// Auto-free frees at launches only: not when the instance is dropped. It changes nothing for a graph that frees all
/// its memory.
#[test]
fn auto_free_leaves_what_the_last_launch_made() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let settings = Instantiate::default().auto_free_on_launch(true);
        let (mut graph, out, alloc) = with_alloc(device);
        graph.add_memset(&[alloc], out.write(), 3)?;
        let exec = graph.instantiate(settings)?;
        let first = exec.launch(&stream)?.take(out)?;
        let second = exec.launch(&stream)?.take(out)?;
        assert_eq!(stream.free(first).unwrap_err().error.violation().unwrap().kind, Kind::StaleFree);
        drop((exec, graph));
        expect(&stream, second.read(), 3);
        stream.free(second)?;
        let (mut graph, x, alloc) = with_alloc(device);
        graph.add_free(&[alloc], x)?;
        let exec = graph.instantiate(settings)?;
        for _ in 0..3 {
            let _ = exec.launch(&stream)?;
        }
        Ok(())
    });
}

#[test]
fn high_marks_are_reset_to_what_is_current() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (graph, x, _) = with_alloc(device);
        assert_eq!(device.graph_memory(), millpond::graph::GraphMemoryStatistics::default());
        let _ = instance(&graph)?.launch(&stream)?;
        stream.free_address(x.address())?;
        stream.synchronize()?;
        // Freed memory is not given back: used and reserved fall with a trim.
        let kept = device.graph_memory();
        assert!(kept.used_bytes > 0 && kept.reserved_bytes >= kept.used_bytes);
        device.trim_graph_memory()?;
        let trimmed = device.graph_memory();
        assert_eq!((trimmed.used_bytes, trimmed.reserved_bytes), (0, 0));
        assert_eq!((trimmed.used_high_bytes, trimmed.reserved_high_bytes), (kept.used_bytes, kept.reserved_bytes));
        device.reset_graph_memory_high();
        assert_eq!(device.graph_memory(), millpond::graph::GraphMemoryStatistics::default());
        Ok(())
    });
}

fn update(exec: &mut GraphExec, graph: &Graph) -> String {
    change(exec.update(graph).unwrap_err(), Kind::GraphRefused)
}

/// An update may change what nodes do, but not edges and kinds. The instance is as before.
#[test]
fn an_update_from_a_graph_of_another_shape_is_refused() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let out = stream.alloc::<u32>(&device.default_pool(), 16)?;
        let first = out.view().slice(..1)?;
        let fills = |value: u8, len: usize| {
            stream.capture(|s| {
                s.memset(out.write(), value)?;
                (0..len).try_for_each(|_| s.memset(first.write(), value + 1))
            })
        };
        let (one, two, longer) = (fills(1, 1)?.0, fills(2, 1)?.0, fills(2, 2)?.0);
        let found = |value| {
            let mut found = [filled(value); 16];
            found[0] = filled(value + 1);
            found
        };
        let mut exec = instance(&one)?;
        let _ = exec.launch(&stream)?;
        assert_eq!(stream.copy_to_host(out.read())?, found(1));
        exec.update(&two)?;
        let _ = exec.launch(&stream)?;
        assert_eq!(stream.copy_to_host(out.read())?, found(2));
        assert!(update(&mut exec, &longer).contains("the graphs differ in their edges"));
        let (fill, ()) = stream.capture(|s| {
            s.memset(out.write(), 0)?;
            s.copy_from_host(out.write(), &[0; 16])
        })?;
        assert!(update(&mut exec, &fill).contains("is of another kind"));
        let mut wrong = device.graph()?;
        let first = wrong.add_memset(&[], out.write(), 0)?;
        wrong.add_memset(&[], out.write(), 0)?;
        assert!(is_of_graph(&exec.update(&wrong).unwrap_err()));
        wrong.remove_node(first)?;
        stream.memset(out.write(), 0)?;
        let _ = exec.launch(&stream)?;
        assert_eq!(stream.copy_to_host(out.read())?, found(2));
        Ok(())
    });
}

/// An instance with memory nodes can be updated from its own graph, but not from one with other memory.
#[test]
fn an_update_with_other_memory_nodes_is_refused() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (graph, x, _) = with_alloc(device);
        let exec = instance(&graph)?;
        let buffer = exec.launch(&stream)?.take(x)?;
        exec.update(&graph)?;
        assert!(is_unfreed(&exec.launch(&stream).unwrap_err()), "what is live stays so");
        stream.free(buffer)?;
        let mut larger = device.graph()?;
        larger.add_alloc::<u32>(&[], 17)?;
        assert!(is_kind(&exec.update(&larger).unwrap_err(), Kind::GraphRefused));
        let _ = exec.launch(&stream)?;
        stream.free_address(x.address())?;
        let symbolic = |len| -> Result<Graph> {
            let mut graph = device.symbolic_graph()?;
            graph.add_alloc::<u32>(&[], len)?;
            Ok(graph)
        };
        let mut exec = instance(&symbolic(16)?)?;
        exec.update(&symbolic(16)?)?;
        assert!(update(&mut exec, &symbolic(17)?).contains("allocates or frees other memory"));
        Ok(())
    });
}

/// Names of one device are unknown on another, even if its graphs have the same numbers.
#[test]
fn names_of_another_device_are_refused() {
    each(|on| {
        let second = on.another();
        let (here, there) = (&on.device, &second.device);
        let (stream, mut graph) = (here.stream()?, here.graph()?);
        let ours = graph.add_alloc::<u32>(&[], 16)?;
        let (_other, theirs, their_node) = {
            let mut graph = there.graph()?;
            let theirs = graph.add_alloc::<u32>(&[], 1 << 20)?;
            let node = graph.node_of(theirs).unwrap();
            (graph, theirs, node)
        };
        let is_other = |error: &Error| matches!(error.invalid(), Some(Invalid::OtherDevice { .. }));
        assert!(is_other(&graph.add_memset(&[], theirs.write(), 0).unwrap_err()));
        assert!(is_other(&graph.add_free(&[], theirs).unwrap_err()));
        assert!(
            change(graph.add_empty(&[their_node]).unwrap_err(), Kind::GraphRefused).contains("is not in this graph")
        );
        assert_eq!((graph.node_of(theirs), graph.len()), (None, 1));
        let exec = instance(&graph)?;
        assert_eq!(exec.address_of(theirs), None);
        let launch = exec.launch(&stream)?;
        assert!(matches!(launch.take(theirs).unwrap_err().invalid(), Some(Invalid::NoOutput)));
        assert!(is_other(&visit(&stream, theirs.read()).unwrap_err()));
        stream.begin_capture()?;
        assert!(is_other(&stream.free_alloc_node(theirs).unwrap_err()));
        assert!(is_other(&visit(&stream, theirs.read()).unwrap_err()));
        stream.end_capture()?;
        stream.free(launch.take(ours)?)?;
        Ok(())
    });
}

/// Graphs of two devices have the same numbers: one inside the other would find the other's memory.
#[test]
fn graphs_of_another_device_are_refused() {
    each(|on| {
        let second = on.another();
        let (here, there) = (&on.device, &second.device);
        let is_other = |outcome: Result<()>| {
            let error = outcome.unwrap_err();
            assert!(matches!(error.invalid(), Some(Invalid::OtherDevice { .. })), "{error}");
        };
        let (stream, mut graph, mut theirs) = (here.stream()?, here.graph()?, there.graph()?);
        let buffer = there.stream()?.alloc::<u32>(&there.default_pool(), 16)?;
        theirs.add_memset(&[], buffer.write(), 0)?;
        graph.add_empty(&[])?;
        is_other(graph.add_child(&[], &theirs).map(drop));
        is_other(graph.add_memset(&[], buffer.write(), 0).map(drop));
        let exec = instance(&graph)?;
        is_other(exec.update(&theirs));
        let child = instance(&theirs)?;
        is_other(child.launch(&stream).map(drop));
        is_other(child.upload(&stream));
        stream.begin_capture()?;
        is_other(child.launch(&stream).map(drop));
        stream.end_capture()?;
        assert_eq!(graph.len(), 1);
        let _ = exec.launch(&stream)?;
        stream.synchronize()
    });
}

/// A name from a failed capture does not name memory that the graph allocates later.
#[test]
fn names_of_a_capture_that_came_to_nothing_name_nothing() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let mut graph = device.graph()?;
        let mut leaked = None;
        let failed = stream.capture_to(&mut graph, &[], millpond::graph::CaptureMode::Global, |s| {
            leaked = Some(s.alloc::<u32>(&device.default_pool(), 1 << 20)?.into_alloc_node());
            s.synchronize()
        });
        assert!(failed.is_err() && graph.is_empty());
        let leaked = leaked.unwrap();
        let x = graph.add_alloc::<u32>(&[], 16)?;
        assert!(graph.add_memset(&[graph.node_of(x).unwrap()], leaked.write(), 1).is_err());
        assert_eq!(graph.node_of(leaked), None);
        let launch = instance(&graph)?.launch(&stream)?;
        assert!(matches!(launch.take(leaked).unwrap_err().invalid(), Some(Invalid::NoOutput)));
        stream.free(launch.take(x)?)?;
        Ok(())
    });
}
