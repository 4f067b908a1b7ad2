//! Tests of the checks, on a host device without memory, whose work runs only while a thread waits or queries.

use super::*;
use crate::{Access, HostConfig, HostDriver, Schedule};

const MIB2: u64 = 2 << 20;

fn late() -> Checked<HostDriver> {
    device(HostConfig { schedule: Schedule::Seeded(1), ..HostConfig::default() })
}

fn device(config: HostConfig) -> Checked<HostDriver> {
    Checked::recording(HostDriver::new(HostConfig { memory: false, ..config }).unwrap())
}

fn fill(at: u64, bytes: u64) -> Work {
    Work::Fill { at, bytes, value: 0 }
}

/// Returns a mapped chunk of 2 MiB.
fn mapped(device: &impl Driver) -> (RawChunk, u64) {
    let (chunk, at) = (device.create(MIB2).unwrap(), device.reserve(MIB2).unwrap());
    // SAFETY: nothing accesses the memory, which does not exist.
    unsafe { device.map(chunk, at, MIB2) }.unwrap();
    (chunk, at)
}

fn submit(device: &impl Driver, stream: RawStream, work: Work) -> Result<()> {
    // SAFETY: nothing accesses the memory, which does not exist.
    unsafe { device.submit(stream, &mut Some(work)) }
}

fn unmap(device: &impl Driver, at: u64) -> Result<()> {
    // SAFETY: nothing accesses the memory, which does not exist.
    unsafe { device.unmap(at, MIB2) }
}

#[test]
fn calls_are_kept_as_data() {
    let device = device(HostConfig { total_bytes: MIB2, ..HostConfig::default() });
    let chunk = Driver::create(&device, MIB2).unwrap();
    assert!(Driver::create(&device, MIB2).is_err());
    Driver::destroy(&device, chunk).unwrap();
    let error = DriverError::OutOfMemory { call: "create", bytes: MIB2 };
    let expected =
        [Call::Create { bytes: MIB2, chunk }, Call::Refused { kind: CallKind::Create, error }, Call::Destroy { chunk }];
    assert_eq!(device.take_calls(), expected);
    assert!(device.take_calls().is_empty());
    device.assert_clean();
}

#[test]
fn breaches_and_leaks_are_named() {
    let device = late();
    let (chunk, at) = mapped(&device);
    let stream = Driver::open_stream(&device, StreamFlags::default()).unwrap();
    assert!(submit(&device, stream, fill(at + MIB2 - 8, 16)).is_err());
    assert!(submit(&device, stream, Work::Protect { at: at + 1, bytes: 4096, access: Access::None }).is_err());
    assert!(Driver::destroy(&device, RawChunk(chunk.0 + 1)).is_err());
    let kinds: Vec<CallKind> = device.violations().iter().map(|violation| violation.kind).collect();
    assert_eq!(kinds, [CallKind::Submit, CallKind::Submit, CallKind::Destroy]);
    assert!(device.violations()[0].to_string().contains("not all mapped"), "{:?}", device.violations());
    assert_eq!(device.leaks().len(), 4, "a mapping, a chunk, a range and a stream: {:?}", device.leaks());
}

#[test]
fn memory_that_work_in_flight_uses_stays() {
    let device = late();
    let (_, at) = mapped(&device);
    let host = Driver::alloc_host(&device, 64).unwrap();
    let stream = Driver::open_stream(&device, StreamFlags::default()).unwrap();
    let kind = crate::CopyKind::HostToDevice;
    submit(&device, stream, Work::Copy { to: at, from: host, bytes: 64, kind }).unwrap();
    let event = Driver::record(&device, stream).unwrap();
    assert!(unmap(&device, at).unwrap_err().to_string().contains("is in flight and touches"));
    // SAFETY: the call is refused.
    assert!(unsafe { Driver::free_host(&device, host) }.is_err());
    let kinds: Vec<CallKind> = device.violations().iter().map(|violation| violation.kind).collect();
    assert_eq!(kinds, [CallKind::Unmap, CallKind::FreeHost]);
    Driver::block_on(&device, event).unwrap();
    unmap(&device, at).unwrap();
    // SAFETY: the copy has completed.
    unsafe { Driver::free_host(&device, host) }.unwrap();
    assert_eq!(device.violations().len(), 2, "the work has completed");
}

#[test]
fn an_event_that_was_forgotten_is_unknown() {
    let device = late();
    let stream = Driver::open_stream(&device, StreamFlags::default()).unwrap();
    let events = [(); 2].map(|()| Driver::record(&device, stream).unwrap());
    Driver::close_stream(&device, stream).unwrap();
    Driver::forget(&device, events[0]);
    assert_eq!((device.leaks().len(), Driver::is_over(&device, events[1])), (1, Ok(true)));
    Driver::forget(&device, events[1]);
    device.assert_clean();
    let unknown = DriverError::UnknownHandle { call: "is_over", what: "event", handle: events[1].0 };
    assert_eq!(Driver::is_over(&device, events[1]), Err(unknown));
    assert_eq!(device.violations().len(), 1);
}
