//! Closures of graphs that wait: for each other, for other streams, and for their own runs in other instances.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::Duration;

use millpond::config::Schedule;
use millpond::graph::Instantiate;
use millpond::{Device, HostConfig, Result, Stream};

use crate::watchdog::ends;

fn devices() -> impl Iterator<Item = Device> {
    let seeded = (0..8).map(|seed| HostConfig::default().schedule(Schedule::Seeded(seed)));
    seeded.chain([HostConfig::default()]).map(|config| Device::host(config).expect("a host device"))
}

#[test]
fn nodes_without_a_path_between_them_meet() {
    ends(|| {
        for count in [17, 100] {
            let device = Device::host(HostConfig::default()).unwrap();
            let (stream, all) = (device.stream().unwrap(), Arc::new(Barrier::new(count)));
            let mut graph = device.graph().unwrap();
            for _ in 0..count {
                let all = Arc::clone(&all);
                graph.add_host_function(&[], move || _ = all.wait()).unwrap();
            }
            let exec = graph.instantiate(Instantiate::default()).unwrap();
            let _ = exec.launch(&stream).unwrap();
            stream.synchronize().unwrap();
        }
    });
}

/// Chains of which each has many nodes: those that meet are not behind others.
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

/// The closure asks for the end of a stream where the graph's other instance runs.
#[test]
fn a_closure_that_waits_for_its_own_run_elsewhere_is_refused_and_goes_on() {
    ends(|| {
        for device in devices() {
            let [one, two] = [device.stream().unwrap(), device.stream().unwrap()];
            let (runs, other) = (Arc::new(AtomicU32::new(0)), Arc::new(OnceLock::<Stream>::new()));
            let mut graph = device.graph().unwrap();
            let (count, stream) = (Arc::clone(&runs), Arc::clone(&other));
            let function = move || {
                if count.fetch_add(1, Ordering::AcqRel) == 0 {
                    // Where it is submitted already this is refused: it comes after this run.
                    let _ = stream.get().expect("it is set").synchronize();
                }
            };
            graph.add_host_function(&[], function).unwrap();
            let [a, b] = [(); 2].map(|()| graph.instantiate(Instantiate::default()).unwrap());
            assert!(other.set(two.clone()).is_ok());
            let _ = a.launch(&one).unwrap();
            let _ = b.launch(&two).unwrap();
            one.synchronize().unwrap();
            two.synchronize().unwrap();
            assert_eq!(runs.load(Ordering::Acquire), 2);
        }
    });
}

/// Instances, clones and children run one closure: never two runs of it at once, on whatever streams.
#[test]
fn a_closure_runs_once_at_a_time() {
    fn program(device: &Device) -> Result<()> {
        let [one, two] = [device.stream()?, device.stream()?];
        let (running, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (graph, ()) = one.capture(|stream| {
            let (running, runs) = (Arc::clone(&running), Arc::clone(&runs));
            stream.launch((), move |()| {
                assert!(!running.swap(true, Ordering::AcqRel), "two runs at once");
                std::thread::sleep(Duration::from_micros(200));
                running.store(false, Ordering::Release);
                runs.fetch_add(1, Ordering::AcqRel);
            })
        })?;
        let mut parent = device.graph()?;
        parent.add_child(&[], &graph)?;
        parent.add_child(&[], &graph)?;
        let copy = graph.clone();
        let all = [&graph, &graph, &copy, &parent];
        let execs = all.map(|graph| graph.instantiate(Instantiate::default()).expect("an instance"));
        for round in 0..10 {
            for (at, exec) in execs.iter().enumerate() {
                let _ = exec.launch([&one, &two][(at + round) % 2])?;
            }
        }
        one.synchronize()?;
        two.synchronize()?;
        assert_eq!(runs.load(Ordering::Acquire), 50);
        Ok(())
    }
    ends(|| devices().for_each(|device| program(&device).expect("it runs")));
}

/// Closures outlive graphs, instances and, dropped by a launch, their device.
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
