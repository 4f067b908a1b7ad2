//! A trace has everything that a program does: in order, with places, complete, for any kind of request for a trace.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Make, Subject, makes, process, traced, visit};
use millpond::config::Trace;
use millpond::graph::{CaptureMode, Instantiate};
use millpond::pool::PeerAccess;
use millpond::{Device, DeviceConfig, HostConfig, PoolConfig};
use millpond_core::check::{Kind, Settings};
use millpond_core::op::{Act, Op, Space, Trust, What};
use millpond_core::trace::ops::Reason;

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tracing");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// Returns the operations of a trace with their places, and `true` if nothing is missing.
fn read(path: &Path) -> (Vec<(Op, String)>, bool) {
    let mut ops = Vec::new();
    let reader = traced::read(path, |op, reader| {
        let place = op.place.describe(reader.names());
        ops.push((op, place));
    });
    reader.end().unwrap();
    (ops, reader.is_finished())
}

/// Makes a device whose program is traced.
fn traced(make: Make, name: &str) -> (PathBuf, Trace, Device) {
    eprintln!("on {make:?}:");
    let path = file(&format!("{name}-{make:?}.trace"));
    let trace = Trace::create(&path).unwrap();
    let config = DeviceConfig::default().trace(trace.clone());
    (path, trace, Subject::with(make, config).device)
}

#[test]
fn a_program_is_in_its_trace() {
    makes().into_iter().for_each(program_on);
}

fn program_on(make: Make) {
    let (path, trace, device) = traced(make, "program");
    let pool = device.pool(PoolConfig::default()).unwrap();
    let (left, right) = (device.stream().unwrap(), device.non_blocking_stream().unwrap());
    let x = left.alloc::<f32>(&pool, 1024).unwrap();
    x.set_name("weights");
    left.memset(x.write(), 1).unwrap();
    assert!(visit(&right, x.read()).is_err(), "nothing orders it after the allocation");
    right.wait(&left.record().unwrap()).unwrap();
    let line = line!() + 1;
    visit(&right, x.read()).unwrap();
    right.free(x).unwrap();
    right.synchronize().unwrap();
    drop(left.alloc::<u8>(&pool, 7).unwrap());
    device.synchronize().unwrap();
    drop((left, right, pool, device, trace));

    let (ops, finished) = read(&path);
    assert!(finished, "every device is closed");
    let launches: Vec<_> = ops.iter().filter(|(op, _)| matches!(op.what, What::Launch { .. })).collect();
    assert_eq!(launches[1].0.what, launches[2].0.what, "what was refused is there as well");
    let What::Launch { stream, accesses, .. } = &launches[2].0.what else { unreachable!() };
    assert_eq!((launches.len(), accesses.len(), accesses[0].act), (3, 1, Act::Read));
    assert!(launches[2].1.ends_with(&format!("library/tracing.rs:{line}")), "{}", launches[2].1);
    let memory = accesses[0].memory;
    let position = |of: &dyn Fn(&What) -> bool| ops.iter().position(|(op, _)| of(&op.what)).unwrap();
    let order = [
        position(&|what| matches!(what, What::Alloc { bytes: 4096, .. })),
        position(&|what| matches!(what, What::SetName { .. })),
        position(&|what| matches!(what, What::EventRecord { .. })),
        position(&|what| matches!(what, What::EventWait { stream: waiting, .. } if waiting == stream)),
        position(&|what| *what == What::Free { memory, stream: *stream, trust: Trust::None }),
        position(&|what| matches!(what, What::EventSynchronize { .. })),
        position(&|what| matches!(what, What::Drop { .. })),
        position(&|what| matches!(what, What::DeviceSynchronize)),
        position(&|what| matches!(what, What::PoolDestroy { .. })),
    ];
    assert!(order.is_sorted(), "{order:?}");
    let created = ops.iter().filter(|(op, _)| matches!(op.what, What::EventCreate { .. })).count();
    let ended = ops.iter().filter(|(op, _)| matches!(op.what, What::EventDestroy { .. })).count();
    assert_eq!((created, ended), (2, 2));
}

#[test]
fn a_capture_is_in_the_trace_as_one() {
    makes().into_iter().for_each(capture_on);
}

fn capture_on(make: Make) {
    let (path, trace, device) = traced(make, "graph");
    let pool = device.default_pool();
    let stream = device.stream().unwrap();
    let (graph, kept) = stream
        .capture(|s| {
            let scratch = s.alloc::<u8>(&pool, 512)?;
            let kept = s.alloc::<u8>(&pool, 512)?;
            visit(s, (scratch.write(), kept.view().write()))?;
            Ok(kept.into_alloc_node())
        })
        .unwrap();
    let exec = graph.instantiate(Instantiate::default()).unwrap();
    for _ in 0..2 {
        let taken = exec.launch(&stream).unwrap().take(kept).unwrap();
        stream.free(taken).unwrap();
    }
    drop((stream, graph, exec, pool, device, trace));

    let (ops, finished) = read(&path);
    assert!(finished);
    let begun = ops.iter().position(|(op, _)| matches!(op.what, What::CaptureBegin { .. })).expect("it begins");
    let whats: Vec<&What> = ops[begun + 1..].iter().map(|(op, _)| &op.what).collect();
    let [
        What::Alloc { memory: scratch, bytes: 512, .. },
        What::Alloc { memory: kept, .. },
        What::Launch { accesses, .. },
        What::Drop { memory: dropped },
        What::CaptureEnd { .. },
        ..,
    ] = whats[..]
    else {
        panic!("{whats:#?}")
    };
    assert_eq!((accesses.len(), dropped), (2, scratch));
    let lives: Vec<_> = ops
        .iter()
        .filter_map(|(op, _)| match op.what {
            What::Take { node, memory, .. } => Some((node, memory)),
            _ => None,
        })
        .collect();
    assert_eq!((lives.len(), lives[0].0), (2, *kept), "one life a launch");
    for (_, memory) in lives {
        assert!(ops.iter().any(|(op, _)| matches!(op.what, What::Free { memory: freed, .. } if freed == memory)));
    }
    assert!(ops.iter().any(|(op, _)| matches!(op.what, What::ExecDestroy { .. })));
    assert!(ops.iter().any(|(op, _)| matches!(op.what, What::GraphDestroy { .. })));
}

#[test]
fn devices_are_told_apart() {
    let path = file("devices.trace");
    let trace = Trace::create(&path).unwrap();
    let setting = DeviceConfig::default().trace(trace.clone());
    let config = millpond_driver::HostConfig { memory: false, ..Default::default() };
    let driver = || std::sync::Arc::new(millpond_driver::HostDriver::new(config.clone()).unwrap());
    let device = Device::with_driver(driver(), setting.clone()).unwrap();
    let other = Device::with_driver(driver(), setting).unwrap();
    other.stream().unwrap();
    drop((device, other, trace));
    let (ops, _) = read(&path);
    let mut streams: Vec<_> = ops
        .iter()
        .filter_map(|(op, _)| match op.what {
            What::StreamCreate { stream, .. } => Some(stream),
            _ => None,
        })
        .collect();
    let made = streams.len();
    streams.sort();
    streams.dedup();
    assert_eq!((made, streams.len()), (3, 3));
}

/// A pipe would block until it has a reader. Existing files other than regular ones are left alone.
#[test]
fn a_trace_goes_to_a_regular_file_only() {
    let pipe = file("pipe");
    let _ = std::fs::remove_file(&pipe);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for other in [&pipe, Path::new("/dev/null"), Path::new(env!("CARGO_TARGET_TMPDIR"))] {
        let refused = Trace::create(other).unwrap_err();
        assert_eq!(refused.to_string(), "a trace is written to a regular file", "{}", other.display());
    }
    assert!(pipe.exists());
}

/// Returns a checker's findings in a trace, in order.
fn found(path: &Path) -> Vec<Kind> {
    let findings = traced::findings(path, Settings::RECORDED, |_| true);
    findings.iter().map(|finding| finding.kind).collect()
}

/// Copies of pinned memory use both sides in the trace, too. Of the host's own uses, the trace has those that were
/// refused.
#[test]
fn pinned_memory_is_in_the_trace() {
    for make in makes() {
        let (path, trace, device) = traced(make, "pinned");
        let (s, t) = (device.stream().unwrap(), device.stream().unwrap());
        let x = s.alloc_zeroed::<u32>(&device.default_pool(), 1000).unwrap();
        let mut host = device.pinned::<u32>(1000).unwrap();
        host.set_name("staging");
        host.as_mut_slice().unwrap().fill(1);
        s.copy_to_pinned(x.read(), host.write()).unwrap();
        host.as_slice().unwrap_err();
        t.wait(&s.record().unwrap()).unwrap();
        t.copy_from_pinned(x.write(), host.read()).unwrap();
        host.as_mut_slice().unwrap_err();
        s.copy_to_pinned(x.read(), host.write()).unwrap_err();
        s.wait(&t.record().unwrap()).unwrap();
        s.copy_to_pinned(x.read(), host.write()).unwrap();
        s.synchronize().unwrap();
        host.as_mut_slice().unwrap().fill(2);
        t.copy_from_pinned(x.write(), host.read()).unwrap();
        // Freed while the copy may run: always right.
        drop(host);
        t.free(x).unwrap();
        drop((s, t, device, trace));
        let (ops, _) = read(&path);
        let count = |is: fn(&What) -> bool| ops.iter().filter(|(op, _)| is(&op.what)).count();
        assert_eq!(count(|what| matches!(what, What::AllocNow { space: Space::Host, bytes: 4000, .. })), 1);
        assert_eq!(count(|what| matches!(what, What::HostAccess { .. })), 2);
        assert_eq!(count(|what| matches!(what, What::Copy { accesses, .. } if accesses.len() == 2)), 5);
        assert_eq!(found(&path), [Kind::Race; 3], "what was refused, and nothing else");
    }
}

#[test]
fn what_is_refused_is_in_the_trace_and_refused_there() {
    for make in makes() {
        let (path, trace, device) = traced(make, "refused");
        let pool = device.default_pool();
        let (left, right) = (device.non_blocking_stream().unwrap(), device.non_blocking_stream().unwrap());
        let x = left.alloc::<u8>(&pool, 512).unwrap();
        left.memset(x.write(), 1).unwrap();
        assert!(right.memset(x.write(), 2).is_err(), "use before the allocation");
        let x = right.free(x).unwrap_err().buffer;
        let x = device.free(x).unwrap_err().buffer;
        let view = x.view();
        left.free(x).unwrap();
        assert!(visit(&left, view.read()).is_err(), "use after the free");
        let y = left.alloc::<u8>(&pool, 512).unwrap();
        assert!(visit(&left, view.read()).is_err(), "its place has another life");
        let address = y.address();
        left.free(y).unwrap();
        assert!(left.free_address(address).is_err() && device.free_address(address).is_err(), "freed already");
        let mut graph = device.graph().unwrap();
        let a = graph.add_alloc::<u8>(&[], 512).unwrap();
        assert!(visit(&left, (a.read(),)).is_err(), "not launched yet");
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        let taken = exec.launch(&left).unwrap().take(a).unwrap();
        assert!(exec.launch(&left).is_err(), "what the launch before left is not freed");
        left.free(taken).unwrap();
        let mut wrong = device.graph().unwrap();
        let b = wrong.add_alloc::<u8>(&[], 512).unwrap();
        wrong.add_memset(&[], b.write(), 1).unwrap();
        assert!(wrong.instantiate(Instantiate::default()).is_err(), "nothing orders the two nodes");
        drop((left, right, exec, graph, wrong, pool, device, trace));
        use Kind::*;
        let expected = [
            UseBeforeAlloc,
            FreeBeforeAlloc,
            FreeBeforeAlloc,
            UseAfterFree,
            UseAfterFree,
            DoubleFree,
            DoubleFree,
            UseBeforeAlloc,
            UnfreedLaunch,
            UseBeforeAlloc,
        ];
        assert_eq!(found(&path), expected, "on {make:?}");
    }
}

#[test]
fn a_capture_of_one_thread_lets_others_go_on_in_the_trace_too() {
    for is_other in [true, false] {
        // A file for each, because another test's child may hold the first one open for a moment.
        let (path, trace, device) = traced(Make::Parallel, if is_other { "captures" } else { "captures-own" });
        let stream = device.non_blocking_stream().unwrap();
        let buffer = is_other.then(|| stream.alloc::<u8>(&device.default_pool(), 64).unwrap());
        stream.synchronize().unwrap();
        stream.begin_capture_in(CaptureMode::ThreadLocal).unwrap();
        if let Some(buffer) = buffer {
            std::thread::scope(|scope| scope.spawn(|| device.free(buffer)).join().unwrap()).unwrap();
            drop(stream.end_capture().unwrap());
        } else {
            assert!(device.synchronize().is_err(), "the capturing thread itself");
            assert!(stream.end_capture().is_err(), "that spoiled it");
        }
        drop((stream, device, trace));
        let expected: &[Kind] = if is_other { &[] } else { &[Kind::CaptureUnsupported] };
        assert_eq!(found(&path), expected, "by another thread: {is_other}");
    }
}

#[test]
fn a_crash_loses_what_was_not_flushed() {
    let (path, trace, device) = traced(Make::Parallel, "crash");
    let stream = device.stream().unwrap();
    trace.flush().unwrap();
    let (flushed, finished) = read(&path);
    assert!(!finished && matches!(flushed.last().unwrap().0.what, What::StreamCreate { .. }));
    stream.alloc::<u8>(&device.default_pool(), 512).unwrap();
    assert_eq!(read(&path).0.len(), flushed.len(), "not written yet");
    assert!(Trace::create(&path).is_err(), "somebody writes it");
}

/// The program of the next test. It never ends by itself.
#[test]
#[ignore = "a program for another test"]
fn endless() {
    let device = Device::host(HostConfig::default()).unwrap();
    let (stream, pool) = (device.stream().unwrap(), device.default_pool());
    loop {
        let buffer = stream.alloc::<u8>(&pool, 4096).unwrap();
        stream.launch(buffer.write(), |bytes| bytes[0] = 1).unwrap();
        stream.free(buffer).unwrap();
        stream.synchronize().unwrap();
    }
}

/// A trace is complete between two devices, and incomplete once the second exists: a program that is killed then has
/// done more than was written.
#[test]
fn a_trace_that_was_whole_goes_on_with_the_next_device() {
    let path = file("goes-on.trace");
    let trace = Trace::create(&path).unwrap();
    let open = || Device::host(HostConfig::default().trace(trace.clone())).unwrap();
    assert!(!read(&path).1);
    for _ in 0..2 {
        let device = open();
        assert!(!read(&path).1, "a device is open");
        let stream = device.stream().unwrap();
        stream.free(stream.alloc::<u8>(&device.default_pool(), 64).unwrap()).unwrap();
        drop((stream, device));
        assert!(read(&path).1, "none is");
    }
}

#[test]
fn a_program_that_is_killed_leaves_what_it_had_flushed() {
    let path = file("killed.trace");
    let mut command = process::test("tracing::endless");
    let mut child = command.env("MILLPOND_TRACE", &path).stdout(std::process::Stdio::null()).spawn().unwrap();
    let written = || std::fs::metadata(&path).map_or(0, |file| file.len());
    while written() < 300_000 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    // SIGKILL, which a program cannot catch.
    child.kill().unwrap();
    child.wait().unwrap();
    let mut ops = 0;
    let reader = traced::read(&path, |_, _| ops += 1);
    let cut = reader.end().err();
    assert!(cut.is_none_or(|damage| damage.reason == Reason::Cut), "{cut:?}");
    assert!(!reader.is_finished() && ops > 10_000, "{ops} operations");
    std::fs::remove_file(&path).unwrap();
}

/// The program of the next test.
#[test]
#[ignore = "a program for another test"]
fn program() {
    let device = Device::host(HostConfig::default()).unwrap();
    let stream = device.stream().unwrap();
    drop(stream.alloc::<u8>(&device.default_pool(), 4096).unwrap());
    if std::env::var_os("OPEN").is_some() {
        // As in a C program, or in a language that destroys nothing at its end.
        std::mem::forget((device, stream));
        return;
    }
    if std::env::var_os("SHARED").is_some() {
        let pool = device.pool(PoolConfig::default().shareable(true)).unwrap();
        let shared = stream.alloc::<u8>(&pool, 4096).unwrap();
        shared.export().unwrap();
        stream.free(shared).unwrap();
        return;
    }
    if std::env::var_os("AGAIN").is_some() {
        assert!(run(|command| command.env_remove("AGAIN")).success());
    }
}

fn run(set: impl FnOnce(&mut Command) -> &mut Command) -> std::process::ExitStatus {
    set(&mut process::test("tracing::program")).output().unwrap().status
}

#[test]
fn the_environment_asks_for_a_trace_and_children_get_their_own() {
    let path = file("environment.trace");
    assert!(run(|command| command.env("MILLPOND_TRACE", &path).env("AGAIN", "1")).success());
    let others = || std::fs::read_dir(path.parent().unwrap()).unwrap().flatten().map(|entry| entry.path());
    let children: Vec<PathBuf> =
        others().filter(|other| other.to_string_lossy().contains("environment.trace.")).collect();
    assert_eq!(children.len(), 1, "{children:?}");
    for path in [&path, &children[0]] {
        let (ops, finished) = read(path);
        assert!(finished && ops.iter().any(|(op, _)| matches!(op.what, What::Alloc { bytes: 4096, .. })));
    }
    children.iter().for_each(|child| std::fs::remove_file(child).unwrap());
}

#[test]
fn the_trace_of_a_process_that_ended_is_whole_whoever_holds_the_device() {
    for (name, times) in [("OPEN", 1), ("SHARED", 20)] {
        let path = file(&format!("ended-{name}.trace"));
        for _ in 0..times {
            assert!(run(|command| command.env("MILLPOND_TRACE", &path).env(name, "1")).success());
            let (ops, finished) = read(&path);
            assert!(finished, "{name}: {} operations", ops.len());
            assert!(ops.iter().any(|(op, _)| matches!(op.what, What::Drop { .. })), "{name}: its last is missing");
        }
    }
}

/// Two devices in one trace: uses of each other's memory are judged as on one device.
#[test]
fn devices_that_meet_are_in_one_order() {
    let path = file("meeting.trace");
    let trace = Trace::create(&path).unwrap();
    let open = || Device::host(HostConfig::default().trace(trace.clone())).unwrap();
    let (here, there) = (open(), open());
    let pool = here.pool(PoolConfig::default()).unwrap();
    pool.grant(&there, PeerAccess::ReadWrite).unwrap();
    let (own, foreign) = (here.stream().unwrap(), there.stream().unwrap());
    let x = own.alloc::<u8>(&pool, 1000).unwrap();
    own.memset(x.write(), 1).unwrap();
    let y = foreign.alloc::<u8>(&there.default_pool(), 1000).unwrap();
    foreign.wait(&own.record().unwrap()).unwrap();
    foreign.copy(x.read(), y.write()).unwrap();
    own.wait(&foreign.record().unwrap()).unwrap();
    own.free(x).unwrap();
    foreign.free(y).unwrap();
    let z = own.alloc::<u8>(&pool, 1000).unwrap();
    own.synchronize().unwrap();
    foreign.memset(z.write(), 1).unwrap();
    foreign.synchronize().unwrap();
    own.free(z).unwrap();
    drop((own, foreign, pool, here, there, trace));

    let judge = |counts: fn(&What) -> bool| traced::findings(&path, Settings::RECORDED, counts);
    assert_eq!(judge(|_| true), []);
    // Without its waits the same program is wrong, and both devices are named.
    let wrong = judge(|what| !matches!(what, What::EventWait { .. }));
    let kinds: Vec<_> = wrong.iter().map(|it| it.kind).collect();
    assert!(kinds.contains(&Kind::UseBeforeAlloc), "{kinds:?}");
    assert!(wrong.iter().any(|it| it.sentence.contains("of device 1")), "{wrong:?}");
}

#[test]
fn names_of_streams_are_in_the_trace() {
    makes().into_iter().for_each(|make| {
        let (path, trace, device) = traced(make, "stream-names");
        let (copy, compute) = (device.stream().unwrap().named("copy"), device.stream().unwrap().named("compute"));
        let x = copy.alloc::<f32>(&device.default_pool(), 1024).unwrap();
        let live = compute.free(x).unwrap_err().error.violation().unwrap().to_string();
        drop((copy, compute, device, trace));
        let found = traced::findings(&path, Settings::RECORDED, |_| true);
        let sentence =
            "is freed on stream `compute`, but nothing makes that free wait for the allocation on stream `copy`";
        assert!(live.contains(sentence), "{live}");
        assert!(found.iter().any(|finding| finding.to_string().contains(sentence)), "{found:?}");
    });
}
