//! The checker finds in a device's trace exactly what the device refuses: short programs, each of a kind that the two
//! once judged differently.

mod captures;
mod graphs;
mod threads;

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
