//! A device under test, and the operations that cases consist of.
//!
//! The `unsafe` calls are here. The cases keep their conditions: a case uses only memory that it has mapped, and blocks
//! on an event before it unmaps.

use std::sync::Arc;

use millpond_driver::{CopyKind, Driver, RawChunk, RawEvent, RawStream, Result, StreamFlags, Work};

/// A device under test.
pub(crate) struct Subject {
    pub(crate) driver: Arc<dyn Driver>,
    /// `true` if written memory can be read back.
    pub(crate) has_memory: bool,
    /// `true` if work of different streams runs at once.
    pub(crate) is_parallel: bool,
    /// `true` if its times come from a clock instead of counting items.
    pub(crate) has_clock: bool,
    /// `true` if work is done for a caller that only queries.
    pub(crate) progresses: bool,
    /// `true` if closures may call the device.
    pub(crate) work_may_submit: bool,
}

impl Subject {
    pub(crate) fn granule(&self) -> u64 {
        self.driver.properties().granularity
    }

    pub(crate) fn stream(&self) -> RawStream {
        self.driver.open_stream(StreamFlags::default()).expect("a stream")
    }

    pub(crate) fn record(&self, stream: RawStream) -> RawEvent {
        self.driver.record(stream).expect("an event")
    }

    pub(crate) fn wait(&self, stream: RawStream, event: RawEvent) {
        self.driver.wait(stream, event).expect("a wait");
    }

    pub(crate) fn submit(&self, stream: RawStream, work: Work) {
        // SAFETY: see the head of this file.
        unsafe { self.driver.submit(stream, &mut Some(work)) }.expect("a submission");
    }

    pub(crate) fn run(&self, stream: RawStream, task: impl FnOnce() + Send + 'static) {
        self.submit(stream, Work::Run(Box::new(task)));
    }

    pub(crate) fn copy(&self, stream: RawStream, to: u64, from: u64, bytes: u64, kind: CopyKind) {
        self.submit(stream, Work::Copy { to, from, bytes, kind });
    }

    /// Blocks until a stream's present work has completed.
    pub(crate) fn finish(&self, stream: RawStream) {
        let event = self.record(stream);
        self.driver.block_on(event).expect("the work gets done");
        assert_eq!(self.driver.is_over(event), Ok(true));
        self.driver.forget(event);
    }

    pub(crate) fn close(&self, stream: RawStream) {
        self.driver.close_stream(stream).expect("an open stream");
    }

    pub(crate) fn map(&self, chunk: RawChunk, at: u64, bytes: u64) -> Result<()> {
        // SAFETY: see the head of this file.
        unsafe { self.driver.map(chunk, at, bytes) }
    }

    pub(crate) fn unmap(&self, at: u64, bytes: u64) -> Result<()> {
        // SAFETY: see the head of this file.
        unsafe { self.driver.unmap(at, bytes) }
    }

    pub(crate) fn unreserve(&self, at: u64, bytes: u64) -> Result<()> {
        // SAFETY: see the head of this file.
        unsafe { self.driver.unreserve(at, bytes) }
    }

    /// Fills device memory and waits for that.
    pub(crate) fn fill(&self, at: u64, bytes: u64, value: u8) {
        let stream = self.stream();
        self.submit(stream, Work::Fill { at, bytes, value });
        self.finish(stream);
        self.close(stream);
    }

    /// Returns the bytes of device memory. Meaningless unless `has_memory`.
    pub(crate) fn read(&self, at: u64, bytes: u64) -> Vec<u8> {
        let mut host = vec![0u8; bytes as usize];
        let stream = self.stream();
        let to = host.as_mut_ptr().expose_provenance() as u64;
        self.submit(stream, Work::Copy { to, from: at, bytes, kind: CopyKind::DeviceToHost });
        self.finish(stream);
        self.close(stream);
        host
    }

    /// Asserts that each of some bytes has a value, if there is memory to read.
    #[track_caller]
    pub(crate) fn expect(&self, at: u64, bytes: u64, value: u8) {
        let found = self.read(at, bytes);
        assert!(!self.has_memory || found.iter().all(|&byte| byte == value), "not all {bytes} B are {value}");
    }
}

/// Host memory of a device. The cases ensure that it is read and written only while no copy uses it.
pub(crate) struct HostMemory {
    driver: Arc<dyn Driver>,
    at: u64,
    len: usize,
}

impl HostMemory {
    pub(crate) fn new(subject: &Subject, len: usize) -> Self {
        let at = subject.driver.alloc_host(len as u64).expect("host memory");
        Self { driver: Arc::clone(&subject.driver), at, len }
    }

    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: it has this many bytes, which no work uses at present.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.at as usize), self.len) }
    }

    pub(crate) fn fill(&self, value: u8) {
        // SAFETY: as above, and only this thread has it.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(self.at as usize).write_bytes(value, self.len) };
    }

    pub(crate) fn free(self) -> Result<()> {
        // SAFETY: no work uses it, and it is not used from here any more.
        unsafe { self.driver.free_host(self.at) }
    }

    /// Returns `true` if a device refuses to free an address that is not its host memory.
    pub(crate) fn refuses(subject: &Subject, at: u64) -> bool {
        // SAFETY: nothing is there.
        unsafe { subject.driver.free_host(at) }.is_err()
    }
}
