//! Launches: one call each, with the same result as node by node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millpond::check::Kind;
use millpond::device::CallKind;
use millpond::error::Invalid;
use millpond::graph::{GraphNode, Instantiate};
use millpond::{PoolConfig, Result};

use super::{expect, subject};

#[test]
fn a_launch_is_one_call() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let (device, stream) = (&subject.device, subject.device.stream()?);
    let out = stream.alloc::<u8>(&device.default_pool(), 1 << 20)?;
    for length in [1usize, 10, 100] {
        let mut graph = device.graph()?;
        let mut last: Vec<GraphNode> = Vec::new();
        let mut before = None;
        for step in 0..length {
            let x = graph.add_alloc::<u8>(&last, 1 << 20)?;
            let alloc = graph.node_of(x).expect("its own");
            last = vec![graph.add_memset(&[alloc], x.write(), step as u8 + 1)?];
            if let Some(before) = before.replace(x) {
                last = vec![graph.add_free(&last, before)?];
            }
        }
        let x = before.expect("there is one");
        last = vec![graph.add_copy(&last, x.read(), out.write())?];
        graph.add_free(&last, x)?;
        let exec = graph.instantiate(Instantiate::default())?;
        exec.upload(&stream)?;
        let _ = exec.launch(&stream)?;
        for _ in 0..3 {
            stream.memset(out.write(), 0)?;
            let before = device.driver_calls();
            let _ = exec.launch(&stream)?;
            let made = device.driver_calls() - before;
            assert_eq!((made[CallKind::LaunchGraph], made.total()), (1, 1), "{made}");
            expect(&stream, &out, length as u8);
        }
        // Other memory at the same addresses, under the same graph.
        device.trim_graph_memory()?;
        assert_eq!(device.graph_memory().reserved_bytes, 0);
        stream.memset(out.write(), 0)?;
        let _ = exec.launch(&stream)?;
        expect(&stream, &out, length as u8);
    }
    Ok(())
}

#[test]
fn edges_through_memory_nodes_and_joins_are_kept() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let (device, stream) = (&subject.device, subject.device.stream()?);
    let out = stream.alloc::<u8>(&device.default_pool(), 8 * 256)?;
    let mut graph = device.graph()?;
    // Eight fills, joined by an empty node, after which each is copied; and frees one after the other.
    let (mut parts, mut fills) = (Vec::new(), Vec::new());
    for part in 0..8u8 {
        let x = graph.add_alloc::<u8>(&[], 256)?;
        let alloc = graph.node_of(x).expect("its own");
        let first = graph.add_memset(&[alloc], x.write(), 99)?;
        fills.push(graph.add_memset(&[first], x.write(), part)?);
        parts.push(x);
    }
    let mut last = vec![graph.add_empty(&fills)?];
    for (part, x) in parts.iter().enumerate().rev() {
        let to = out.view().slice(256 * part..256 * (part + 1))?;
        let copy = graph.add_copy(&last, x.read(), to.write())?;
        last = vec![graph.add_free(&[copy], *x)?];
    }
    let ran = Arc::new(AtomicU32::new(0));
    let counter = ran.clone();
    graph.add_host_function(&last, move || {
        counter.fetch_add(1, Ordering::Relaxed);
    })?;
    let exec = graph.instantiate(Instantiate::default())?;
    for launches in 1..4 {
        stream.memset(out.write(), 55)?;
        let _ = exec.launch(&stream)?;
        let found = stream.copy_to_host(out.read())?;
        assert!(found.iter().enumerate().all(|(at, byte)| *byte == (at / 256) as u8));
        assert_eq!(ran.load(Ordering::Relaxed), launches);
    }
    Ok(())
}

#[test]
fn outputs_are_taken_freed_and_freed_by_the_next_launch() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let (device, stream, other) = (&subject.device, subject.device.stream()?, subject.device.stream()?);
    let (graph, outs) = stream.capture(|s| {
        let mut outs = Vec::new();
        for value in 1..=16 {
            let x = s.alloc::<u8>(&device.default_pool(), 1 << 20)?;
            s.memset(x.write(), value)?;
            outs.push(x.into_alloc_node());
        }
        Ok(outs)
    })?;
    let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true))?;
    for _ in 0..3 {
        let launch = exec.launch(&stream)?;
        let x = launch.take(outs[4])?;
        expect(&stream, &x, 5);
        other.wait(&stream.record()?)?;
        // Read on another stream, and the next launch's own free is not ordered after that.
        expect(&other, &x, 5);
        let _leaked = x.into_address();
    }
    let launch = exec.launch(&stream)?;
    let x = launch.take(outs[15])?;
    other.wait(&stream.record()?)?;
    other.memset(x.write(), 3)?;
    let refused = exec.launch(&stream).expect_err("the use on the other stream is not ordered before it");
    let kind = refused.violation().expect("a violation").kind;
    assert!(matches!(kind, Kind::FreeBeforeUse | Kind::AutoFreeBeforeUse), "{kind:?}");
    stream.wait(&other.record()?)?;
    let _ = exec.launch(&stream)?;
    Ok(())
}

/// A device refuses nodes for memory that does not exist. Outside memory has to exist only at a launch.
#[test]
fn memory_from_outside_need_not_be_there_before_a_launch() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let (device, stream) = (&subject.device, subject.device.stream()?);
    let (leaving, node) = stream.capture(|s| {
        let x = s.alloc::<u8>(&device.default_pool(), 4 << 20)?;
        s.memset(x.write(), 1)?;
        Ok(x.into_alloc_node())
    })?;
    let leaving = leaving.instantiate(Instantiate::default())?;
    let mut graph = device.graph()?;
    let own = graph.add_alloc::<u8>(&[], 4 << 20)?;
    let copy = graph.add_copy(&[graph.node_of(own).expect("its own")], node.read(), own.write())?;
    graph.add_free(&[copy], own)?;
    let reading = graph.instantiate(Instantiate::default())?;
    reading.upload(&stream)?;
    let refused = reading.launch(&stream).expect_err("nothing is there to be read");
    assert!(refused.violation().is_some_and(|it| it.kind == Kind::UseBeforeAlloc), "{refused}");
    let x = leaving.launch(&stream)?.take(node)?;
    reading.upload(&stream)?;
    let _ = reading.launch(&stream)?;

    // A pool's memory that was given back before the graph is instantiated.
    let pool = device.pool(PoolConfig::default())?;
    let gone = stream.alloc::<u8>(&pool, 4 << 20)?;
    let mut graph = device.graph()?;
    graph.add_memset(&[], gone.write(), 3)?;
    stream.free(gone)?;
    stream.synchronize()?;
    pool.trim_to(0)?;
    let late = graph.instantiate(Instantiate::default())?;
    late.upload(&stream)?;
    let refused = late.launch(&stream).expect_err("it was freed");
    assert_eq!(refused.violation().map(|it| it.kind), Some(Kind::UseAfterFree), "{refused}");
    stream.free(x)?;
    stream.synchronize()
}

#[test]
fn launches_on_several_streams_follow_each_other() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let (device, streams) = (&subject.device, [subject.device.stream()?, subject.device.stream()?]);
    let out = streams[0].alloc::<u8>(&device.default_pool(), 1 << 16)?;
    streams[1].wait(&streams[0].record()?)?;
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u8>(&[], 1 << 16)?;
    let alloc = graph.node_of(x).expect("its own");
    let fill = graph.add_memset(&[alloc], x.write(), 6)?;
    let copy = graph.add_copy(&[fill], x.read(), out.write())?;
    graph.add_free(&[copy], x)?;
    let exec = graph.instantiate(Instantiate::default())?;
    for stream in [0, 1, 0, 1, 1] {
        let _ = exec.launch(&streams[stream])?;
    }
    expect(&streams[1], &out, 6);
    drop(exec);
    Ok(())
}

#[test]
fn kernels_that_are_closures_are_refused() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let mut graph = subject.device.graph()?;
    let refused = graph.add_kernel(&[], (), |()| ()).expect_err("there are none");
    assert!(matches!(refused.invalid(), Some(Invalid::NoClosures { .. })), "{refused}");
    assert!(graph.is_empty());
    Ok(())
}
