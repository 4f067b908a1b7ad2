//! Launches and child graphs with the same addresses, which come one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millpond::check::Kind;
use millpond::graph::Instantiate;

use super::made::{each, expect, is_kind, with_alloc};

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
