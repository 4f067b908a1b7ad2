//! Driver calls as data: their arguments and results.

use std::time::Duration;

use crate::{Access, CallKind, CopyKind, DriverError, RawChunk, RawEvent, RawStream, RawTime, Work};

/// One call that a [checked](crate::Checked) device recorded. Of a refused call only the kind and the error are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // Each field is the argument or the result of the same name in the contract.
pub enum Call {
    /// [`Driver::reserve`](crate::Driver::reserve)
    Reserve { bytes: u64, at: u64 },
    /// [`Driver::unreserve`](crate::Driver::unreserve)
    Unreserve { at: u64, bytes: u64 },
    /// [`Driver::create`](crate::Driver::create)
    Create { bytes: u64, chunk: RawChunk },
    /// [`Driver::destroy`](crate::Driver::destroy)
    Destroy { chunk: RawChunk },
    /// [`Driver::map`](crate::Driver::map)
    Map { chunk: RawChunk, at: u64, bytes: u64 },
    /// [`Driver::unmap`](crate::Driver::unmap)
    Unmap { at: u64, bytes: u64 },
    /// [`Driver::alloc_host`](crate::Driver::alloc_host)
    AllocHost { bytes: u64, at: u64 },
    /// [`Driver::free_host`](crate::Driver::free_host)
    FreeHost { at: u64 },
    /// [`Driver::open_stream`](crate::Driver::open_stream)
    OpenStream { label: u32, stream: RawStream },
    /// [`Driver::close_stream`](crate::Driver::close_stream)
    CloseStream { stream: RawStream },
    /// [`Driver::submit`](crate::Driver::submit)
    Submit { stream: RawStream, work: WorkCall },
    /// [`Driver::record`](crate::Driver::record)
    Record { stream: RawStream, event: RawEvent },
    /// [`Driver::wait`](crate::Driver::wait)
    Wait { stream: RawStream, event: RawEvent },
    /// [`Driver::is_over`](crate::Driver::is_over)
    IsOver { event: RawEvent, over: bool },
    /// [`Driver::block_on`](crate::Driver::block_on)
    BlockOn { event: RawEvent },
    /// [`Driver::forget`](crate::Driver::forget)
    Forget { event: RawEvent },
    /// [`Driver::record_time`](crate::Driver::record_time)
    RecordTime { stream: RawStream, time: RawTime },
    /// [`Driver::elapsed`](crate::Driver::elapsed)
    Elapsed { from: RawTime, to: RawTime, elapsed: Duration },
    /// [`Driver::forget_time`](crate::Driver::forget_time)
    ForgetTime { time: RawTime },
    /// A call that returned an error, requested or not.
    Refused { kind: CallKind, error: DriverError },
}

/// [`Work`] without the values that it owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // As in `Work`.
pub enum WorkCall {
    /// [`Work::Run`]
    Run,
    /// [`Work::Copy`], or [`Work::Upload`] with the address of its bytes as `from`
    Copy { to: u64, from: u64, bytes: u64, kind: CopyKind },
    /// [`Work::Fill`]
    Fill { at: u64, bytes: u64, value: u8 },
    /// [`Work::Protect`]
    Protect { at: u64, bytes: u64, access: Access },
}

impl WorkCall {
    /// Returns the ranges of device memory that the work touches, as first address and size.
    pub(super) fn touched(self) -> impl Iterator<Item = (u64, u64)> {
        let (first, second) = match self {
            WorkCall::Run => (None, None),
            WorkCall::Copy { to, from, bytes, kind } => (
                (kind != CopyKind::DeviceToHost).then_some((to, bytes)),
                (kind != CopyKind::HostToDevice).then_some((from, bytes)),
            ),
            WorkCall::Fill { at, bytes, .. } | WorkCall::Protect { at, bytes, .. } => (Some((at, bytes)), None),
        };
        first.into_iter().chain(second).filter(|&(_, bytes)| bytes > 0)
    }
}

impl WorkCall {
    /// Returns the range of host memory that the work touches.
    pub(super) fn on_host(self) -> Option<(u64, u64)> {
        match self {
            WorkCall::Copy { to, bytes, kind: CopyKind::DeviceToHost, .. } => Some((to, bytes)),
            WorkCall::Copy { from, bytes, kind: CopyKind::HostToDevice, .. } => Some((from, bytes)),
            _ => None,
        }
    }
}

impl From<&Work> for WorkCall {
    fn from(work: &Work) -> Self {
        match *work {
            Work::Run(_) => WorkCall::Run,
            Work::Copy { to, from, bytes, kind } => WorkCall::Copy { to, from, bytes, kind },
            Work::Upload { to, ref from } => {
                let (from, bytes) = (from.as_ptr() as u64, from.len() as u64);
                WorkCall::Copy { to, from, bytes, kind: CopyKind::HostToDevice }
            }
            Work::Fill { at, bytes, value } => WorkCall::Fill { at, bytes, value },
            Work::Protect { at, bytes, access } => WorkCall::Protect { at, bytes, access },
        }
    }
}
