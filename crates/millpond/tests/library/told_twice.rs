//! The checker finds in a device's trace exactly what the device refuses: short programs, each of a kind that the two
//! once judged differently.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use millpond::config::Trace;
use millpond::error::Invalid;
use millpond::graph::{CaptureMode, Graph, GraphExec, Instantiate};
use millpond::pool::PeerAccess;
use millpond::{Buffer, Device, DeviceConfig, Error, HostConfig, PoolConfig, Stream};
use millpond_core::check::{Kind, Settings};

use crate::common::{fake, traced};

/// The refusals, in order.
#[derive(Default)]
struct Said(RefCell<Vec<String>>);

impl Said {
    #[track_caller]
    fn of<T>(&self, done: Result<T, impl Into<Error>>) -> Option<T> {
        done.map_err(|error| self.0.borrow_mut().push(rule(&error.into()))).ok()
    }
}

fn rule(error: &Error) -> String {
    match error {
        Error::Violation(violation) if violation.kind.is_about_captures() => "capture".into(),
        Error::Violation(violation) => violation.kind.name().into(),
        Error::InvalidArgument(invalid) if **invalid == Invalid::Stale => Kind::UseAfterFree.name().into(),
        other => other.to_string(),
    }
}

/// Runs a program on devices that write one trace. Returns what the library refused, and what the trace has, in order.
fn told<const N: usize>(name: &str, program: impl FnOnce(&Said, [Device; N])) -> [Vec<String>; 2] {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("told_twice");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}.trace"));
    let trace = Trace::create(&path).unwrap();
    let open = |_| Device::host(HostConfig::default().trace(trace.clone())).unwrap();
    let said = Said::default();
    program(&said, std::array::from_fn(open));
    drop(trace);
    let findings = traced::findings(&path, Settings { leaks: false, ..Settings::RECORDED }, |_| true);
    let found = findings.iter().map(|finding| finding.kind).filter(|kind| !kind.is_advice());
    let found = found
        .map(|kind| if kind.name().starts_with("capture") { "capture".into() } else { kind.name().into() })
        .collect();
    [said.0.into_inner(), found]
}

#[track_caller]
fn agreed<const N: usize>(name: &str, expected: &[&str], program: impl FnOnce(&Said, [Device; N])) {
    let [live, by_trace] = told(name, program);
    assert_eq!(live, expected, "{name}, live");
    assert_eq!(by_trace, expected, "{name}, by its trace");
}

fn streams<const N: usize>(device: &Device) -> [Stream; N] {
    std::array::from_fn(|_| device.non_blocking_stream().unwrap())
}

/// An event never changes, even if an external event was made from it, or it from one, and that is used.
#[test]
fn events_and_external_events_are_apart() {
    agreed("recorded-again", &["use-before-alloc"], |said, [device]| {
        let [a, b] = streams(&device);
        let early = a.record().unwrap();
        let external = early.to_external().unwrap();
        let x = a.alloc::<u8>(&device.default_pool(), 512).unwrap();
        a.record_external(&external).unwrap();
        b.wait(&early).unwrap();
        said.of(b.memset(x.write(), 1));
    });
    agreed("last-recorded-again", &["use-before-alloc"], |said, [device]| {
        let [a, b] = streams(&device);
        let external = device.external_event();
        a.record_external(&external).unwrap();
        let early = external.last().unwrap();
        let x = a.alloc::<u8>(&device.default_pool(), 512).unwrap();
        a.record_external(&external).unwrap();
        b.wait(&early).unwrap();
        said.of(b.memset(x.write(), 1));
    });
    agreed("last-synchronized", &[], |said, [device]| {
        let [a, b, c] = streams(&device);
        let x = a.alloc::<u8>(&device.default_pool(), 512).unwrap();
        let external = device.external_event();
        a.record_external(&external).unwrap();
        let last = external.last().unwrap();
        c.record_external(&external).unwrap();
        last.synchronize().unwrap();
        said.of(b.memset(x.write(), 1));
    });
    agreed("two-of-one", &[], |said, [device]| {
        let [a, b, c] = streams(&device);
        let x = a.alloc::<u8>(&device.default_pool(), 512).unwrap();
        let event = a.record().unwrap();
        let [one, other] = [0, 1].map(|_| event.to_external().unwrap());
        c.record_external(&one).unwrap();
        b.wait_external(&other).unwrap();
        said.of(b.memset(x.write(), 1));
    });
}

#[test]
fn a_drop_in_a_capture_is_a_free_there() {
    agreed("drop-in-a-capture", &["use-after-free", "free-before-use"], |said, [device]| {
        let [s, t] = streams(&device);
        let x = s.alloc::<u8>(&device.default_pool(), 512).unwrap();
        s.begin_capture().unwrap();
        let y = s.alloc::<u8>(&device.default_pool(), 512).unwrap();
        let view = y.view();
        s.memset(y.write(), 1).unwrap();
        drop(y);
        said.of(s.memset(view.write(), 2));
        s.memset(x.write(), 3).unwrap();
        let exec = s.end_capture().unwrap().instantiate(Instantiate::default()).unwrap();
        drop(exec.launch(&s).unwrap());
        t.wait(&s.record().unwrap()).unwrap();
        t.memset(x.write(), 4).unwrap();
        said.of(s.free(x));
    });
}

#[test]
fn a_device_may_be_let_go_in_a_capture() {
    agreed("device-first", &[], |said, [device]| {
        let s = device.stream().unwrap();
        let pool = device.default_pool();
        s.begin_capture().unwrap();
        let x = s.alloc::<u8>(&pool, 512).unwrap();
        drop((device, pool));
        s.memset(x.write(), 1).unwrap();
        drop(x);
        let graph = said.of(s.end_capture()).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        said.of(exec.launch(&s).map(drop));
    });
}

/// The legacy stream, while a blocking stream is captured: it may be queried, but not used.
#[test]
fn the_legacy_stream_is_refused_beside_a_capture() {
    agreed("legacy-asked", &[], |said, [device]| {
        let s = device.stream().unwrap();
        s.begin_capture().unwrap();
        assert!(!device.legacy_stream().is_capturing().unwrap());
        said.of(s.end_capture());
    });
    agreed("legacy-records", &["capture"], |said, [device]| {
        let s = device.stream().unwrap();
        s.begin_capture().unwrap();
        said.of(device.legacy_stream().record_external(&device.external_event()));
        assert!(s.end_capture().is_err(), "it was ended by that");
    });
    agreed("legacy-waits", &["capture"], |said, [device]| {
        let s = device.stream().unwrap();
        let event = s.record().unwrap().to_external().unwrap();
        s.begin_capture().unwrap();
        said.of(device.legacy_stream().wait_external(&event));
        assert!(s.end_capture().is_err(), "it was ended by that");
    });
}

/// An upload comes after earlier launches.
#[test]
fn an_upload_orders_its_stream() {
    for (name, uploads, expected) in [("uploaded", true, &[][..]), ("not-uploaded", false, &["use-before-alloc"])] {
        agreed(name, expected, |said, [device]| {
            let [a, b] = streams(&device);
            let x = a.alloc::<u8>(&device.default_pool(), 512).unwrap();
            let mut graph = device.graph().unwrap();
            graph.add_memset(&[], x.write(), 1).unwrap();
            let exec = graph.instantiate(Instantiate::default()).unwrap();
            drop(exec.launch(&a).unwrap());
            if uploads {
                exec.upload(&b).unwrap();
            }
            said.of(b.memset(x.write(), 2));
        });
    }
}

#[test]
fn a_node_that_cannot_be_removed_is_told() {
    agreed("node-removed", &["graph-refused"], |said, [device]| {
        let mut graph = device.graph().unwrap();
        let x = graph.add_alloc::<u8>(&[], 512).unwrap();
        let node = graph.node_of(x).unwrap();
        graph.add_memset(&[node], x.write(), 1).unwrap();
        said.of(graph.remove_node(node));
    });
}

#[test]
fn one_of_two_devices_is_synchronised() {
    agreed("closed-streams-too", &[], |said, [device, other]: [Device; 2]| {
        let [s, t] = streams(&device);
        let x = s.alloc::<u8>(&device.default_pool(), 512).unwrap();
        drop(s);
        device.synchronize().unwrap();
        said.of(t.memset(x.write(), 1));
        drop(other);
    });
    agreed("the-other-alone", &["use-before-alloc"], |said, [device, other]: [Device; 2]| {
        let [s, t] = streams(&device);
        let x = s.alloc::<u8>(&device.default_pool(), 512).unwrap();
        other.synchronize().unwrap();
        said.of(t.memset(x.write(), 1));
    });
    agreed("in-a-relaxed-capture", &["capture"], |said, [device, _other]: [Device; 2]| {
        let [s] = streams(&device);
        s.begin_capture_in(CaptureMode::Relaxed).unwrap();
        said.of(device.synchronize());
        assert!(s.end_capture().is_err(), "it was ended by that");
    });
    agreed("beside-a-capture-of-the-other", &[], |said, [device, other]: [Device; 2]| {
        let [s] = streams(&device);
        s.begin_capture().unwrap();
        said.of(other.synchronize());
        said.of(s.end_capture());
    });
    agreed("refused-in-a-capture", &["capture", "use-before-alloc"], |said, [device, _other]: [Device; 2]| {
        let [s, t, u] = streams(&device);
        let x = s.alloc::<u8>(&device.default_pool(), 512).unwrap();
        u.begin_capture().unwrap();
        said.of(device.synchronize());
        said.of(t.memset(x.write(), 1));
        assert!(u.end_capture().is_err(), "it was ended by that");
    });
}

/// An instance with symbolic addresses that is updated from a clone of its graph frees by itself what it left before.
#[test]
fn what_an_updated_instance_left_is_its_own() {
    agreed("update-symbolic", &["use-after-free"], |said, [device]| {
        let [s] = streams(&device);
        let mut graph = device.symbolic_graph().unwrap();
        let x = graph.add_alloc::<u8>(&[], 4096).unwrap();
        let clone = graph.try_clone().unwrap();
        let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true)).unwrap();
        let left = exec.launch(&s).unwrap().take(x).unwrap();
        exec.update(&clone).unwrap();
        said.of(s.memset(left.write(), 1));
        said.of(exec.launch(&s));
        said.of(s.memset(left.write(), 1));
        said.of(exec.launch(&s));
    });
}

/// A graph with memory nodes and fixed addresses can only be in one place.
#[test]
fn a_graph_with_memory_nodes_is_in_one_place() {
    let refused = ["graph-refused"; 6];
    agreed("in-one-place", &refused, |said, [device]| {
        let [s] = streams(&device);
        let with_memory = || {
            let mut graph = device.graph().unwrap();
            let x = graph.add_alloc::<u8>(&[], 4096).unwrap();
            (graph, x)
        };
        let ((graph, x), (other, _)) = (with_memory(), with_memory());
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        said.of(graph.instantiate(Instantiate::default()));
        said.of(graph.try_clone());
        said.of(exec.update(&other));
        let mut around = device.graph().unwrap();
        said.of(around.add_child(&[], &graph));
        s.begin_capture().unwrap();
        said.of(exec.launch(&s));
        s.end_capture().unwrap();
        said.of(s.free(exec.launch(&s).unwrap().take(x).unwrap()));
        drop(exec);
        around.add_child(&[], &graph).unwrap();
        said.of(graph.instantiate(Instantiate::default()));
        let exec = around.instantiate(Instantiate::default()).unwrap();
        said.of(s.free(exec.launch(&s).unwrap().take(x).unwrap()));
    });
}

/// Memory left by a dropped instance blocks the next one at its addresses, and its launches come first.
#[test]
fn an_instance_has_the_addresses_of_the_one_before() {
    agreed("instantiated-again", &["unfreed-launch", "unfreed-launch"], |said, [device]| {
        let [s, t] = streams(&device);
        let y = s.alloc::<u8>(&device.default_pool(), 512).unwrap();
        let mut graph = device.graph().unwrap();
        let x = graph.add_alloc::<u8>(&[], 4096).unwrap();
        graph.add_memset(&[], y.write(), 1).unwrap();
        let left = graph.instantiate(Instantiate::default()).unwrap().launch(&s).unwrap().take(x).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        said.of(exec.launch(&s));
        said.of(s.free(left));
        // Ordered after the launch of the instance before by the addresses only.
        drop(said.of(exec.launch(&t)));
        drop(exec);
        let mut around = device.graph().unwrap();
        around.add_child(&[], &graph).unwrap();
        let exec = around.instantiate(Instantiate::default()).unwrap();
        said.of(exec.launch(&s));
    });
}

/// An instance had the addresses of two graphs, and was never launched. Launches at the addresses of one of them do not
/// come before launches at those of the other.
#[test]
fn addresses_of_two_graphs_stay_apart() {
    agreed("two-graphs", &["use-before-alloc"], |said, [device]| {
        let [s, t] = streams(&device);
        let mut graph = device.graph().unwrap();
        let x = graph.add_alloc::<u8>(&[], 64).unwrap();
        let y = t.alloc::<u8>(&device.default_pool(), 64).unwrap();
        drop(graph.instantiate(Instantiate::default()).unwrap().launch(&t).unwrap());
        let mut child = device.graph().unwrap();
        child.add_alloc::<u8>(&[], 64).unwrap();
        graph.add_child(&[], &child).unwrap();
        drop(graph.instantiate(Instantiate::default()).unwrap());
        graph.remove_node(graph.node_of(x).unwrap()).unwrap();
        said.of(graph.instantiate(Instantiate::default()).unwrap().launch(&s).map(drop));
        said.of(s.memset(y.write(), 1));
        t.free(y).unwrap();
    });
}

/// A node's name means the same memory after its graph is dropped.
#[test]
fn a_name_outlives_its_graph() {
    agreed("used-when-the-graph-is-gone", &[], |said, [device]| {
        let [s] = streams(&device);
        let mut graph = device.graph().unwrap();
        let x = graph.add_alloc::<u8>(&[], 4096).unwrap();
        let _ = graph.instantiate(Instantiate::default()).unwrap().launch(&s).unwrap();
        drop(graph);
        said.of(s.memset(x.write(), 1));
        let mut other = device.graph().unwrap();
        let fill = other.add_memset(&[], x.write(), 2).unwrap();
        other.add_free(&[fill], x).unwrap();
        said.of(other.instantiate(Instantiate::default()).unwrap().launch(&s));
    });
    agreed("freed-before-the-graph-is-gone", &["use-after-free", "use-after-free"], |said, [device]| {
        let [s] = streams(&device);
        let mut graph = device.graph().unwrap();
        let x = graph.add_alloc::<u8>(&[], 4096).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        s.free(exec.launch(&s).unwrap().take(x).unwrap()).unwrap();
        drop(exec);
        said.of(s.memset(x.write(), 1));
        drop(graph);
        said.of(s.memset(x.write(), 1));
    });
}

/// Other code may use halves of an allocation at once: its trace declares that.
#[test]
fn unordered_work_of_foreign_code_passes() {
    agreed("halves", &["use-before-alloc", "free-before-use"], |said, [device]| {
        let [a, b] = streams(&device);
        let x = a.alloc::<u8>(&device.default_pool(), 64).unwrap();
        let (low, high) = (x.view().slice(..32).unwrap(), x.view().slice(32..).unwrap());
        // SAFETY: nothing is submitted.
        said.of(unsafe { b.enqueue(high.write(), |_, _| Ok(())) });
        b.wait(&a.record().unwrap()).unwrap();
        // SAFETY: as above.
        unsafe { a.enqueue(low.write(), |_, _| Ok(())) }.unwrap();
        // SAFETY: as above.
        unsafe { b.enqueue(high.write(), |_, _| Ok(())) }.unwrap();
        // The work on `b` is missing.
        said.of(a.free(x));
    });
}

/// A capture into an existing graph: the refusals, and the graph afterwards, which is as before.
#[test]
fn captures_into_a_graph_that_is_there_are_in_the_trace() {
    agreed("into-a-graph", &["use-before-alloc", "capture", "capture", "use-before-alloc"], |said, [device]| {
        let ([s, t], mode) = (streams(&device), CaptureMode::Global);
        let pool = device.default_pool();
        let out = s.alloc::<u32>(&pool, 4).unwrap();
        let mut graph = device.graph().unwrap();
        let x = graph.add_alloc::<u32>(&[], 4).unwrap();
        let fill = graph.add_memset(&[graph.node_of(x).unwrap()], x.write(), 4).unwrap();
        // Nothing comes after the alloc node.
        said.of(s.capture_to(&mut graph, &[], mode, |s| s.copy(x.read(), out.write())));
        said.of(s.capture_to(&mut graph, &[fill], mode, |s| {
            let y = s.alloc::<u32>(&pool, 4)?;
            s.memset(y.write(), 1)?;
            s.free_alloc_node(x)?;
            t.synchronize()
        }));
        // A branch is not joined.
        said.of(s.capture_to(&mut graph, &[fill], mode, |s| {
            t.wait(&s.record()?)?;
            t.memset(x.write(), 2)
        }));
        // The capture itself ends well, but no graph is made of it.
        let failed = s.capture_to(&mut graph, &[fill], mode, |s| {
            s.memset(x.write(), 3)?;
            Err::<(), Error>(Invalid::Stale.into())
        });
        assert!(failed.is_err() && graph.len() == 2);
        s.capture_to(&mut graph, &[fill], mode, |s| {
            s.copy(x.read(), out.write())?;
            s.free_alloc_node(x)
        })
        .unwrap();
        let free = graph.nodes().last().copied().unwrap();
        graph.add_memset(&[free], out.write(), 5).unwrap();
        graph.instantiate(Instantiate::default()).unwrap().launch(&s).unwrap();
        said.of(t.memset(out.write(), 1));
        s.free(out).unwrap();
    });
}

/// The memory of a failed capture may have a free node in another graph by then.
#[test]
fn memory_of_a_capture_that_comes_to_nothing_is_freed_by_no_graph() {
    agreed("into-nothing", &["free-before-alloc"], |said, [device]| {
        let ([s], mode, pool) = (streams(&device), CaptureMode::Global, device.default_pool());
        let (mut graph, mut other) = (device.graph().unwrap(), device.graph().unwrap());
        let failed = s.capture_to(&mut graph, &[], mode, |s| {
            other.add_free(&[], s.alloc::<u32>(&pool, 4)?.into_alloc_node())?;
            Err::<(), Error>(Invalid::Stale.into())
        });
        assert!(failed.is_err() && graph.is_empty());
        // No launch allocates what it frees.
        said.of(other.instantiate(Instantiate::default()).unwrap().launch(&s));
        s.memset(s.alloc::<u32>(&pool, 4).unwrap().write(), 1).unwrap();
    });
}

/// Memory of a capture that is given up, or that ends with its stream, is never allocated.
#[test]
fn what_a_capture_that_came_to_nothing_had_is_not_there() {
    agreed("had-by-nothing", &["use-before-alloc", "use-before-alloc"], |said, [device]| {
        let ([s, t, u], pool) = (streams(&device), device.default_pool());
        for (captured, is_given_up) in [(s, true), (t, false)] {
            captured.begin_capture().unwrap();
            let x = captured.alloc::<u32>(&pool, 4).unwrap();
            let mut graph = device.graph().unwrap();
            graph.add_memset(&[], x.write(), 1).unwrap();
            if is_given_up {
                captured.abandon_capture();
            }
            drop(captured);
            said.of(graph.instantiate(Instantiate::default()).unwrap().launch(&u));
        }
    });
}

/// The node of a graph with symbolic addresses names no memory on a stream, also if a launch left some live.
#[test]
fn a_symbolic_node_is_no_memory_of_a_stream() {
    agreed("symbolic-on-a-stream", &["use-before-alloc"], |said, [device]| {
        let [s] = streams(&device);
        let mut graph = device.symbolic_graph().unwrap();
        let x = graph.add_alloc::<u32>(&[], 4).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        let launch = exec.launch(&s).unwrap();
        said.of(s.memset(x.write(), 1));
        s.free(launch.take(x).unwrap()).unwrap();
    });
}

/// A graph without an instance is not judged, as no launch runs it.
#[test]
fn a_graph_that_no_instance_is_made_of_is_not_judged() {
    agreed("unused", &[], |_, [device]| {
        let mut graph = device.graph().unwrap();
        let x = graph.add_alloc::<u32>(&[], 4).unwrap();
        graph.add_memset(&[], x.write(), 1).unwrap();
    });
}

/// Captures of a host device forbid the calls of that device only.
#[test]
fn a_capture_of_another_host_device_forbids_nothing() {
    agreed("apart", &["capture"], |said, [left, right]| {
        let ([s], [t]) = (streams(&left), streams(&right));
        s.begin_capture().unwrap();
        t.synchronize().unwrap();
        right.synchronize().unwrap();
        right.pinned::<u8>(64).unwrap();
        t.record().unwrap().synchronize().unwrap();
        right.graph().unwrap().instantiate(Instantiate::default()).unwrap();
        said.of(left.pinned::<u8>(64));
        assert!(s.end_capture().is_err());
    });
}

/// What a capture does not forbid in the library is not forbidden in the trace: imports, and what the host learns
/// through a device without a trace.
#[test]
#[allow(unsafe_code)]
fn what_is_no_unsafe_call_is_not_forbidden() {
    agreed("import-in-a-capture", &[], |said, [here, there]| {
        let pool = here.pool(PoolConfig::default().shareable(true)).unwrap();
        let ([s], [t]) = (streams(&here), streams(&there));
        let lent = s.alloc::<u8>(&pool, 64).unwrap();
        s.synchronize().unwrap();
        let ticket = lent.export().unwrap();
        t.begin_capture().unwrap();
        // SAFETY: nobody writes it.
        let import = said.of(unsafe { there.import::<u8>(&ticket) });
        said.of(t.end_capture());
        drop(import);
    });
    agreed("learned-in-a-capture", &[], |said, [device]| {
        let plain = Device::host(HostConfig::default()).unwrap();
        let ([s, t], [a]) = (streams(&device), streams(&plain));
        let x = s.alloc::<u8>(&device.default_pool(), 64).unwrap();
        a.wait(&s.record().unwrap()).unwrap();
        t.begin_capture().unwrap();
        said.of(a.synchronize());
        said.of(t.end_capture());
        said.of(device.free(x).map_err(|refused| refused.error));
    });
}

/// A CUDA device may be opened while a stream of another one is captured.
#[test]
fn a_device_is_opened_beside_a_capture() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("told_twice-opened.trace");
    let trace = Trace::create(&path).unwrap();
    let open = || Device::cuda_with(fake(), DeviceConfig::default().trace(trace.clone())).unwrap();
    let first = open();
    let [s] = streams(&first);
    s.begin_capture().unwrap();
    let second = open();
    s.end_capture().unwrap();
    drop((s, first, second, trace));
    let findings = traced::findings(&path, Settings { leaks: false, ..Settings::RECORDED }, |_| true);
    assert!(findings.is_empty(), "{findings:#?}");
}

/// A call that a capture allows is allowed in the trace as well, though another thread begins captures meanwhile.
#[test]
fn what_captures_have_allowed_is_not_forbidden_later() {
    type Call = fn(&Device) -> Result<(), Error>;
    let calls: [(&str, Call); 3] = [
        ("instantiate", |device| device.graph()?.instantiate(Instantiate::default()).map(drop)),
        ("pinned", |device| device.pinned::<u8>(64).map(drop)),
        ("pool", |device| device.pool(PoolConfig::default()).map(drop)),
    ];
    for (name, call) in calls {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("told_twice-allowed-{name}.trace"));
        let trace = Trace::create(&path).unwrap();
        let device = Device::host(HostConfig::default().trace(trace.clone())).unwrap();
        let ([s], is_over) = (streams(&device), AtomicBool::new(false));
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    s.begin_capture().unwrap();
                    s.abandon_capture();
                }
            });
            let refused = (0..300).filter(|_| call(&device).is_err()).count();
            is_over.store(true, Ordering::Relaxed);
            refused
        });
        drop((s, device, trace));
        let findings = traced::findings(&path, Settings { leaks: false, ..Settings::RECORDED }, |_| true);
        // A refusal may stand behind the end of the capture that forbade it.
        assert!(findings.len() <= refused, "{name}: {} of {refused}", findings.len());
    }
}

/// A free at once of memory of a capture that made no graph, or whose graph is gone, spoils no other capture.
#[test]
fn a_free_at_once_of_what_no_graph_has_spoils_no_capture() {
    for (name, is_given_up) in [("free-of-nothing", true), ("free-of-a-gone-graph", false)] {
        agreed(name, &[], |said, [device]| {
            let ([s, t], pool) = (streams(&device), device.default_pool());
            s.begin_capture().unwrap();
            let x = s.alloc::<u8>(&pool, 64).unwrap();
            match is_given_up {
                true => s.abandon_capture(),
                false => drop(s.end_capture().unwrap()),
            }
            t.begin_capture().unwrap();
            assert!(device.free(x).is_err(), "no launch has allocated it");
            said.of(t.end_capture());
        });
    }
}

/// An instance whose last handle is a launch has ended before its graph can be instantiated again.
#[test]
fn an_instance_ends_before_its_addresses_are_free() {
    struct Again(Arc<Mutex<Option<Graph>>>, Sender<Result<GraphExec, Error>>);
    impl Drop for Again {
        fn drop(&mut self) {
            if let Some(graph) = &*self.0.lock().unwrap() {
                let _ = self.1.send(graph.instantiate(Instantiate::default()));
            }
        }
    }
    agreed("ended-by-a-launch", &["graph-refused"], |said, [device]| {
        let ([s], (tried, again), place) = (streams(&device), std::sync::mpsc::channel(), Arc::new(Mutex::new(None)));
        let mut graph = device.graph().unwrap();
        let x = graph.add_alloc::<u8>(&[], 64).unwrap();
        let owned = Again(Arc::clone(&place), tried);
        let node = graph.add_host_function(&[], move || _ = &owned).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        let launch = exec.launch(&s).unwrap();
        s.free(launch.take(x).unwrap()).unwrap();
        s.synchronize().unwrap();
        graph.remove_node(node).unwrap();
        *place.lock().unwrap() = Some(graph);
        drop((exec, launch));
        said.of(again.recv().unwrap());
        drop(place.lock().unwrap().take());
    });
}

/// A capture that begins while another thread waits does not forbid that call, which was allowed when it was made.
#[test]
fn a_capture_may_begin_while_a_call_waits() {
    type Wait = fn(&Device, &Stream) -> Result<(), Error>;
    let waits: [Wait; 3] = [|_, s| s.synchronize(), |device, _| device.synchronize(), |_, s| s.record()?.synchronize()];
    for (at, wait) in waits.into_iter().enumerate() {
        // A slow thread calls only after the capture has begun, and is refused.
        let is_allowed = || {
            let [live, by_trace] = told(&format!("while-it-waits-{at}"), |said, [device]| {
                let [s, t] = streams(&device);
                let (open, gate) = std::sync::mpsc::channel::<()>();
                s.launch((), move |()| gate.recv().unwrap()).unwrap();
                std::thread::scope(|scope| {
                    let waiting = scope.spawn(|| wait(&device, &s));
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    t.begin_capture().unwrap();
                    open.send(()).unwrap();
                    said.of(waiting.join().unwrap());
                    let _ = t.end_capture();
                });
            });
            assert_eq!(live, by_trace);
            live.is_empty()
        };
        assert!((0..10).any(|_| is_allowed()));
    }
}

/// Clones name one instance: an update is for all of them.
#[test]
fn an_update_is_for_all_clones() {
    agreed("clones", &["race"], |said, [device]| {
        let ([s, t], pool) = (streams(&device), device.default_pool());
        let [x, y] = [0, 1].map(|_| s.alloc::<u32>(&pool, 4).unwrap());
        let fills = |buffer: &Buffer<u32>| {
            let mut graph = device.graph().unwrap();
            graph.add_memset(&[], buffer.write(), 1).unwrap();
            graph
        };
        let exec = fills(&x).instantiate(Instantiate::default()).unwrap();
        let clone = exec.clone();
        exec.update(&fills(&y)).unwrap();
        assert_eq!(exec, clone);
        t.wait(&s.record().unwrap()).unwrap();
        s.memset(x.write(), 2).unwrap();
        t.wait(&s.record().unwrap()).unwrap();
        s.memset(y.write(), 2).unwrap();
        said.of(clone.launch(&t));
        s.free(x).unwrap();
        s.free(y).unwrap();
    });
}

/// The free node of a dropped buffer comes after its last use only, in the trace as well.
#[test]
fn the_free_node_of_a_drop_has_the_same_edges() {
    agreed("edges-of-a-drop", &[], |_, [device]| {
        let ([s], pool) = (streams(&device), device.default_pool());
        let (mut graph, ()) = s.capture(|s| s.memset(s.alloc::<u32>(&pool, 4)?.write(), 1)).unwrap();
        let nodes = graph.nodes().to_vec();
        graph.add_edge(nodes[0], nodes[2]).unwrap();
        graph.remove_edge(nodes[0], nodes[2]).unwrap();
    });
}

/// A captured free names one lifetime, as every free does.
#[test]
fn a_captured_free_of_what_a_launch_freed_is_refused() {
    agreed("captured-free-of-a-former-life", &["stale-free", "use-after-free"], |said, [device]| {
        let ([s], pool) = (streams(&device), device.default_pool());
        let (graph, node) = s.capture(|s| Ok(s.alloc::<u32>(&pool, 4)?.into_alloc_node())).unwrap();
        let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true)).unwrap();
        let first = exec.launch(&s).unwrap().take(node).unwrap();
        let second = exec.launch(&s).unwrap().take(node).unwrap();
        let address = second.view();
        s.begin_capture().unwrap();
        said.of(s.free(first).map_err(|refused| refused.error));
        s.abandon_capture();
        s.free(second).unwrap();
        s.begin_capture().unwrap();
        said.of(s.memset(address.write(), 1));
        s.abandon_capture();
    });
}

/// A capture into a graph cannot free memory of a removed node, no matter which graph frees what that node left.
#[test]
fn memory_of_a_removed_node_is_not_in_the_graph() {
    agreed("free-of-a-removed-node", &["graph-refused"], |said, [device]| {
        let ([s], mut graph, mut other) = (streams(&device), device.graph().unwrap(), device.graph().unwrap());
        let x = graph.add_alloc::<u32>(&[], 4).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        exec.launch(&s).unwrap();
        graph.remove_node(graph.node_of(x).unwrap()).unwrap();
        other.add_free(&[], x).unwrap();
        said.of(s.capture_to(&mut graph, &[], CaptureMode::Global, |s| s.free_alloc_node(x)));
        other.instantiate(Instantiate::default()).unwrap().launch(&s).unwrap();
    });
}

/// A dropped buffer's free node is the only one of all graphs, too.
#[test]
fn a_dropped_buffers_free_node_is_the_only_one() {
    agreed("freed-by-a-drop", &["double-free", "double-free"], |said, [device]| {
        let ([s], pool) = (streams(&device), device.default_pool());
        let (graph, ()) = s.capture(|s| s.alloc::<u8>(&pool, 64).map(drop)).unwrap();
        let x = graph.alloc_node::<u8>(graph.nodes()[0], 64).unwrap();
        s.begin_capture().unwrap();
        said.of(s.free_alloc_node(x));
        s.abandon_capture();
        said.of(device.graph().unwrap().add_free(&[], x));
    });
}

/// A free at once of memory that is not live is refused for that, and the captures go on.
#[test]
fn a_second_free_at_once_spoils_no_capture() {
    agreed("freed-again-at-once", &["double-free", "capture", "capture"], |said, [device]| {
        let ([s, t], pool) = (streams(&device), device.default_pool());
        let (x, y) = (s.alloc::<u8>(&pool, 64).unwrap(), s.alloc::<u8>(&pool, 64).unwrap());
        s.free_address(x.address()).unwrap();
        t.begin_capture().unwrap();
        said.of(device.free(x).map_err(|refused| refused.error));
        said.of(t.end_capture());
        t.begin_capture().unwrap();
        said.of(device.free(y).map_err(|refused| refused.error));
        assert!(t.end_capture().is_err(), "the free at once spoilt it");
        t.begin_capture().unwrap();
        said.of(t.is_idle());
        t.abandon_capture();
    });
}

/// A copy to the host waits for its stream. On the legacy default stream it spoils captures of blocking streams only,
/// as each operation of that stream does.
#[test]
fn a_copy_to_the_host_on_the_legacy_stream_is_refused_as_its_operations() {
    agreed("legacy-copies", &["capture"], |said, [device]| {
        let (blocking, [other]) = (device.stream().unwrap(), streams(&device));
        let x = other.alloc_zeroed::<u8>(&device.default_pool(), 64).unwrap();
        other.synchronize().unwrap();
        blocking.begin_capture_in(CaptureMode::Relaxed).unwrap();
        other.begin_capture().unwrap();
        said.of(device.legacy_stream().copy_to_host(x.read()));
        assert!(blocking.end_capture().is_err(), "it is spoilt");
        said.of(other.end_capture());
    });
}

/// An update may let a node use what the launch before left: the next launch frees that first.
#[test]
fn a_launch_uses_nothing_that_it_frees() {
    for (is_freed, expected) in [(true, "use-after-free"), (false, "unfreed-launch")] {
        agreed("used-and-freed", &[expected], |said, [device]| {
            let [s] = streams(&device);
            let with_node = |left: Option<&Buffer<u8>>| {
                let mut graph = device.symbolic_graph().unwrap();
                let x = graph.add_alloc::<u8>(&[], 64).unwrap();
                let alloc = graph.node_of(x).unwrap();
                match left {
                    Some(left) => graph.add_memset(&[alloc], left.write(), 1).unwrap(),
                    None => graph.add_memset(&[alloc], x.write(), 1).unwrap(),
                };
                (graph, x)
            };
            let (graph, x) = with_node(None);
            let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(is_freed)).unwrap();
            let left = exec.launch(&s).unwrap().take(x).unwrap();
            exec.update(&with_node(Some(&left)).0).unwrap();
            let refused = exec.launch(&s).map(drop);
            let (earlier, later) =
                refused.as_ref().unwrap_err().violation().map(|it| (&it.earlier, &it.later)).unwrap();
            assert!(earlier.is_some() && later.is_some(), "both sides are named");
            said.of(refused);
        });
    }
}

/// A capture that is invalid says nothing more of what comes to it.
#[test]
fn an_invalid_capture_is_wrong_once() {
    agreed("symbolic-in-an-invalid-capture", &["capture"], |said, [device]| {
        let [s] = streams(&device);
        let mut graph = device.symbolic_graph().unwrap();
        let x = graph.add_alloc::<u8>(&[], 64).unwrap();
        s.begin_capture().unwrap();
        said.of(s.is_idle());
        assert!(s.free_alloc_node(x).is_err(), "the capture is invalid");
        s.abandon_capture();
    });
}

/// In a capture, memory of a pool cannot be freed. If it is freed already, that is what is wrong.
#[test]
fn a_captured_free_of_what_was_freed_is_a_second_one() {
    agreed("captured-second-free", &["double-free", "capture"], |said, [device]| {
        let ([s], pool) = (streams(&device), device.default_pool());
        let (x, y) = (s.alloc::<u8>(&pool, 64).unwrap(), s.alloc::<u8>(&pool, 64).unwrap());
        s.free_address(x.address()).unwrap();
        s.begin_capture().unwrap();
        said.of(s.free(x).map_err(|refused| refused.error));
        said.of(s.free(y).map_err(|refused| refused.error));
        s.abandon_capture();
    });
}

/// Memory of an alloc node that no launch has allocated is used before its allocation, whatever number it has.
#[test]
fn what_no_launch_has_allocated_was_not_freed() {
    agreed("recycled-number", &["use-before-alloc"], |said, [device]| {
        let ([s], pool) = (streams(&device), device.default_pool());
        // So many captures that their allocations' numbers are given again.
        for _ in 0..1100 {
            s.begin_capture().unwrap();
            drop(s.alloc::<u8>(&pool, 64).unwrap());
            drop(s.end_capture().unwrap());
        }
        let mut graph = device.graph().unwrap();
        let x = graph.add_alloc::<u8>(&[], 64).unwrap();
        let _exec = graph.instantiate(Instantiate::default()).unwrap();
        said.of(s.memset(x.write(), 0));
    });
}

/// A node that is refused asks nothing of the launches.
#[test]
fn a_refused_node_names_no_life() {
    agreed("refused-node", &["graph-refused"], |said, [device]| {
        let ([s], pool) = (streams(&device), device.default_pool());
        let (graph, x) = s.capture(|s| Ok(s.alloc::<u8>(&pool, 64)?.into_alloc_node())).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        let left = exec.launch(&s).unwrap().take(x).unwrap();
        let mut other = device.graph().unwrap();
        let first = other.add_empty(&[]).unwrap();
        said.of(other.add_memset(&[first, first], left.write(), 1));
        other.add_memset(&[first], x.write(), 1).unwrap();
        let writes = other.instantiate(Instantiate::default()).unwrap();
        drop(writes.launch(&s).unwrap());
        s.free(left).unwrap();
        let left = exec.launch(&s).unwrap().take(x).unwrap();
        said.of(writes.launch(&s).map(drop));
        s.free(left).unwrap();
    });
}

/// A program over the raw handles gives a capture up.
#[test]
fn a_capture_that_is_given_up_is_told() {
    agreed("given-up", &[], |_, [device]| {
        let ([s, t], pool) = (streams(&device), device.default_pool());
        let out = s.alloc::<u32>(&pool, 4).unwrap();
        s.begin_capture().unwrap();
        t.wait(&s.record().unwrap()).unwrap();
        s.memset(out.write(), 1).unwrap();
        t.abandon_capture();
        assert!(s.is_capturing().unwrap() && t.is_capturing().unwrap(), "it began on the other stream");
        s.abandon_capture();
        t.synchronize().unwrap();
        s.memset(out.write(), 2).unwrap();
        s.begin_capture().unwrap();
        s.end_capture().unwrap();
        s.free(out).unwrap();
    });
}

/// A graph that moved into another one gets no memory node from a capture either.
#[test]
fn captures_into_a_graph_that_has_moved_add_no_memory_node() {
    agreed("into-a-moved-graph", &["graph-refused", "graph-refused"], |said, [device]| {
        let ([s], mode, pool) = (streams(&device), CaptureMode::Global, device.default_pool());
        let mut graph = device.graph().unwrap();
        let x = graph.add_alloc::<u32>(&[], 4).unwrap();
        let fill = graph.add_memset(&[graph.node_of(x).unwrap()], x.write(), 4).unwrap();
        let mut around = device.graph().unwrap();
        around.add_child(&[], &graph).unwrap();
        said.of(s.capture_to(&mut graph, &[fill], mode, |s| s.alloc::<u32>(&pool, 4).map(drop)));
        said.of(s.capture_to(&mut graph, &[fill], mode, |s| s.free_alloc_node(x)));
        s.capture_to(&mut graph, &[fill], mode, |s| s.memset(x.write(), 5)).unwrap();
        assert_eq!(graph.len(), 3);
    });
}

/// A captured free that is refused because no capture is in progress is not a free of that memory.
#[test]
fn a_captured_free_outside_of_a_capture_frees_nothing() {
    agreed("free-outside-of-a-capture", &["unfreed-launch"], |said, [device]| {
        let [s] = streams(&device);
        let mut owner = device.graph().unwrap();
        let x = owner.add_alloc::<u32>(&[], 4).unwrap();
        let exec = owner.instantiate(Instantiate::default()).unwrap();
        exec.launch(&s).unwrap();
        device.graph().unwrap().add_free(&[], x).unwrap();
        assert!(s.free_alloc_node(x).is_err());
        // It is live from the first launch.
        said.of(exec.launch(&s));
    });
}

/// Repeats a call until it succeeds, while another thread synchronises with a stream. Returns the number of refusals.
fn tries(stream: &Stream, mut attempt: impl FnMut() -> bool) -> usize {
    std::thread::scope(|scope| {
        scope.spawn(|| stream.synchronize().unwrap());
        std::iter::repeat_with(&mut attempt).take_while(|is_done| !is_done).count()
    })
}

/// Access that is refused to be taken away stands before the synchronisation that it lacked.
#[test]
fn a_refused_revoke_stands_before_the_synchronisation_that_it_missed() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("told_twice-revoke.trace");
    let trace = Trace::create(&path).unwrap();
    let [a, b] = [0, 1].map(|_| Device::host(HostConfig::default().trace(trace.clone())).unwrap());
    let (pool, left, right) = (a.default_pool(), a.stream().unwrap(), b.stream().unwrap());
    let x = left.alloc_zeroed::<u32>(&pool, 4).unwrap();
    left.synchronize().unwrap();
    let mut refused = 0;
    for _ in 0..300 {
        pool.grant(&b, PeerAccess::ReadWrite).unwrap();
        right.launch(x.write(), |_| ()).unwrap();
        refused += tries(&right, || pool.revoke(&b).is_ok());
    }
    left.free(x).unwrap();
    drop((pool, left, right, a, b, trace));
    let settings = Settings { leaks: false, advice: false, ..Settings::RECORDED };
    let findings = traced::findings(&path, settings, |_| true);
    assert!(findings.iter().all(|it| it.kind == Kind::NoAccess), "{findings:#?}");
    assert_eq!(findings.len(), refused, "as often as live");
}

/// Another thread that sees the end of a capture works behind it, in the trace as well.
#[test]
fn what_comes_after_a_capture_stands_behind_its_end() {
    agreed("after-the-end", &[], |_, [device]| {
        let (pool, [left, side, other]) = (device.default_pool(), streams(&device));
        let mut y = Some(side.alloc_zeroed::<u32>(&pool, 4).unwrap());
        for round in 0..10 {
            left.begin_capture().unwrap();
            // So many that the end takes a while.
            for _ in 0..1000 {
                let _node = left.alloc::<u32>(&pool, 4).unwrap().into_alloc_node();
            }
            side.wait(&left.record().unwrap()).unwrap();
            left.wait(&side.record().unwrap()).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while side.is_capturing().unwrap() {}
                    if round % 2 == 0 {
                        other.synchronize().unwrap();
                    }
                    side.memset(y.as_ref().unwrap().write(), 1).unwrap();
                    side.free(y.take().unwrap()).unwrap();
                    y = Some(side.alloc_zeroed::<u32>(&pool, 4).unwrap());
                });
                left.end_capture().unwrap();
            });
        }
    });
}

/// A stream that has joined a capture records an event while another thread ends the capture: in it, or after it.
#[test]
fn an_event_is_recorded_in_a_capture_or_after_it() {
    let device = Device::host(HostConfig::default()).unwrap();
    let [left, side] = streams(&device);
    for _ in 0..200 {
        left.begin_capture().unwrap();
        side.wait(&left.record().unwrap()).unwrap();
        left.wait(&side.record().unwrap()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..20).for_each(|_| drop(side.record().unwrap())));
            drop(left.end_capture());
        });
    }
}

/// One thread synchronises while another one repeats a call until it succeeds. In the trace, the refused calls come
/// before the synchronisation that they missed, and the successful one after it.
#[test]
fn a_try_that_is_refused_stands_before_the_synchronisation_that_it_missed() {
    const ROUNDS: usize = 500;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("told_twice-threads.trace");
    let trace = Trace::create(&path).unwrap();
    let device = Device::host(HostConfig::default().trace(trace.clone())).unwrap();
    let (pool, [s, t]) = (device.default_pool(), streams(&device));
    let mut pinned = device.pinned::<u8>(64).unwrap();
    let mut refused = 0;
    for round in 0..ROUNDS {
        let x = s.alloc::<u8>(&pool, 64).unwrap();
        s.memset(x.write(), 1).unwrap();
        s.copy_to_pinned(x.read(), pinned.write()).unwrap();
        let mut held = Some(x);
        let mut free = |free: &dyn Fn(Buffer<u8>) -> Option<Buffer<u8>>| {
            tries(&s, || {
                held = held.take().and_then(free);
                held.is_none()
            })
        };
        refused += match round % 3 {
            0 => free(&|x| t.free(x).err().map(|refused| refused.buffer)),
            1 => free(&|x| device.free(x).err().map(|refused| refused.buffer)),
            _ => tries(&s, || pinned.as_slice().is_ok()),
        };
        let Some(x) = held else { continue };
        s.memset(x.write(), 1).unwrap();
        let mut graph = device.graph().unwrap();
        graph.add_memset(&[], x.write(), 3).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        refused += match round % 2 {
            0 => tries(&s, || t.memset(x.write(), 2).is_ok()),
            _ => tries(&s, || exec.launch(&t).is_ok()),
        };
        s.wait(&t.record().unwrap()).unwrap();
        s.free(x).unwrap();
    }
    drop((pinned, s, t, pool, device, trace));
    let settings = Settings { leaks: false, advice: false, ..Settings::RECORDED };
    let findings = traced::findings(&path, settings, |_| true);
    assert!(findings.iter().all(|it| it.kind.is_order()), "{findings:#?}");
    assert_eq!(findings.len(), refused, "as often as live");
}

/// Order that a stream or the host learns through a device with no trace, or with another one, is in the trace as well.
#[test]
fn what_is_known_by_a_device_of_another_trace_is_known() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for by_host in [false, true] {
        let path = folder.join(format!("told_twice-away-{by_host}.trace"));
        let trace = Trace::create(&path).unwrap();
        let other = Trace::create(path.with_extension("other")).unwrap();
        let here = Device::host(HostConfig::default().trace(trace.clone())).unwrap();
        let plain = Device::host(HostConfig::default()).unwrap();
        let there = Device::host(HostConfig::default().trace(other.clone())).unwrap();
        let ([s, t], [a, _], [b, _]) = (streams(&here), streams(&plain), streams(&there));
        let x = s.alloc::<u8>(&here.default_pool(), 64).unwrap();
        a.wait(&s.record().unwrap()).unwrap();
        b.wait(&a.record().unwrap()).unwrap();
        let y = s.alloc::<u8>(&here.default_pool(), 64).unwrap();
        match by_host {
            true => b.synchronize().unwrap(),
            false => t.wait(&b.record().unwrap()).unwrap(),
        }
        t.memset(x.write(), 1).unwrap();
        let refused = t.memset(y.write(), 1).unwrap_err();
        assert_eq!(rule(&refused), "use-before-alloc", "that came later");
        t.free(x).unwrap();
        s.free(y).unwrap();
        drop((s, t, a, b, here, plain, there, trace, other));
        let settings = Settings { advice: false, ..Settings::RECORDED };
        let kinds: Vec<_> = traced::findings(&path, settings, |_| true).iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [Kind::UseBeforeAlloc]);
    }
}

/// One thread captures while another one begins and ends captures on the same streams. In the trace, its refused calls
/// come before the end of the other capture. After that end the same calls would be right.
#[test]
fn what_is_refused_beside_a_capture_stands_before_its_end() {
    const ROUNDS: usize = 300;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("told_twice-captures.trace");
    let trace = Trace::create(&path).unwrap();
    let device = Device::host(HostConfig::default().trace(trace.clone())).unwrap();
    let [s, side] = streams(&device);
    let refused = AtomicUsize::new(0);
    let count = |done: Result<(), Error>| {
        let is_counted = done.is_err_and(|error| error.violation().is_some());
        refused.fetch_add(usize::from(is_counted), Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                count(s.begin_capture().map(|()| drop(s.end_capture().unwrap())));
                count(side.end_capture().map(drop));
            }
        });
        for _ in 0..ROUNDS {
            let captured = s.capture(|s| {
                side.wait(&s.record()?)?;
                s.wait(&side.record()?)
            });
            count(captured.map(drop));
        }
    });
    drop((s, side, device, trace));
    let findings = traced::findings(&path, Settings { leaks: false, ..Settings::RECORDED }, |_| true);
    let found = findings.iter().filter(|finding| finding.kind.is_about_captures()).count();
    assert_eq!(found, refused.into_inner(), "{:#?}", findings.first());
}
