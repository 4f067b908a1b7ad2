//! Violations are reported where that is the setting, the program goes on, and what it computes is right.

use std::path::Path;
use std::sync::{Arc, Mutex};

use millpond::{Device, Error, HostConfig, Instantiate, Kind, Reporter, Schedule, Trace, Violations};
use millpond_core::check::{Checker, Settings};
use millpond_core::trace::ops::Reader;

type Told = Arc<Mutex<Vec<Kind>>>;

fn device(config: HostConfig) -> (Device, Told) {
    let told = Told::default();
    let to = Arc::clone(&told);
    let reporter = Reporter::new(move |violation| to.lock().unwrap().push(violation.kind));
    let violations = Violations::Report(reporter);
    (Device::host(HostConfig { violations, ..config }).unwrap(), told)
}

fn take(told: &Told) -> Vec<Kind> {
    std::mem::take(&mut *told.lock().unwrap())
}

#[test]
fn a_wrong_order_is_reported_and_mended_under_any_seed() {
    for seed in 0..50 {
        let (device, told) = device(HostConfig { schedule: Schedule::Seeded(seed), ..HostConfig::default() });
        let pool = device.default_pool();
        let (left, right) = (device.stream().unwrap(), device.stream().unwrap());
        let kept = left.alloc::<u8>(&pool, 4096).unwrap();
        let a = left.alloc::<u8>(&pool, 4096).unwrap();
        left.launch(a.write(), |a| a.fill(7)).unwrap();
        right.launch((a.read(), kept.write()), |(a, kept)| kept.copy_from_slice(a)).unwrap();
        assert_eq!(take(&told), [Kind::UseBeforeAlloc], "one wait mends both");
        left.free(a).unwrap();
        assert_eq!(take(&told), [Kind::FreeBeforeUse]);
        let b = left.alloc::<u8>(&pool, 4096).unwrap();
        left.launch(b.write(), |b| b.fill(9)).unwrap();
        let sums = Arc::new(Mutex::new(0));
        let sum = Arc::clone(&sums);
        left.launch(kept.read(), move |kept| *sum.lock().unwrap() = kept.iter().map(|it| u64::from(*it)).sum())
            .unwrap();
        device.synchronize().unwrap();
        assert_eq!((*sums.lock().unwrap(), take(&told)), (7 * 4096, vec![]));
    }
}

#[test]
fn a_launch_that_frees_too_early_is_mended() {
    let (device, told) = device(HostConfig::default());
    let (s, t) = (device.stream().unwrap(), device.stream().unwrap());
    let mut graph = device.graph().unwrap();
    let a = graph.add_alloc::<u8>(&[], 4096).unwrap();
    let born = graph.node_of(a).unwrap();
    graph.add_kernel(&[born], a.write(), |a| a.fill(3)).unwrap();
    let exec = graph.instantiate(Instantiate { auto_free_on_launch: true }).unwrap();
    let first = exec.launch(&s).unwrap().take(a).unwrap();
    t.wait(&s.record().unwrap()).unwrap();
    t.launch(first.read(), |a| assert!(a.iter().all(|it| *it == 3))).unwrap();
    let _second = exec.launch(&s).unwrap();
    assert_eq!(take(&told).len(), 1);
    device.synchronize().unwrap();
}

#[test]
fn what_no_wait_can_mend_is_reported_and_refused() {
    let (device, told) = device(HostConfig::default());
    let s = device.stream().unwrap();
    let a = s.alloc::<u8>(&device.default_pool(), 512).unwrap();
    let view = a.view();
    s.free(a).unwrap();
    assert!(matches!(s.launch(view.read(), |_| ()), Err(Error::Violation(_))));
    assert_eq!(take(&told), [Kind::UseAfterFree]);
}

#[test]
fn the_trace_has_what_the_program_said() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reports.trace");
    let trace = Trace::create(&path).unwrap();
    let (device, told) = device(HostConfig { trace: Some(trace.clone()), ..HostConfig::default() });
    let (left, right) = (device.non_blocking_stream().unwrap(), device.non_blocking_stream().unwrap());
    let a = left.alloc::<u8>(&device.default_pool(), 512).unwrap();
    right.launch(a.write(), |a| a.fill(1)).unwrap();
    assert_eq!(take(&told), [Kind::UseBeforeAlloc]);
    drop((a, left, right, device, trace));
    let (mut reader, mut checker, mut found) = (Reader::new(), Checker::new(Settings::default()), Vec::new());
    reader.feed(&std::fs::read(&path).unwrap());
    while let Some(op) = reader.next_op().unwrap() {
        checker.check(&op, reader.names(), &mut found);
    }
    assert_eq!(found.iter().map(|it| it.kind).collect::<Vec<_>>(), [Kind::UseBeforeAlloc]);
}
