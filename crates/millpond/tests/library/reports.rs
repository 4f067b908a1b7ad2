//! With the setting to report violations, the program goes on, and its results are right: on every kind of device.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::common::{Make, Subject, makes, traced, visit};
use millpond::check::Kind;
use millpond::config::{Reporter, Trace, Violations};
use millpond::error::Invalid;
use millpond::graph::{CaptureMode, Instantiate};
use millpond::{DeviceConfig, Error, Stream};
use millpond_core::check::Settings;

type Told = Arc<Mutex<Vec<Kind>>>;

/// Makes a device that reports violations.
fn subject(make: Make, trace: Option<Trace>) -> (Subject, Told) {
    eprintln!("on {make:?}:");
    let told = Told::default();
    let to = Arc::clone(&told);
    let reporter = Reporter::new(move |violation| to.lock().unwrap().push(violation.kind));
    let config = DeviceConfig::default().violations(Violations::Report(reporter)).trace(trace);
    (Subject::with(make, config), told)
}

fn take(told: &Told) -> Vec<Kind> {
    std::mem::take(&mut *told.lock().unwrap())
}

#[test]
fn a_wrong_order_is_reported_and_mended() {
    let seeds = (4..50).map(Make::Seeded).filter(|_| makes().contains(&Make::Seeded(1)));
    for make in makes().into_iter().chain(seeds) {
        let (on, told) = subject(make, None);
        let pool = on.device.default_pool();
        let [left, right] = on.streams();
        let kept = left.alloc::<u8>(&pool, 4096).unwrap();
        let a = left.alloc::<u8>(&pool, 4096).unwrap();
        left.memset(a.write(), 7).unwrap();
        right.copy(a.read(), kept.write()).unwrap();
        assert_eq!(take(&told), [Kind::UseBeforeAlloc], "one wait mends both");
        left.free(a).unwrap();
        assert_eq!(take(&told), [Kind::FreeBeforeUse]);
        let b = left.alloc::<u8>(&pool, 4096).unwrap();
        left.memset(b.write(), 9).unwrap();
        let found = left.copy_to_host(kept.read()).unwrap();
        assert!(!on.has_memory || found == [7; 4096], "on {make:?}");
        on.device.synchronize().unwrap();
        assert_eq!(take(&told), []);
    }
}

/// A stream that had joined a capture is waited for as any other once that has ended.
#[test]
fn a_stream_that_was_captured_is_waited_for() {
    for make in makes() {
        let (on, told) = subject(make, None);
        let [left, side, third] = on.streams();
        let x = side.alloc::<u8>(&on.device.default_pool(), 64).unwrap();
        left.begin_capture().unwrap();
        side.wait(&left.record().unwrap()).unwrap();
        left.wait(&side.record().unwrap()).unwrap();
        drop(left.end_capture().unwrap());
        third.memset(x.write(), 1).unwrap();
        assert_eq!(take(&told), [Kind::UseBeforeAlloc], "on {make:?}");
    }
}

/// Two missing readers are one violation that names both, and both edges are added.
#[test]
fn all_that_is_missing_is_reported_once() {
    for make in makes() {
        let (on, told) = subject(make, None);
        let [owner, a, b] = on.streams();
        let x = owner.alloc::<u8>(&on.device.default_pool(), 64).unwrap();
        for reader in [&a, &b] {
            reader.wait(&owner.record().unwrap()).unwrap();
            visit(reader, x.read()).unwrap();
        }
        owner.free(x).unwrap();
        assert_eq!(take(&told), [Kind::FreeBeforeUse], "on {make:?}");
    }
}

/// Another party, here the reporter, adds the edge before the library does.
#[test]
fn what_is_mended_meanwhile_goes_on() {
    for make in makes() {
        let slot = Arc::<Mutex<Option<(Stream, Stream)>>>::default();
        let streams = Arc::clone(&slot);
        let reporter = Reporter::new(move |_| {
            let streams = streams.lock().unwrap();
            let (left, right) = streams.as_ref().expect("the streams");
            right.wait(&left.record().unwrap()).unwrap();
        });
        let config = DeviceConfig::default().violations(Violations::Report(reporter));
        let on = Subject::with(make, config);
        let [left, right] = on.streams();
        *slot.lock().unwrap() = Some((left.clone(), right.clone()));
        let a = left.alloc::<u8>(&on.device.default_pool(), 4096).unwrap();
        right.memset(a.write(), 7).unwrap();
        right.free(a).unwrap();
        *slot.lock().unwrap() = None;
    }
}

#[test]
fn a_launch_that_frees_too_early_is_mended() {
    for make in makes() {
        let (on, told) = subject(make, None);
        let [s, t] = on.streams();
        let mut graph = on.device.graph().unwrap();
        let a = graph.add_alloc::<u8>(&[], 4096).unwrap();
        let born = graph.node_of(a).unwrap();
        graph.add_memset(&[born], a.write(), 3).unwrap();
        let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true)).unwrap();
        let kept = t.alloc::<u8>(&on.device.default_pool(), 4096).unwrap();
        let first = exec.launch(&s).unwrap().take(a).unwrap();
        t.wait(&s.record().unwrap()).unwrap();
        t.copy(first.read(), kept.write()).unwrap();
        let _second = exec.launch(&s).unwrap();
        assert_eq!(take(&told).len(), 1, "on {make:?}");
        let found = t.copy_to_host(kept.read()).unwrap();
        assert!(!on.has_memory || found == [3; 4096], "on {make:?}");
    }
}

/// A stream may begin to capture after a copy has checked that it does not. Here the reporter begins the capture when
/// it gets the violation.
#[test]
fn a_capture_that_begins_in_the_midst_of_a_copy_to_the_host_refuses_it() {
    for make in makes() {
        let stream = Arc::new(Mutex::new(None::<Stream>));
        let begins = Arc::clone(&stream);
        let reporter = Reporter::new(move |_| {
            if let Some(stream) = begins.lock().unwrap().take() {
                stream.begin_capture_in(CaptureMode::Relaxed).unwrap();
            }
        });
        let config = DeviceConfig::default().violations(Violations::Report(reporter));
        let on = Subject::with(make, config);
        let [left, right] = on.streams();
        let a = left.alloc::<u8>(&on.device.default_pool(), 4096).unwrap();
        left.memset(a.write(), 7).unwrap();
        *stream.lock().unwrap() = Some(right.clone());
        let refused = right.copy_to_host(a.read()).unwrap_err();
        assert!(matches!(refused.invalid(), Some(Invalid::Uncapturable { .. })), "on {make:?}: {refused}");
        assert!(right.end_capture().is_ok_and(|graph| graph.is_empty()), "on {make:?}");
        left.free(a).unwrap();
    }
}

/// A free without a stream has no stream that could wait.
#[test]
fn a_free_by_the_host_is_reported_and_refused() {
    for make in makes() {
        let (on, told) = subject(make, None);
        let stream = on.stream();
        let a = stream.alloc::<u8>(&on.device.default_pool(), 4096).unwrap();
        stream.memset(a.write(), 7).unwrap();
        let refused = on.device.free(a).unwrap_err();
        assert_eq!(take(&told), [Kind::FreeBeforeAlloc]);
        on.device.free_address(refused.buffer.address()).unwrap_err();
        assert_eq!(take(&told), [Kind::FreeBeforeAlloc]);
        stream.synchronize().unwrap();
        on.device.free(refused.buffer).unwrap();
        assert_eq!(take(&told), []);
    }
}

#[test]
fn what_no_wait_can_mend_is_reported_and_refused() {
    for make in makes() {
        let (on, told) = subject(make, None);
        let s = on.stream();
        let a = s.alloc::<u8>(&on.device.default_pool(), 512).unwrap();
        let view = a.view();
        s.free(a).unwrap();
        assert!(matches!(visit(&s, view.read()), Err(Error::Violation(_))));
        assert_eq!(take(&told), [Kind::UseAfterFree]);
    }
}

#[test]
fn the_trace_has_what_the_program_said() {
    for make in makes() {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("reports-{make:?}.trace"));
        let trace = Trace::create(&path).unwrap();
        let (on, told) = subject(make, Some(trace.clone()));
        let (left, right) = (on.device.non_blocking_stream().unwrap(), on.device.non_blocking_stream().unwrap());
        let a = left.alloc::<u8>(&on.device.default_pool(), 512).unwrap();
        right.memset(a.write(), 1).unwrap();
        right.memset(a.write(), 2).unwrap();
        assert_eq!(take(&told), [Kind::UseBeforeAlloc], "it comes after the allocation by now");
        left.free(a).unwrap();
        assert_eq!(take(&told), [Kind::FreeBeforeUse], "what was let pass has happened");
        drop((left, right, on, trace));
        let found = traced::findings(&path, Settings::RECORDED, |_| true);
        let found: Vec<_> = found.iter().map(|it| it.kind).collect();
        assert_eq!(found, [Kind::UseBeforeAlloc, Kind::FreeBeforeUse], "on {make:?}");
    }
}
