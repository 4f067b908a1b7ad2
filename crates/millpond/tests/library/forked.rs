//! A forked process: every call that can be refused is refused, nothing waits, what it drops at its end still belongs
//! to its parent, and the parent loses nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use millpond::graph::{CaptureMode, Graph, GraphExec, Instantiate};
use millpond::{Buffer, Device, Error, Event, HostConfig, PinnedBuffer, Pool, PoolConfig, Stream};

use crate::common::process::{self, alone};

// SAFETY: functions of the C library, with its types.
unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(child: i32, status: *mut i32, options: i32) -> i32;
    safe fn alarm(seconds: u32) -> u32;
    safe fn exit(status: i32) -> !;
}

/// Forks and returns the result of `fork`. The new process is ended if it hangs.
fn fork_for_a_while() -> i32 {
    // SAFETY: the library refuses to be used in the new process, which is what is shown here.
    let child = unsafe { fork() };
    if child == 0 {
        alarm(20);
    }
    child
}

fn status_of(child: i32) -> i32 {
    let mut status = -1;
    // SAFETY: the place is valid for the call.
    unsafe { waitpid(child, &mut status, 0) };
    status
}

fn says_so<T>(what: &str, answer: Result<T, Error>) {
    match answer {
        Err(Error::DeviceLost { reason }) if reason.contains("forked") => {}
        Err(other) => panic!("{what}: {other}"),
        Ok(_) => panic!("{what}: no error"),
    }
}

/// The actions of the threads that the forked process does not have.
type Act = fn(&Device, &Stream, &Pool, &Pool);
const BUSY: [Act; 7] = [
    |_, _, _, _| std::thread::spawn(|| {}).join().unwrap(),
    |_, stream, pool, _| {
        let it = stream.alloc::<u8>(pool, 8192).unwrap();
        stream.free(it).unwrap();
    },
    |device, _, _, _| {
        let own = device.pool(PoolConfig::default()).unwrap();
        device.set_current_pool(&own).unwrap();
        drop((own, device.stream().unwrap(), device.current_pool()));
    },
    |device, stream, _, _| {
        let mut graph = device.graph().unwrap();
        let node = graph.add_alloc::<u8>(&[], 4096).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        let left = exec.launch(stream).unwrap().take(node).unwrap();
        stream.free(left).unwrap();
        drop((exec, device.graph_memory()));
        device.trim_graph_memory().unwrap();
    },
    |device, stream, pool, _| {
        let it = stream.alloc::<u8>(pool, 8192).unwrap();
        let mut host = device.pinned::<u8>(8192).unwrap();
        stream.copy_to_pinned(it.read(), host.write()).unwrap();
        drop(host);
        let event = stream.record_timed().unwrap();
        event.synchronize().unwrap();
        event.elapsed_since(&event).unwrap();
    },
    |_, stream, pool, _| {
        // Other threads synchronise, allocate pinned memory and instantiate meanwhile.
        stream.begin_capture_in(CaptureMode::Relaxed).unwrap();
        let it = stream.alloc::<u8>(pool, 8192).unwrap();
        stream.free(it).unwrap();
        drop(stream.end_capture().unwrap());
        stream.record().unwrap().synchronize().unwrap();
    },
    |device, stream, _, shared| {
        let it = stream.alloc::<u8>(shared, 8192).unwrap();
        let ticket = it.export().unwrap();
        assert!(device.revoke(&ticket));
        let found = stream.free_address(it.into_address());
        found.unwrap();
        shared.trim_to(0).unwrap();
        stream.record().unwrap().export().unwrap();
        let outside = device.external_event();
        stream.record_external(&outside).unwrap();
        stream.wait_external(&outside).unwrap();
    },
];

/// Starts a thread that repeats an action until the end.
fn repeat(act: Act, is_over: &Arc<AtomicBool>, device: &Device, pool: &Pool, shared: &Pool) -> JoinHandle<()> {
    let (is_over, device, pool, shared) = (Arc::clone(is_over), device.clone(), pool.clone(), shared.clone());
    std::thread::spawn(move || {
        let stream = device.non_blocking_stream().unwrap();
        while !is_over.load(Ordering::Relaxed) {
            act(&device, &stream, &pool, &shared);
        }
    })
}

fn refuses_copies_beside(device: &Device, stream: &Stream, a: &Buffer<u8>, host: &mut PinnedBuffer<u8>) {
    says_so("pinned memory", device.pinned::<u8>(1));
    says_so("copy_to_pinned", stream.copy_to_pinned(a.read(), host.write()));
    says_so("copy_from_pinned", stream.copy_from_pinned(a.write(), host.read()));
    says_so("a slice of pinned memory", host.as_slice());
    says_so("a mutable slice of pinned memory", host.as_mut_slice());
}

fn refuses_work(stream: &Stream, other: &Stream, a: &Buffer<u8>, event: &Event) {
    says_so("launch", stream.launch(a.write(), |bytes| bytes.fill(8)));
    says_so("copy_to_host", stream.copy_to_host(a.read()));
    says_so("record", stream.record());
    says_so("record a time", stream.record_timed());
    says_so("wait", other.wait(event));
    says_so("is idle", stream.is_idle());
    says_so("is over", event.is_over());
    says_so("a time between events", event.elapsed_since(event));
    says_so("synchronize", stream.synchronize());
    says_so("capture", stream.begin_capture());
}

fn refuses_graphs(stream: &Stream, exec: &GraphExec, graph: &mut Graph, inner: &Graph) {
    says_so("upload", exec.upload(stream));
    says_so("child", graph.add_child(&[], inner));
    says_so("add a node", graph.add_empty(&[]));
    says_so("instantiate", graph.instantiate(Instantiate::default()));
    says_so("clone", graph.try_clone());
    says_so("graph launch", exec.launch(stream));
}

/// The program of the next test.
#[test]
#[ignore = "a program for another test"]
fn program() {
    let device = Device::host(HostConfig::default()).unwrap();
    let pool = device.default_pool();
    let shared = device.pool(PoolConfig::default().shareable(true)).unwrap();
    let (stream, other) = (device.stream().unwrap(), device.non_blocking_stream().unwrap());
    let a = stream.alloc::<u8>(&pool, 4096).unwrap();
    let b = other.alloc::<u8>(&shared, 4096).unwrap();
    let cached = stream.alloc::<u8>(&pool, 4096).unwrap();
    stream.memset(a.write(), 5).unwrap();
    other.memset(b.write(), 6).unwrap();
    stream.free(cached).unwrap();
    let (event, outside, inner) = (stream.record_timed().unwrap(), device.external_event(), device.graph().unwrap());
    let mut graph = device.graph().unwrap();
    let node = graph.add_alloc::<u8>(&[], 4096).unwrap();
    let exec = graph.instantiate(Instantiate::default()).unwrap();
    let left = exec.launch(&stream).unwrap().take(node).unwrap();
    let mut host = device.pinned::<u8>(4096).unwrap();
    host.as_mut_slice().unwrap().fill(9);
    device.synchronize().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = BUSY.into_iter().map(|act| repeat(act, &is_over, &device, &pool, &shared)).collect();
    // A process with a large trace forks slowly.
    let forks = if std::env::var_os("MILLPOND_TRACE").is_none() { 200 } else { 10 };
    for round in 0..forks {
        std::thread::sleep(Duration::from_micros(round * 7919 % 3000));
        let child = fork_for_a_while();
        if child == 0 {
            let all = catch_unwind(AssertUnwindSafe(|| {
                says_so("alloc", stream.alloc::<u8>(&pool, 4096));
                says_so("alloc on a stream in use", other.alloc::<u8>(&pool, 4096));
                says_so("memset", stream.memset(a.write(), 7));
                says_so("copy_from_host", stream.copy_from_host(a.write(), &[1; 4096]));
                says_so("per-thread stream", device.per_thread_stream());
                says_so("begin a capture elsewhere", other.begin_capture());
                says_so("graph memory", device.trim_graph_memory());
                says_so("current pool", device.set_current_pool(&shared));
                says_so("ticket", shared.export());
                says_so("export read-only", b.export_read_only());
                says_so("external event", stream.record_external(&outside));
                says_so("wait for an external event", other.wait_external(&outside));
                says_so("address", device.free_address(b.address()));
                refuses_work(&stream, &other, &a, &event);
                says_so("synchronize the device", device.synchronize());
                says_so("event", event.synchronize());
                says_so("stream", device.stream());
                says_so("pool", device.pool(PoolConfig::default()));
                says_so("graph", device.graph());
                refuses_graphs(&stream, &exec, &mut graph, &inner);
                says_so("export", b.export());
                says_so("trim", pool.trim_to(0));
                says_so("all work", device.all_work());
                refuses_copies_beside(&device, &stream, &a, &mut host);
                assert!(pool.audit().unwrap_err().contains("forked"));
                assert!(
                    std::env::var_os("MILLPOND_TRACE").is_none()
                        || device.flush_trace().unwrap_err().to_string().contains("forked")
                );
                drop(device.external_event()); // It cannot be refused, and waits for nothing.
                says_so("free by address", stream.free_address(a.address()));
                says_so("a new device", Device::host(HostConfig::default()));
                let a = stream.free(a).unwrap_err();
                says_so("free", Err::<(), _>(a.error));
                let b = device.free(b).unwrap_err();
                says_so("free at once", Err::<(), _>(b.error));
                drop((
                    a.buffer, b.buffer, host, left, event, exec, graph, stream, other, pool, shared, device, outside,
                    inner,
                ));
            }));
            exit(if all.is_ok() { 0 } else { 1 });
        }
        assert_eq!(status_of(child), 0, "the child's answers");
    }
    is_over.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(stream.copy_to_host(a.read()).unwrap(), [5; 4096]);
    assert_eq!(other.copy_to_host(b.read()).unwrap(), [6; 4096]);
    stream.copy_to_pinned(a.read(), host.write()).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(host.as_slice().unwrap(), [5; 4096]);
    stream.free(a).unwrap();
    other.free(b).unwrap();
    stream.free(left).unwrap();
    drop(exec.launch(&stream).unwrap());
    device.synchronize().unwrap();
}

#[test]
fn a_forked_process_is_refused_and_its_parent_loses_nothing() {
    for trace in [false, true] {
        for _ in 0..2 {
            let mut command = process::test("forked::program");
            if trace {
                command.env("MILLPOND_TRACE", concat!(env!("CARGO_TARGET_TMPDIR"), "/forked.trace"));
            }
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
        }
    }
}

/// Work queued behind a kernel that forks belongs to the parent: the new process ends when the kernel does.
#[test]
fn a_kernel_that_forks_is_the_last_of_the_new_process() {
    alone(|| [false, true].into_iter().for_each(forks_in_a_kernel));
}

fn forks_in_a_kernel(panics: bool) {
    let device = Device::host(HostConfig::default()).unwrap();
    let (stream, pool) = (device.stream().unwrap(), device.pool(PoolConfig::default().shareable(true)));
    let x = stream.alloc::<u32>(&pool.unwrap(), 16).unwrap();
    stream.memset(x.write(), 0).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ended);
    let fork_there = move |_: &mut [u32]| {
        let child = fork_for_a_while();
        if child == 0 {
            assert!(!panics, "meant");
            return;
        }
        seen.store(status_of(child) == i32::from(panics) << 8, Ordering::Relaxed);
    };
    stream.launch(x.write(), fork_there).unwrap();
    for _ in 0..3 {
        stream.launch(x.write(), |x| x[0] += 1).unwrap();
    }
    assert_eq!(stream.copy_to_host(x.read()).unwrap()[0], 3);
    assert!(ended.load(Ordering::Relaxed), "the new process ended by itself");
    stream.free(x).unwrap();
}
