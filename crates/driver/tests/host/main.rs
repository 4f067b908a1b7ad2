//! The host device's own properties: memory of the system, workers, seeds, loss and end. The conformance suite has the
//! properties that it shares with other devices.

mod foreign;
mod loss;
mod memory;
mod work;

use std::sync::Arc;

use millpond_driver::{Driver, HostConfig, HostDriver, RawChunk, RawStream, Schedule, StreamFlags, Work};

const MIB: u64 = 1 << 20;
/// The default granularity.
const GRANULE: u64 = 2 * MIB;

fn parallel() -> Arc<HostDriver> {
    Arc::new(HostDriver::new(HostConfig::default()).expect("a host device"))
}

fn seeded(seed: u64) -> Arc<HostDriver> {
    let config = HostConfig { schedule: Schedule::Seeded(seed), ..HostConfig::default() };
    Arc::new(HostDriver::new(config).expect("a host device"))
}

fn stream(device: &dyn Driver) -> RawStream {
    device.open_stream(StreamFlags::default()).expect("a stream")
}

fn try_run(
    device: &dyn Driver,
    stream: RawStream,
    task: impl FnOnce() + Send + 'static,
) -> millpond_driver::Result<()> {
    // SAFETY: the closures of these tests touch no device memory.
    unsafe { device.submit(stream, &mut Some(Work::Run(Box::new(task)))) }
}

fn run(device: &dyn Driver, stream: RawStream, task: impl FnOnce() + Send + 'static) {
    try_run(device, stream, task).expect("a submission");
}

fn finish(device: &dyn Driver, stream: RawStream) {
    let event = device.record(stream).expect("an event");
    device.block_on(event).expect("the work gets done");
}

/// Maps a chunk in a new range of its size.
fn map(device: &dyn Driver, chunk: RawChunk, bytes: u64) -> u64 {
    let at = device.reserve(bytes).expect("addresses");
    // SAFETY: the range is fresh.
    unsafe { device.map(chunk, at, bytes) }.expect("a mapping");
    at
}

fn unmap(device: &dyn Driver, at: u64, bytes: u64) {
    // SAFETY: the tests finish their work before they unmap.
    unsafe { device.unmap(at, bytes) }.expect("a mapping");
}

/// Writes every byte of device memory, from this thread.
fn touch(at: u64, bytes: u64, value: u8) {
    let pointer = std::ptr::with_exposed_provenance_mut::<u8>(at as usize);
    // SAFETY: the tests pass what they have just mapped, and nothing else uses it.
    unsafe { pointer.write_bytes(value, bytes as usize) };
}

/// Returns the byte at a device address.
fn peek(at: u64) -> u8 {
    let pointer = std::ptr::with_exposed_provenance::<u8>(at as usize);
    // SAFETY: the tests pass what they have mapped, and no work is under way.
    unsafe { pointer.read() }
}
