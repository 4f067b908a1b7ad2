//! Mistakes of the library that reviewers found with safe programs, on the host device.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use millpond::check::Finding;
use millpond::config::{Reporter, Schedule, Violations};
use millpond::error::Invalid;
use millpond::graph::Instantiate;
use millpond::pool::PeerAccess;
use millpond::raw::AccessList;
use millpond::{Device, Event, HostConfig, MIB, PoolConfig, Result};

fn device() -> Device {
    Device::host(HostConfig::default()).expect("the host device opens")
}

fn reporting(report: impl Fn(&Finding) + Send + Sync + 'static) -> Device {
    let report = Violations::Report(Reporter::new(report));
    Device::host(HostConfig::default().violations(report)).expect("the host device opens")
}

/// A reported operation goes on, even if the other side's stream closes at that moment.
#[test]
fn a_report_goes_on_while_the_other_stream_closes() {
    let device = reporting(|_| ());
    let stream = device.stream().unwrap();
    let x = stream.alloc::<u32>(&device.default_pool(), 16).unwrap();
    for round in 0..1000 {
        let other = device.stream().unwrap();
        other.launch(x.write(), |x| x.fill(1)).unwrap();
        let closing = std::thread::spawn(move || drop(other));
        stream.launch(x.write(), |x| x.fill(2)).unwrap_or_else(|error| panic!("round {round}: {error}"));
        closing.join().unwrap();
    }
    stream.free(x).unwrap();
}

/// A kernel that waits runs the work that it waits for, and no other instance of the same closure, which it holds.
#[test]
fn a_seeded_kernel_that_waits_runs_no_other_instance_of_it() {
    for seed in 0..16 {
        for synchronizes in [true, false] {
            let config = HostConfig::default().schedule(Schedule::Seeded(seed));
            let device = Device::host(config).unwrap();
            let [s, t, u] = [(); 3].map(|()| device.stream().unwrap());
            let event = Arc::<Mutex<Option<Event>>>::default();
            let asked = Arc::clone(&event);
            let mut graph = device.graph().unwrap();
            let wait = move || {
                let event = asked.lock().unwrap().clone().expect("it is recorded before the launch");
                match synchronizes {
                    true => event.synchronize().unwrap(),
                    false => drop(event.is_over().unwrap()),
                }
            };
            graph.add_host_function(&[], wait).unwrap();
            let instances = [(); 2].map(|()| graph.instantiate(Instantiate::default()).unwrap());
            u.launch((), |()| ()).unwrap();
            *event.lock().unwrap() = Some(u.record().unwrap());
            let _ = (instances[0].launch(&s).unwrap(), instances[1].launch(&t).unwrap());
            s.synchronize().unwrap();
            t.synchronize().unwrap();
        }
    }
}

/// Idle memory beyond a new limit is given back at once, and is not used.
#[test]
fn a_limit_holds_for_memory_that_is_there() {
    let device = device();
    let stream = device.stream().unwrap();
    let pool = device.pool(PoolConfig::default().release_threshold(u64::MAX)).unwrap();
    let alloc = || (0..8).filter_map(|_| stream.alloc::<u8>(&pool, 3 * MIB as usize).ok()).collect::<Vec<_>>();
    let all = alloc();
    assert_eq!(all.len(), 8);
    drop(all);
    stream.synchronize().unwrap();
    pool.set_max_bytes(Some(4 * MIB)).unwrap();
    assert!(pool.statistics().reserved_bytes <= 4 * MIB, "{:?}", pool.statistics());
    assert_eq!(alloc().len(), 1);
    // Memory in use is given back once it is idle and the host synchronises.
    pool.set_max_bytes(None).unwrap();
    let all = alloc();
    pool.set_max_bytes(Some(4 * MIB)).unwrap();
    assert!(pool.statistics().reserved_bytes >= 24 * MIB);
    drop(all);
    stream.synchronize().unwrap();
    assert!(pool.statistics().reserved_bytes <= 4 * MIB, "{:?}", pool.statistics());
}

/// Devices beyond those that messages number are still different devices.
#[test]
fn the_three_hundredth_device_is_another_one() {
    (0..300).for_each(|_| drop(device()));
    let reports = Arc::new(AtomicUsize::new(0));
    let devices = [(); 2].map(|()| {
        let reports = Arc::clone(&reports);
        reporting(move |_| _ = reports.fetch_add(1, Ordering::Relaxed))
    });
    let [one, two] = &devices;
    let (s, first, second) = (one.stream().unwrap(), two.stream().unwrap(), two.stream().unwrap());
    one.default_pool().grant(two, PeerAccess::ReadWrite).unwrap();
    let x = s.alloc::<u32>(&one.default_pool(), 16).unwrap();
    let y = first.alloc::<u32>(&two.default_pool(), 16).unwrap();
    let refused = second.launch(x.read(), |_| ()).expect_err("no wait of this device's streams can mend it");
    assert!(refused.to_string().contains("of another device"), "{refused}");
    assert_eq!(reports.load(Ordering::Relaxed), 1);
    second.launch(y.read(), |_| ()).unwrap();
    assert_eq!(reports.load(Ordering::Relaxed), 2, "the refused launch put no edge in");
}

/// The host has synchronised with a scope's stream, no matter how the scope ends.
#[test]
fn a_scope_that_fails_has_synchronised() {
    let device = device();
    let stream = device.stream().unwrap();
    let x = stream.alloc::<u32>(&device.default_pool(), 4).unwrap();
    let mut ran = false;
    let failed: Result<()> = stream.scope(|scope| {
        scope.launch(x.write(), |_| ran = true)?;
        Err(Invalid::Stale.into())
    });
    assert!(failed.is_err() && ran);
    device.free(x).unwrap();
}

/// A device with large chunks has a default pool all the same.
#[test]
fn a_granularity_of_a_gibibyte_is_a_setting_like_any_other() {
    let device = Device::host(HostConfig::default().granularity(1 << 30)).unwrap();
    let stream = device.stream().unwrap();
    let x = stream.upload(&device.default_pool(), &[1, 2, 3]).unwrap();
    assert_eq!(stream.copy_to_host(x.read()).unwrap(), [1, 2, 3]);
    stream.free(x).unwrap();
}

/// The error for a view whose pool is dropped does not claim that its place was reused.
#[test]
fn a_view_of_what_is_gone_says_no_more_than_is_known() {
    let device = device();
    let stream = device.stream().unwrap();
    let pool = device.pool(PoolConfig::default()).unwrap();
    let x = stream.alloc::<u32>(&pool, 4).unwrap();
    let view = x.view();
    drop((pool, x));
    let refused = stream.memset(view.write(), 0).expect_err("nothing is there");
    assert!(refused.to_string().contains("it was freed, or its pool, its device or the capture"), "{refused}");
}

/// Accesses counted at run time have no slices, and do not shift the addresses of other accesses.
#[test]
fn a_list_of_accesses_moves_no_slice_beside_it() {
    let device = device();
    let (stream, pool) = (device.stream().unwrap(), device.default_pool());
    let x = stream.alloc_zeroed::<u8>(&pool, 16).unwrap();
    let y = stream.alloc_zeroed::<u8>(&pool, 64).unwrap();
    let list = || {
        let mut list = AccessList::default();
        list.read(x.raw().unwrap(), 0, 16).unwrap();
        list.read(x.raw().unwrap(), 0, 0).unwrap();
        list
    };
    let at = y.address();
    let is_there = move |y: &[u8]| y.as_ptr().addr() as u64 == at && y.len() == 64;
    stream.launch_once((list(), y.write()), move |((), y)| y.fill(u8::from(is_there(y)))).unwrap();
    assert!(stream.copy_to_host(y.read()).unwrap().iter().all(|byte| *byte == 1));
    stream.launch_once((vec![list(), list()], [y.write()]), move |(_, [y])| y.fill(2 * u8::from(is_there(y)))).unwrap();
    assert!(stream.copy_to_host(y.read()).unwrap().iter().all(|byte| *byte == 2));
    // Also in a graph, and if each instance moves the memory.
    let mut graph = device.symbolic_graph().unwrap();
    let z = graph.add_alloc::<u8>(&[], 64).unwrap();
    let alloc = graph.node_of(z).unwrap();
    let fill = graph.add_kernel(&[alloc], (list(), z.write()), |((), z)| z.fill(3)).unwrap();
    let copied = graph.add_kernel(&[fill], (list(), z.read(), y.write()), |((), z, y)| y.copy_from_slice(z)).unwrap();
    graph.add_free(&[copied], z).unwrap();
    let exec = graph.instantiate(Instantiate::default()).unwrap();
    let _ = exec.launch(&stream).unwrap();
    assert!(stream.copy_to_host(y.read()).unwrap().iter().all(|byte| *byte == 3));
    assert!(stream.copy_to_host(x.read()).unwrap().iter().all(|byte| *byte == 0), "it is only read");
}
