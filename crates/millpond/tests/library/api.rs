//! Properties of the types that Rust programmers expect: Send and Sync, values that compare, one line for `{:?}`, and
//! short calls for common tasks.

use std::collections::HashSet;
use std::fmt::Debug;

use millpond::config::Trace;
use millpond::error::Invalid;
use millpond::graph::{ExternalEvent, Graph, GraphExec, GraphNode, Instantiate, Launch, MemAllocNode};
use millpond::raw::{RawMemory, Trusted};
use millpond::share::{SharedPool, Ticket};
use millpond::{Buffer, Device, Error, Event, HostConfig, MIB, Pool, PoolConfig, Read, Stream, View, Write};
use millpond::{PinnedBuffer, PinnedRead, PinnedWrite, Refused, Scope};

fn opened(config: HostConfig) -> millpond::Result<(Device, Pool, Stream)> {
    let device = Device::host(config)?;
    let (pool, stream) = (device.default_pool(), device.stream()?);
    Ok((device, pool, stream))
}

fn is_send_and_sync<T: Send + Sync>() {}

fn is_send<T: Send>() {}

/// Returns the messages of an error and its sources.
fn chain(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect()
}

#[test]
fn an_error_is_one_sentence_and_its_report_is_whole() -> millpond::Result<()> {
    let (device, pool, stream) = opened(HostConfig::default().total_bytes(8 * MIB))?;
    let (other, x) = (device.stream()?, stream.alloc::<u8>(&pool, 1 << 20)?);
    let refused = other.free(x).unwrap_err();
    assert_eq!(chain(&refused), [refused.error.to_string()]);
    assert!(format!("{refused:?}").contains("help: make stream 2 wait"), "{refused:?}");
    let full = stream.alloc::<u8>(&pool, 16 << 20).unwrap_err();
    let mut graph = device.graph()?;
    let node = graph.add_alloc::<u8>(&[], 64)?;
    graph.add_memset(&[], node.write(), 0)?;
    graph.add_memset(&[], node.write(), 1)?;
    let faults = graph.instantiate(Instantiate::default()).unwrap_err();
    assert!(faults.report().to_string().matches("help: ").count() > 1, "every fault: {faults:?}");
    for error in [refused.error, full, faults] {
        let (sentence, report) = (error.to_string(), error.report().to_string());
        assert!(!sentence.contains('\n') && report.starts_with(&sentence) && report.contains('\n'), "{report}");
        assert_eq!((chain(&error), format!("{error:?}")), (vec![sentence], report));
    }
    Ok(())
}

#[test]
fn handles_cross_threads() {
    is_send_and_sync::<(Device, Stream, Pool, Event, Graph, GraphExec)>();
    is_send_and_sync::<(Buffer<f32>, View<f32>, MemAllocNode<f32>, ExternalEvent, Error)>();
    is_send_and_sync::<(Read<'_, f32>, Write<'_, f32>)>();
    is_send_and_sync::<(PinnedBuffer<f32>, PinnedRead<'_, f32>, PinnedWrite<'_, f32>)>();
    is_send_and_sync::<(GraphNode, RawMemory, Trusted, SharedPool, Ticket, Trace)>();
    is_send_and_sync::<Refused<f32>>();
    is_send::<(Launch, Scope<'_, '_>)>();
}

// Handles are compared and hashed by numbers that never change. Clippy cannot see that behind an `Arc`.
#[allow(clippy::mutable_key_type)]
#[test]
fn handles_of_the_same_are_equal() -> millpond::Result<()> {
    let (device, other) = (Device::host(HostConfig::default())?, Device::host(HostConfig::default())?);
    assert!(device == device.clone() && device != other);
    let (pool, second) = (device.default_pool(), device.pool(PoolConfig::default())?);
    assert!(pool == device.default_pool() && pool != second && pool != other.default_pool());
    let (a, b) = (device.stream()?, device.stream()?);
    let streams: HashSet<Stream> = [a.clone(), a.clone(), b, other.legacy_stream(), device.legacy_stream()].into();
    assert_eq!(streams.len(), 4);
    let (first, again) = (a.record()?, a.record()?);
    a.memset(a.alloc::<u8>(&pool, 64)?.write(), 0)?;
    let events: HashSet<Event> = [first.clone(), first, again, a.record()?].into();
    assert_eq!(events.len(), 3, "each record is an operation of its own");
    let external = device.external_event();
    assert!(HashSet::from([external.clone(), external, device.external_event()]).len() == 2);
    let (_, (one, two)) = a.capture(|s| Ok((s.record()?, s.record()?)))?;
    assert!(one == one.clone() && one != two);
    let exec = device.graph()?.instantiate(Instantiate::default())?;
    assert!(exec == exec.clone() && exec != device.graph()?.instantiate(Instantiate::default())?);
    let x = a.alloc::<u8>(&pool, 64)?;
    let y = a.alloc::<u8>(&pool, 64)?;
    let views: HashSet<View<u8>> = [x.view(), x.view(), y.view(), x.slice(..32)?, x.slice(0..32)?].into();
    assert_eq!(views.len(), 3);
    Ok(())
}

#[test]
fn debug_is_one_short_line() -> millpond::Result<()> {
    let (device, pool, stream) = opened(HostConfig::default().total_bytes(64 * MIB))?;
    let buffers: Vec<Buffer<u32>> = (0..2000).map(|_| stream.alloc(&pool, 100)).collect::<Result<_, _>>()?;
    let (graph, node) = stream.capture(|s| Ok(s.alloc::<u32>(&pool, 100)?.into_alloc_node()))?;
    let exec = graph.instantiate(Instantiate::default())?;
    let launch = exec.launch(&stream)?;
    let event = stream.record()?;
    let x = &buffers[0];
    let trace = Trace::create(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("debug.trace"));
    let trace = trace.expect("its folder is there");
    let all: [&dyn Debug; 13] = [
        &trace,
        &device,
        &pool,
        &stream,
        &event,
        &graph,
        &node,
        &exec,
        &launch,
        x,
        &x.view(),
        &x.read(),
        &device.external_event(),
    ];
    for one in all {
        let text = format!("{one:?}");
        assert!(text.len() <= 300 && !text.contains('\n'), "{} B: {text:.500}", text.len());
    }
    assert!(format!("{stream:?}").starts_with("Stream(stream 1 of device "), "{stream:?}");
    Ok(())
}

#[test]
#[deny(unused_must_use)]
fn what_is_done_every_day_is_one_call() -> millpond::Result<()> {
    let (_device, pool, stream) = opened(HostConfig::default())?;
    let x = stream.upload(&pool, &[1_u32, 2, 3])?;
    let zeros = stream.alloc_zeroed::<u32>(&pool, 3)?;
    let mut to = [9; 3];
    stream.copy_to_host_into(zeros.read(), &mut to)?;
    assert_eq!(to, [0; 3]);
    stream.copy_to_host_into(x.read(), &mut to)?;
    assert_eq!(to, [1, 2, 3]);
    let short = stream.copy_to_host_into(x.read(), &mut to[..2]).unwrap_err();
    assert!(matches!(short.invalid(), Some(Invalid::Length { left: 3, right: 2, .. })), "{short}");
    assert_eq!(to, [1, 2, 3]);

    // The number of accesses is known only when the program runs.
    let parts: Vec<Buffer<u32>> = (0..5).map(|_| stream.alloc_zeroed(&pool, 4)).collect::<Result<_, _>>()?;
    let accesses: Vec<Write<'_, u32>> = parts.iter().map(Buffer::write).collect();
    stream.launch((accesses, x.read()), |(parts, x)| {
        for (at, part) in parts.into_iter().enumerate() {
            part.fill(at as u32 + x[0]);
        }
    })?;
    for (at, part) in parts.iter().enumerate() {
        assert_eq!(stream.copy_to_host(part.read())?, [at as u32 + 1; 4]);
    }
    let twice = stream.launch(vec![parts[0].write(), parts[0].write()], |_| ()).unwrap_err();
    assert!(matches!(twice.invalid(), Some(Invalid::Aliased { .. })), "{twice}");
    let (graph, ()) = stream.capture(|s| {
        s.launch(parts.iter().map(Buffer::write).collect::<Vec<_>>(), |parts| {
            parts.into_iter().for_each(|it| it[0] += 1)
        })
    })?;
    let exec = graph.instantiate(Instantiate::default())?;
    // A launch from which no memory is taken is fine.
    exec.launch(&stream)?;
    exec.launch(&stream)?;
    assert_eq!(stream.copy_to_host(parts[2].read())?, [5, 3, 3, 3]);
    Ok(())
}

#[test]
fn a_closure_that_runs_once_gives_away_what_it_owns() -> millpond::Result<()> {
    let (_device, pool, stream) = opened(HostConfig::default())?;
    let x = stream.upload(&pool, &[1_u32, 2, 3])?;
    let (send, receive) = std::sync::mpsc::channel::<(Vec<u32>, Buffer<u32>)>();
    let owned = stream.upload(&pool, &[7_u32])?;
    stream.launch_once(x.read(), move |x| drop(send.send((x.to_vec(), owned))))?;
    let (found, owned) = receive.recv().expect("it ran");
    assert_eq!((found.as_slice(), stream.copy_to_host(owned.read())?.as_slice()), (&[1, 2, 3][..], &[7][..]));
    // In a capture it is refused, what it owns is dropped while no lock is held, and the capture goes on.
    let (graph, ()) = stream.capture(|s| {
        let refused = s.launch_once(x.write(), move |_| drop(owned)).unwrap_err();
        assert!(matches!(refused.invalid(), Some(Invalid::Uncapturable { call: "launch_once" })), "{refused}");
        s.memset(x.write(), 0)
    })?;
    assert_eq!(graph.len(), 1);
    Ok(())
}

/// A length is a `usize` that needs no type hint, however large. A parameter that also took `u64` would make literals
/// `i32`, and expressions would lack a type.
#[test]
fn lengths_are_inferred() -> Result<(), Box<dyn std::error::Error>> {
    let config = HostConfig::default().total_bytes(1 << 40).memory(false);
    let (device, pool, stream) = opened(config)?;
    let lengths = [
        stream.alloc::<f32>(&pool, 1024)?.len(),
        stream.alloc::<u8>(&pool, 3 * 1024 * 1024 * 1024)?.len(),
        stream.alloc_zeroed::<u8>(&pool, 1 << 31)?.len(),
        stream.alloc::<u8>(&pool, (4 * MIB).try_into()?)?.len(),
        stream.alloc::<u8>(&pool, "7".parse()?)?.len(),
        stream.alloc::<u8>(&pool, [1, 2].iter().sum())?.len(),
        device.pinned::<u8>(4 * MIB as usize)?.len(),
        device.graph()?.add_alloc::<u8>(&[], 1 << 33)?.len(),
    ];
    assert_eq!(lengths, [1024, 3 << 30, 1 << 31, 4 << 20, 7, 3, 4 << 20, 1 << 33]);
    Ok(())
}

#[test]
fn out_of_memory_is_told_with_its_report() -> millpond::Result<()> {
    let (_device, pool, stream) = opened(HostConfig::default().total_bytes(8 * MIB))?;
    let refused = stream.alloc::<u8>(&pool, 16 << 20).unwrap_err();
    assert_eq!(refused.out_of_memory().map(|report| report.device_bytes), Some(8 * MIB), "{refused}");
    Ok(())
}
