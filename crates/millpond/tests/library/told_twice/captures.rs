//! Captures: what they forbid, what becomes of them, and frees in them.

use super::*;

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
