//! Drivers around drivers: something that sees every call before the device does.
//!
//! A tap sees a call's kind and size, may refuse it, and changes nothing else. [`Counting`] and [`Failing`] are the
//! two taps; one body of delegation serves both.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::process::refuse_forked;
use crate::{
    CallCounts, CallKind, Counters, Driver, DriverError, Failures, Fence, HeldMemory, MarkName, Node, Peer, PeerAccess,
    Properties, RawChunk, RawExec, RawGraph, RawMark, RawStream, RawTime, Result, StreamFlags, Work,
};

/// What sees the calls.
pub trait Tap: Send + Sync + fmt::Debug {
    /// Sees a call before it is made; an error is returned in the device's stead. `bytes` is the call's size, or 0.
    fn before(&self, kind: CallKind, bytes: u64) -> Result<()>;
}

impl Tap for Counters {
    #[inline]
    fn before(&self, kind: CallKind, _bytes: u64) -> Result<()> {
        self.count(kind);
        // A forked process has the parent's handles, and none of its threads.
        refuse_forked()
    }
}

impl Tap for Failures {
    #[inline]
    fn before(&self, kind: CallKind, bytes: u64) -> Result<()> {
        self.check(kind, bytes)
    }
}

/// A driver with a tap before it.
#[derive(Debug)]
pub struct Tapped<D, T> {
    device: D,
    tap: T,
}

/// A driver whose calls are counted by kind, failed ones included.
pub type Counting<D> = Tapped<D, Counters>;

/// A driver whose calls fail on demand, before they reach the device.
pub type Failing<D> = Tapped<D, Failures>;

impl<D, T: Default> Tapped<D, T> {
    /// Puts the tap before a device.
    pub fn new(device: D) -> Self {
        Self { device, tap: T::default() }
    }

    /// The device behind.
    pub fn device(&self) -> &D {
        &self.device
    }
}

impl<D> Counting<D> {
    /// The counts so far.
    pub fn counts(&self) -> CallCounts {
        self.tap.counts()
    }
}

impl<D> Failing<D> {
    /// Makes the `n`-th call from now on fail, whatever its kind; 0 is the next. Only calls that can fail count.
    pub fn fail_at(&self, n: u64) {
        self.tap.fail_at(n);
    }

    /// Makes the `n`-th call of a kind from now on fail; 0 is the next.
    pub fn fail_at_kind(&self, kind: CallKind, n: u64) {
        self.tap.fail_at_kind(kind, n);
    }

    /// Makes the next call of a kind fail with this error.
    pub fn fail_next(&self, kind: CallKind, error: DriverError) {
        self.tap.fail_next(kind, error);
    }

    /// Makes every call of a kind fail with this error until [`Self::disarm`].
    pub fn fail_every(&self, kind: CallKind, error: DriverError) {
        self.tap.fail_every(kind, error);
    }

    /// Takes every wish back.
    pub fn disarm(&self) {
        self.tap.disarm();
    }

    /// The kinds of the calls that were made to fail so far, in order.
    pub fn struck(&self) -> Vec<CallKind> {
        self.tap.struck()
    }
}

/// Writes `impl Driver` as delegation to `$device`, asking `$before` first.
macro_rules! delegate {
    ($self:ident, $device:expr, $before:expr) => {
        fn properties(&$self) -> Properties {
            $device.properties()
        }
        fn reserve(&$self, bytes: u64) -> Result<u64> {
            $before(CallKind::Reserve, bytes)?;
            $device.reserve(bytes)
        }
        unsafe fn unreserve(&$self, at: u64, bytes: u64) -> Result<()> {
            $before(CallKind::Unreserve, bytes)?;
            // SAFETY: the caller's promise is handed on as it is.
            unsafe { $device.unreserve(at, bytes) }
        }
        fn create(&$self, bytes: u64) -> Result<RawChunk> {
            $before(CallKind::Create, bytes)?;
            $device.create(bytes)
        }
        fn destroy(&$self, chunk: RawChunk) -> Result<()> {
            $before(CallKind::Destroy, 0)?;
            $device.destroy(chunk)
        }
        fn can_share(&$self) -> bool {
            $device.can_share()
        }
        fn create_shareable(&$self, bytes: u64) -> Result<RawChunk> {
            $before(CallKind::Create, bytes)?;
            $device.create_shareable(bytes)
        }
        fn export(&$self, chunk: RawChunk) -> Result<OwnedFd> {
            $before(CallKind::Export, 0)?;
            $device.export(chunk)
        }
        fn import(&$self, file: OwnedFd, bytes: u64) -> Result<RawChunk> {
            $before(CallKind::Import, bytes)?;
            $device.import(file, bytes)
        }
        fn export_to_read(&$self, chunk: RawChunk) -> Result<OwnedFd> {
            $before(CallKind::Export, 0)?;
            $device.export_to_read(chunk)
        }
        fn import_to_read(&$self, file: OwnedFd, bytes: u64) -> Result<RawChunk> {
            $before(CallKind::Import, bytes)?;
            $device.import_to_read(file, bytes)
        }
        unsafe fn map(&$self, chunk: RawChunk, at: u64, bytes: u64) -> Result<()> {
            $before(CallKind::Map, bytes)?;
            // SAFETY: the caller's promise is handed on as it is.
            unsafe { $device.map(chunk, at, bytes) }
        }
        unsafe fn unmap(&$self, at: u64, bytes: u64) -> Result<()> {
            $before(CallKind::Unmap, bytes)?;
            // SAFETY: the caller's promise is handed on as it is.
            unsafe { $device.unmap(at, bytes) }
        }
        fn alloc_host(&$self, bytes: u64) -> Result<u64> {
            $before(CallKind::AllocHost, bytes)?;
            $device.alloc_host(bytes)
        }
        unsafe fn free_host(&$self, at: u64) -> Result<()> {
            $before(CallKind::FreeHost, 0)?;
            // SAFETY: the caller's promise is handed on as it is.
            unsafe { $device.free_host(at) }
        }
        fn peer(&$self) -> Option<Peer> {
            $device.peer()
        }
        fn can_let(&$self, peer: Peer) -> Result<bool> {
            $before(CallKind::LetIn, 0)?;
            $device.can_let(peer)
        }
        fn let_in(&$self, at: u64, bytes: u64, peers: &[(Peer, PeerAccess)]) -> Result<()> {
            $before(CallKind::LetIn, bytes)?;
            $device.let_in(at, bytes, peers)
        }
        fn held_memory(&$self) -> Option<HeldMemory> {
            $device.held_memory()
        }
        fn keep(&$self, memory: HeldMemory) {
            $device.keep(memory);
        }
        fn fence(&$self, mark: RawMark) -> Result<Fence> {
            $device.fence(mark)
        }
        fn wait_abroad(&$self, stream: RawStream, fence: &Fence) -> Result<()> {
            $before(CallKind::Wait, 0)?;
            $device.wait_abroad(stream, fence)
        }
        fn open_stream(&$self, flags: StreamFlags) -> Result<RawStream> {
            $before(CallKind::OpenStream, 0)?;
            $device.open_stream(flags)
        }
        unsafe fn adopt_stream(&$self, native: u64) -> Result<RawStream> {
            $before(CallKind::OpenStream, 0)?;
            // SAFETY: the caller's promise is handed on as it is.
            unsafe { $device.adopt_stream(native) }
        }
        fn native_stream(&$self, stream: RawStream) -> Option<u64> {
            $device.native_stream(stream)
        }
        fn is_captured(&$self, stream: RawStream) -> bool {
            $device.is_captured(stream)
        }
        fn mark_all(&$self) -> Result<Option<RawMark>> {
            $before(CallKind::Mark, 0)?;
            $device.mark_all()
        }
        fn close_stream(&$self, stream: RawStream) -> Result<()> {
            $before(CallKind::CloseStream, 0)?;
            $device.close_stream(stream)
        }
        unsafe fn submit(&$self, stream: RawStream, work: &mut Option<Work>) -> Result<()> {
            $before(CallKind::Submit, 0)?;
            // SAFETY: the caller's promise is handed on as it is.
            unsafe { $device.submit(stream, work) }
        }
        fn mark(&$self, stream: RawStream) -> Result<RawMark> {
            $before(CallKind::Mark, 0)?;
            $device.mark(stream)
        }
        fn mark_apart(&$self, stream: RawStream) -> Result<RawMark> {
            $before(CallKind::Mark, 0)?;
            $device.mark_apart(stream)
        }
        fn wait(&$self, stream: RawStream, mark: RawMark) -> Result<()> {
            $before(CallKind::Wait, 0)?;
            $device.wait(stream, mark)
        }
        fn is_over(&$self, mark: RawMark) -> Result<bool> {
            $before(CallKind::IsOver, 0)?;
            $device.is_over(mark)
        }
        fn peek(&$self, mark: RawMark) -> Result<bool> {
            $before(CallKind::IsOver, 0)?;
            $device.peek(mark)
        }
        fn block_on(&$self, mark: RawMark) -> Result<()> {
            $before(CallKind::BlockOn, 0)?;
            $device.block_on(mark)
        }
        fn settle(&$self) {
            $device.settle();
        }
        fn record_time(&$self, stream: RawStream) -> Result<RawTime> {
            $before(CallKind::Mark, 0)?;
            $device.record_time(stream)
        }
        fn elapsed(&$self, from: RawTime, to: RawTime) -> Result<Duration> {
            $before(CallKind::IsOver, 0)?;
            $device.elapsed(from, to)
        }
        fn export_mark(&$self, stream: RawStream) -> Result<(RawMark, MarkName)> {
            $before(CallKind::Export, 0)?;
            $device.export_mark(stream)
        }
        fn import_mark(&$self, name: &MarkName) -> Result<RawMark> {
            $before(CallKind::Import, 0)?;
            $device.import_mark(name)
        }
        fn has_graphs(&$self) -> bool {
            $device.has_graphs()
        }
        unsafe fn instantiate(&$self, nodes: &[Node]) -> Result<RawExec> {
            $before(CallKind::Instantiate, 0)?;
            // SAFETY: the caller's promise is handed on as it is.
            unsafe { $device.instantiate(nodes) }
        }
        fn upload(&$self, exec: RawExec, stream: RawStream) -> Result<()> {
            $before(CallKind::UploadGraph, 0)?;
            $device.upload(exec, stream)
        }
        unsafe fn launch(&$self, exec: RawExec, stream: RawStream) -> Result<()> {
            $before(CallKind::LaunchGraph, 0)?;
            // SAFETY: the caller's promise is handed on as it is.
            unsafe { $device.launch(exec, stream) }
        }
        fn destroy_exec(&$self, exec: RawExec) -> Result<()> {
            $before(CallKind::DestroyExec, 0)?;
            $device.destroy_exec(exec)
        }
        fn begin_capture(&$self, stream: RawStream) -> Result<()> {
            $before(CallKind::BeginCapture, 0)?;
            $device.begin_capture(stream)
        }
        fn end_capture(&$self, stream: RawStream) -> Result<Option<RawGraph>> {
            $before(CallKind::EndCapture, 0)?;
            $device.end_capture(stream)
        }
        fn destroy_graph(&$self, graph: RawGraph) -> Result<()> {
            $before(CallKind::DestroyGraph, 0)?;
            $device.destroy_graph(graph)
        }
    };
}

// SAFETY: every call that is not refused is the device's own, which keeps the promise.
unsafe impl<D: Driver, T: Tap> Driver for Tapped<D, T> {
    delegate!(self, self.device, |kind, bytes| self.tap.before(kind, bytes));

    fn forget(&self, mark: RawMark) {
        // Forgetting cannot fail, so a refusal would have nowhere to go; it is refused in a forked process only.
        if self.tap.before(CallKind::Forget, 0).is_ok() {
            self.device.forget(mark);
        }
    }

    fn forget_time(&self, time: RawTime) {
        // As above.
        if self.tap.before(CallKind::Forget, 0).is_ok() {
            self.device.forget_time(time);
        }
    }
}

/// So that the layers can be put around a shared device, `Counting<Arc<dyn Driver>>`.
// SAFETY: every call is the device's own, which keeps the promise.
unsafe impl<D: Driver + ?Sized> Driver for Arc<D> {
    delegate!(self, (**self), |_: CallKind, _: u64| Ok::<(), DriverError>(()));

    fn forget(&self, mark: RawMark) {
        (**self).forget(mark);
    }

    fn forget_time(&self, time: RawTime) {
        (**self).forget_time(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimDriver;

    #[test]
    fn layers_count_and_fail() {
        let device: Arc<dyn Driver> = Arc::new(SimDriver::default());
        let driver = Failing::new(Counting::new(device));
        let granularity = driver.properties().granularity;
        driver.fail_at_kind(CallKind::Create, 1);
        let chunk = driver.create(granularity).expect("the first is let through");
        assert!(matches!(driver.create(granularity), Err(DriverError::OutOfMemory { .. })));
        driver.destroy(chunk).expect("the chunk is known");
        assert_eq!(driver.struck(), [CallKind::Create]);
        let counts = driver.device().counts();
        assert_eq!((counts[CallKind::Create], counts[CallKind::Destroy], counts.total()), (1, 1, 2));
    }
}
