//! Other code in captures: its work on the device's stream becomes a node.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond::config::StreamKind;
use millpond::error::Invalid;
use millpond::graph::{CaptureMode, Instantiate};
use millpond::{Buffer, Result};
use millpond_driver::{Driver, RawStream};

use super::{expect, fill_by, subject};

#[test]
fn foreign_work_is_captured_with_memory_in_between() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let (device, foreign) = (&subject.device, &subject.foreign);
    let (left, right) = (device.stream()?, device.stream()?);
    let pool = device.default_pool();
    let (x, y) = (left.alloc::<u8>(&pool, 4096)?, left.alloc::<u8>(&pool, 4096)?);
    left.memset(x.write(), 1)?;
    left.memset(y.write(), 1)?;
    let (graph, ()) = left.capture(|s| {
        let scratch = s.alloc::<u8>(&pool, 4096)?;
        fill_by(foreign, s, &scratch, 7)?;
        right.wait(&s.record()?)?;
        s.copy(scratch.read(), x.write())?;
        let other = right.alloc::<u8>(&pool, 4096)?;
        fill_by(foreign, &right, &other, 9)?;
        right.copy(other.read(), y.write())?;
        right.free(other)?;
        s.wait(&right.record()?)?;
        s.free(scratch)?;
        Ok(())
    })?;
    expect(&left, &x, 1);
    let exec = graph.instantiate(Instantiate::default())?;
    for _ in 0..3 {
        left.memset(x.write(), 2)?;
        left.memset(y.write(), 2)?;
        let _ = exec.launch(&left)?;
        expect(&left, &x, 7);
        expect(&left, &y, 9);
    }
    // The graph as a part of another one.
    drop(exec);
    let mut outer = device.graph()?;
    let first = outer.add_memset(&[], x.write(), 3)?;
    outer.add_child(&[first], &graph)?;
    drop(graph);
    let exec = outer.instantiate(Instantiate::default())?;
    drop(outer);
    let _ = exec.launch(&left)?;
    expect(&left, &x, 7);
    Ok(())
}

/// Work that is submitted to the stream by other means, after it was declared.
#[test]
fn declared_work_is_captured_up_to_the_next_call() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let (device, foreign) = (&subject.device, &subject.foreign);
    let theirs = foreign.0.open_stream(Default::default()).expect("a stream");
    let native = foreign.0.native_stream(theirs).expect("it has a handle");
    // SAFETY: it is closed at the end.
    let stream = unsafe { device.adopt_stream(native, StreamKind::NonBlocking) }?;
    let (x, y): (Buffer<u8>, Buffer<u8>) =
        (stream.alloc(&device.default_pool(), 512)?, stream.alloc(&device.default_pool(), 512)?);
    stream.memset(y.write(), 1)?;
    let (graph, ()) = stream.capture(|s| {
        s.declare(x.write())?;
        foreign.fill(native, x.address(), 256, 4);
        foreign.fill(native, x.address() + 256, 256, 4);
        s.copy(x.read(), y.write())?;
        // One declaration followed by no work, and one followed by the end of the capture.
        s.declare(y.read())?;
        s.declare(x.write())?;
        foreign.fill(native, x.address(), 512, 5);
        Ok(())
    })?;
    expect(&stream, &y, 1);
    let exec = graph.instantiate(Instantiate::default())?;
    for _ in 0..2 {
        stream.memset(y.write(), 2)?;
        let _ = exec.launch(&stream)?;
        expect(&stream, &y, 4);
        expect(&stream, &x, 5);
    }
    drop((x, y, exec));
    device.synchronize()?;
    drop(stream);
    foreign.0.close_stream(theirs).expect("it is open");
    Ok(())
}

/// A graph with event nodes runs node by node, including the nodes of other code.
#[test]
fn event_nodes_and_foreign_work_go_together() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let (device, foreign) = (&subject.device, &subject.foreign);
    let (stream, other) = (device.stream()?, device.stream()?);
    let x = stream.alloc::<u8>(&device.default_pool(), 4096)?;
    let y = stream.alloc::<u8>(&device.default_pool(), 4096)?;
    other.wait(&stream.record()?)?;
    let event = device.external_event();
    let (graph, ()) = stream.capture(|s| {
        fill_by(foreign, s, &x, 3)?;
        s.record_external(&event)?;
        fill_by(foreign, s, &y, 4)
    })?;
    let exec = graph.instantiate(Instantiate::default())?;
    for _ in 0..3 {
        let _ = exec.launch(&stream)?;
        other.wait_external(&event)?;
        expect(&other, &x, 3);
        expect(&stream, &y, 4);
        stream.wait(&other.record()?)?;
    }
    Ok(())
}

#[test]
fn foreign_code_that_fails_leaves_both_sides_usable() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let (device, foreign) = (&subject.device, &subject.foreign);
    let stream = device.stream()?;
    let x = stream.alloc::<u8>(&device.default_pool(), 4096)?;
    stream.memset(x.write(), 1)?;
    let (graph, ()) = stream.capture(|s| {
        let refuse = |queue: &millpond::raw::Queue<'_>, _| {
            let RawStream(native) = queue.raw_stream();
            foreign.fill(native, x.address(), 64, 9);
            // A closure would run once, but the graph many times.
            queue.host_function(|| ())
        };
        // SAFETY: the fill writes the declared memory.
        let refused = unsafe { s.enqueue(x.write(), refuse) }.expect_err("it is refused");
        assert!(matches!(refused.invalid(), Some(Invalid::Uncapturable { .. })), "{refused}");
        let panics = AssertUnwindSafe(|| {
            // SAFETY: nothing is submitted.
            unsafe { s.enqueue(x.write(), |_, _| -> Result<()> { panic!("planted") }) }
        });
        assert!(catch_unwind(panics).is_err());
        fill_by(foreign, s, &x, 6)
    })?;
    assert_eq!(graph.len(), 1, "what was refused is not a node");
    let exec = graph.instantiate(Instantiate::default())?;
    expect(&stream, &x, 1);
    let _ = exec.launch(&stream)?;
    expect(&stream, &x, 6);
    // A capture that is abandoned.
    stream.begin_capture()?;
    fill_by(foreign, &stream, &x, 8)?;
    stream.declare(x.write())?;
    assert!(stream.synchronize().is_err());
    assert!(stream.end_capture().is_err());
    expect(&stream, &x, 6);
    fill_by(foreign, &stream, &x, 2)?;
    expect(&stream, &x, 2);
    Ok(())
}

/// While other code is captured, the device works on: its memory, its other streams, queries about this one.
#[test]
fn other_streams_go_on_meanwhile() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let (device, foreign) = (&subject.device, &subject.foreign);
    let (stream, other) = (device.stream()?, device.non_blocking_stream()?);
    let pool = device.default_pool();
    let x = stream.alloc::<u8>(&pool, 4096)?;
    stream.memset(x.write(), 1)?;
    let freed = stream.alloc::<u8>(&pool, 64 << 20)?;
    stream.memset(freed.write(), 1)?;
    stream.free(freed)?;
    // In another mode, synchronising the other stream would be forbidden.
    stream.begin_capture_in(CaptureMode::Relaxed)?;
    let submit = |queue: &millpond::raw::Queue<'_>, _| {
        let RawStream(native) = queue.raw_stream();
        foreign.fill(native, x.address(), 2048, 5);
        // Memory that was freed on the capturing stream is requested, and new memory is mapped.
        let y = other.alloc::<u8>(&pool, 64 << 20)?;
        let z = other.alloc::<u8>(&pool, 128 << 20)?;
        other.memset(y.write(), 6)?;
        other.memset(z.write(), 7)?;
        assert_eq!(other.copy_to_host(y.view().slice(..64)?.read())?, [6; 64]);
        other.free(z).map_err(|refused| refused.error)?;
        other.free(y).map_err(|refused| refused.error)?;
        foreign.fill(native, x.address() + 2048, 2048, 5);
        Ok(())
    };
    // SAFETY: the fills write the declared memory.
    unsafe { stream.enqueue(x.write(), submit) }?;
    let graph = stream.end_capture()?;
    let exec = graph.instantiate(Instantiate::default())?;
    let _ = exec.launch(&stream)?;
    expect(&stream, &x, 5);
    Ok(())
}

/// Between a declaration and its stream's next call, other streams of the capture go on. Their nodes are kept.
#[test]
fn nodes_behind_an_open_declaration_are_kept() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let (device, foreign) = (&subject.device, &subject.foreign);
    let (stream, side) = (device.stream()?, device.non_blocking_stream()?);
    let pool = device.default_pool();
    let (x, y) = (stream.alloc::<u8>(&pool, 4096)?, stream.alloc::<u8>(&pool, 4096)?);
    // SAFETY: nothing is submitted.
    let RawStream(native) = unsafe { side.enqueue((), |queue, ()| Ok(queue.raw_stream())) }?;
    let (graph, ()) = stream.capture(|s| {
        side.wait(&s.record()?)?;
        side.declare(x.write())?;
        foreign.fill(native, x.address(), 4096, 5);
        s.memset(y.write(), 7)?;
        s.wait(&side.record()?)
    })?;
    let exec = graph.instantiate(Instantiate::default())?;
    let _ = exec.launch(&stream)?;
    expect(&stream, &x, 5);
    expect(&stream, &y, 7);
    Ok(())
}
