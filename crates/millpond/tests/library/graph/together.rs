//! Nodes without a path between them run at the same time, all of them. A closure runs once at a time, no matter how
//! many instances, clones and children contain it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Duration;

use millpond::config::Schedule;
use millpond::error::Invalid;
use millpond::graph::{Graph, GraphExec, Instantiate};
use millpond::{Device, Error, HostConfig, Result, Stream};
use millpond_driver::DriverError;

use super::made::{each, each_seed, instance};
use crate::common::on_parallel_devices_that_run_closures;
use crate::common::watchdog::ends;

fn devices() -> impl Iterator<Item = Device> {
    let seeded = (0..8).map(|seed| HostConfig::default().schedule(Schedule::Seeded(seed)));
    seeded.chain([HostConfig::default()]).map(|config| Device::host(config).expect("a host device"))
}

fn meet(barrier: &Arc<Barrier>) -> impl FnMut() + Send + 'static {
    let barrier = Arc::clone(barrier);
    move || {
        barrier.wait();
    }
}

#[test]
fn nodes_without_a_path_wait_for_each_other() {
    on_parallel_devices_that_run_closures(|on| {
        for many in [2, 17, 300] {
            let (stream, all) = (on.stream(), Arc::new(Barrier::new(many)));
            let mut graph = on.device.graph()?;
            for _ in 0..many {
                graph.add_host_function(&[], meet(&all))?;
            }
            let exec = instance(&graph)?;
            ends(|| {
                let _ = (exec.launch(&stream)?, exec.launch(&stream)?);
                stream.synchronize()
            })?;
        }
        Ok(())
    });
}

/// Each function waits for a fill that shares a lane with others, and for all other functions.
#[test]
fn nodes_that_share_lanes_keep_no_function_from_another() {
    on_parallel_devices_that_run_closures(|on| {
        const MANY: usize = 40;
        let (stream, pool) = (on.stream(), on.device.default_pool());
        let buffers: Vec<_> = (0..MANY).map(|_| stream.alloc::<u32>(&pool, 64)).collect::<Result<_>>()?;
        let [first, second] = std::array::from_fn(|_| Arc::new(Barrier::new(MANY)));
        let mut graph = on.device.graph()?;
        let root = graph.add_host_function(&[], || ())?;
        let fill = |graph: &mut Graph, after, at: usize, byte| graph.add_memset(&[after], buffers[at].write(), byte);
        let fills: Vec<_> = (0..MANY).map(|at| fill(&mut graph, root, at, 1)).collect::<Result<_>>()?;
        for at in 0..MANY {
            let meets = graph.add_host_function(&[fills[at], fills[(at + 1) % MANY]], meet(&first))?;
            let again = fill(&mut graph, meets, at, 2)?;
            graph.add_host_function(&[again], meet(&second))?;
        }
        let exec = instance(&graph)?;
        ends(|| exec.launch(&stream).map(drop).and_then(|()| stream.synchronize()))?;
        for buffer in buffers {
            assert!(stream.copy_to_host(buffer.read())?.iter().all(|x| *x == 0x0202_0202));
            stream.free(buffer)?;
        }
        Ok(())
    });
}

/// A wait node waits for an outside stream, and that waits for a node of the graph.
#[test]
fn event_waits_keep_no_function_from_the_outside() {
    on_parallel_devices_that_run_closures(|on| {
        const MANY: usize = 20;
        let stream = on.stream();
        let all = Arc::new(Barrier::new(2 * MANY));
        let outside: Vec<Stream> = (0..MANY).map(|_| on.stream()).collect();
        let mut graph = on.device.graph()?;
        for side in &outside {
            let event = on.device.external_event();
            let mut meets = meet(&all);
            side.launch((), move |()| meets())?;
            side.record_external(&event)?;
            graph.add_event_wait(&[], &event)?;
        }
        for _ in 0..MANY {
            graph.add_host_function(&[], meet(&all))?;
        }
        let exec = instance(&graph)?;
        ends(|| exec.launch(&stream).map(drop).and_then(|()| stream.synchronize()))
    });
}

#[test]
fn a_graph_of_more_functions_at_once_than_lanes_is_refused() {
    on_parallel_devices_that_run_closures(|on| {
        let mut graph = on.device.graph()?;
        for _ in 0..=1 << 14 {
            graph.add_host_function(&[], || ())?;
        }
        let refused = instance(&graph).expect_err("no lane is left");
        assert!(matches!(refused.invalid(), Some(Invalid::GraphTooLarge(_))), "{refused}");
        Ok(())
    });
}

/// Makes a closure that checks that it runs alone, and counts its runs.
fn alone(runs: &Arc<AtomicU32>) -> impl FnMut() + Send + 'static {
    let (runs, mut inside) = (Arc::clone(runs), AtomicU32::new(0));
    move || {
        assert_eq!(*inside.get_mut(), 0, "runs of one closure overlap");
        *inside.get_mut() = 1;
        std::thread::yield_now();
        *inside.get_mut() = 0;
        runs.fetch_add(1, Ordering::AcqRel);
    }
}

/// The first run of a closure waits for work that runs the same closure. That run comes after it, so the wait gets an
/// error.
fn is_told(device: &Device, instances: impl Fn(&Graph) -> Result<[GraphExec; 2]>) -> Result<()> {
    let [left, right] = [device.stream()?, device.stream()?];
    let (runs, asked) = (Arc::new(AtomicU32::new(0)), Arc::new(OnceLock::<Stream>::new()));
    let ((answer, answered), (go, gate)) = (channel(), channel::<()>());
    let (count, inner) = (Arc::clone(&runs), Arc::clone(&asked));
    let mut graph = device.graph()?;
    graph.add_host_function(&[], move || {
        if count.fetch_add(1, Ordering::AcqRel) == 0 {
            answer.send(inner.get().expect("set before").synchronize()).unwrap();
        }
    })?;
    let [first, second] = instances(&graph)?;
    let _ = asked.set(right.clone());
    // The first run begins after the second one is launched.
    left.launch((), move |()| _ = gate.recv())?;
    let _ = (first.launch(&left)?, second.launch(&right)?);
    go.send(()).unwrap();
    ends(|| left.synchronize().and_then(|()| right.synchronize()))?;
    assert_eq!(runs.load(Ordering::Acquire), 2);
    match answered.recv().unwrap() {
        Err(Error::Driver(error)) if matches!(*error, DriverError::Deadlock { .. }) => Ok(()),
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn a_closure_that_waits_for_its_next_run_is_told() {
    let all = |device: &Device| {
        is_told(device, |graph| Ok([instance(graph)?, instance(graph)?]))?;
        is_told(device, |graph| Ok([instance(graph)?, instance(&graph.try_clone()?)?]))?;
        is_told(device, |graph| {
            let mut around = device.graph()?;
            around.add_child(&[], graph)?;
            Ok([instance(&around)?, instance(graph)?])
        })?;
        // The same for runs of dropped instances.
        is_told(device, |graph| {
            let (first, second) = (instance(graph)?, instance(graph)?);
            let updated = instance(graph)?;
            updated.update(graph)?;
            drop(second);
            Ok([first, updated])
        })
    };
    each_seed(1..=5, all);
    on_parallel_devices_that_run_closures(|on| all(&on.device));
}

/// With addresses of their own, and memory.
#[test]
fn a_kernel_at_two_addresses_runs_once_at_a_time() {
    on_parallel_devices_that_run_closures(|on| {
        let [left, right] = on.streams();
        let mut graph = on.device.symbolic_graph()?;
        let x = graph.add_alloc::<u32>(&[], 1000)?;
        let alloc = graph.node_of(x).unwrap();
        let (runs, inside) = (Arc::new(AtomicU32::new(0)), AtomicU32::new(0));
        let count = Arc::clone(&runs);
        let kernel = graph.add_kernel(&[alloc], x.write(), move |x| {
            assert_eq!(inside.fetch_add(1, Ordering::AcqRel), 0, "runs of one closure overlap");
            x.fill(1);
            std::thread::yield_now();
            inside.fetch_sub(1, Ordering::AcqRel);
            count.fetch_add(1, Ordering::AcqRel);
        })?;
        graph.add_free(&[kernel], x)?;
        let [first, second] = [instance(&graph)?, instance(&graph)?];
        ends(|| {
            for _ in 0..50 {
                let _ = (first.launch(&left)?, second.launch(&right)?);
            }
            left.synchronize().and_then(|()| right.synchronize())
        })?;
        assert_eq!(runs.load(Ordering::Acquire), 100);
        Ok(())
    });
}

/// Children without a path between them, and several launching threads, on every kind of device.
#[test]
fn a_closure_runs_once_at_a_time_wherever_it_is() {
    each(|on| {
        let runs = Arc::new(AtomicU32::new(0));
        let mut graph = on.device.graph()?;
        graph.add_host_function(&[], alone(&runs))?;
        graph.add_host_function(&[], alone(&runs))?;
        let mut around = on.device.graph()?;
        for _ in 0..20 {
            around.add_child(&[], &graph)?;
        }
        let execs = [instance(&graph)?, instance(&graph)?, instance(&around)?, instance(&around.try_clone()?)?];
        ends(|| {
            std::thread::scope(|scope| {
                for exec in &execs {
                    scope.spawn(|| {
                        let stream = on.stream();
                        (0..10).for_each(|_| drop(exec.launch(&stream).unwrap()));
                        stream.synchronize().unwrap();
                    });
                }
            });
        });
        assert_eq!(runs.load(Ordering::Acquire), 10 * (2 + 2 + 40 + 40));
        Ok(())
    });
}

/// A run waits only for another run of the same closure, and not for nodes that come after that in another instance.
#[test]
fn the_next_run_waits_for_the_run_and_not_for_its_launch() {
    on_parallel_devices_that_run_closures(|on| {
        let [left, right] = on.streams();
        let runs = Arc::new(AtomicU32::new(0));
        let mut graph = on.device.graph()?;
        let first = graph.add_host_function(&[], alone(&runs))?;
        let inner = graph.try_clone()?;
        // The launch that contains the first run waits at its end for the host, which waits for the second run.
        let (go, gate) = channel::<()>();
        graph.add_host_function(&[first], move || _ = gate.recv())?;
        let [around, alone] = [instance(&graph)?, instance(&inner)?];
        let _ = (around.launch(&left)?, alone.launch(&right)?);
        ends(|| right.synchronize())?;
        go.send(()).unwrap();
        ends(|| left.synchronize())?;
        assert_eq!(runs.load(Ordering::Acquire), 2);
        Ok(())
    });
}

/// Chains with many nodes each: nodes that meet are not behind others.
#[test]
fn the_ends_of_chains_meet_too() {
    ends(|| {
        let device = Device::host(HostConfig::default()).unwrap();
        let (stream, all) = (device.stream().unwrap(), Arc::new(Barrier::new(40)));
        let mut graph = device.graph().unwrap();
        let first = graph.add_host_function(&[], || ()).unwrap();
        for length in 0..40 {
            let mut last = first;
            for _ in 0..length % 5 {
                last = graph.add_host_function(&[last], || ()).unwrap();
            }
            let all = Arc::clone(&all);
            graph.add_host_function(&[last], move || _ = all.wait()).unwrap();
        }
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        for _ in 0..3 {
            let _ = exec.launch(&stream).unwrap();
        }
        stream.synchronize().unwrap();
    });
}

/// Closures are dropped after the graphs and instances and, if a launch drops them last, after their device.
#[test]
fn closures_go_with_what_they_own() {
    ends(|| {
        for device in devices() {
            let (stream, owned) = (device.stream().unwrap(), Arc::new(()));
            for _ in 0..20 {
                let mut graph = device.graph().unwrap();
                let own = Arc::clone(&owned);
                graph.add_host_function(&[], move || _ = &own).unwrap();
                let [a, b] = [(); 2].map(|()| graph.instantiate(Instantiate::default()).unwrap());
                let _ = a.launch(&stream).unwrap();
                let _ = b.launch(&stream).unwrap();
            }
            stream.synchronize().unwrap();
            drop((stream, device));
            for _ in 0..1000 {
                if Arc::strong_count(&owned) == 1 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(Arc::strong_count(&owned), 1);
        }
    });
}
