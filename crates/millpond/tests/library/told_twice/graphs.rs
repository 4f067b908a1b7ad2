//! Graphs, their instances and their memory.

use super::*;

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
