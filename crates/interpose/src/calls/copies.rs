//! Copies and fills, with the bytes that they use.
//!
//! A copy without a stream is work of the default stream; where one side is of the host the call waits for it, as it
//! does for a copy into pageable memory.

use std::ffi::{c_int, c_uint, c_void};

use millpond_core::op::{Act, What};

use super::{list, read};
use crate::abi::*;
use crate::index::Kind;
use crate::session::{At, Session};

/// Bytes: the first address, and how many.
type Span = (u64, u64);

impl Session {
    fn is_host(&self, at: u64) -> bool {
        self.index.find(at).is_none_or(|entry| entry.kind == Kind::Host)
    }

    /// A copy; `waits` says whether the call itself waits for it.
    fn copy(&mut self, at: &At, stream: Stream, to: Span, from: Span, waits: bool) {
        self.work(at, stream, &[(from.0, from.1, Act::Read), (to.0, to.1, Act::Write)]);
        let is_pageable = self.index.find(to.0).is_none();
        let id = self.stream(at, stream);
        if self.is_capturing(id) || self.is_lost(stream) {
            return;
        }
        if waits && (self.is_host(to.0) || self.is_host(from.0)) || !waits && is_pageable {
            self.push(What::StreamSynchronize { stream: id });
        }
    }
}

/// `cuMemcpy` and its kin
pub(crate) unsafe fn any(at: &At, real: impl FnOnce() -> Code, to: u64, from: u64, bytes: usize) -> Code {
    let bytes = bytes as u64;
    at.done(real(), |session| session.copy(at, Stream(0), (to, bytes), (from, bytes), true))
}

/// `cuMemcpyAsync` and its kin
pub(crate) unsafe fn any_async(
    at: &At,
    real: impl FnOnce() -> Code,
    to: u64,
    from: u64,
    bytes: usize,
    stream: Stream,
) -> Code {
    let bytes = bytes as u64;
    at.done(real(), |session| session.copy(at, stream, (to, bytes), (from, bytes), false))
}

/// `cuMemcpyPeer`
pub(crate) unsafe fn peer(
    at: &At,
    real: impl FnOnce() -> Code,
    to: u64,
    _context: Context,
    from: u64,
    _other: Context,
    bytes: usize,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { any(at, real, to, from, bytes) }
}

/// `cuMemcpyPeerAsync`
pub(crate) unsafe fn peer_async(
    at: &At,
    real: impl FnOnce() -> Code,
    to: u64,
    _context: Context,
    from: u64,
    _other: Context,
    bytes: usize,
    stream: Stream,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { any_async(at, real, to, from, bytes, stream) }
}

/// All bytes from the first row's first to the last row's last.
fn span(start: u64, pitch: usize, width: usize, rows: usize) -> Span {
    (start, (pitch.max(width) * rows.saturating_sub(1) + width) as u64)
}

fn rows_of(side: &RowsSide, width: usize, height: usize) -> Span {
    let start = match side.kind {
        MEMORY_HOST => side.host,
        MEMORY_DEVICE | MEMORY_UNIFIED => side.device,
        // An array is no memory with an address.
        _ => return (0, 0),
    };
    span(start + (side.y * side.pitch + side.x) as u64, side.pitch, width, height)
}

/// One side of a copy of slices.
pub(crate) fn slices_of(side: &CopySide, copy: &CopyParams) -> Span {
    let start = match side.kind {
        MEMORY_HOST => side.host as u64,
        MEMORY_DEVICE | MEMORY_UNIFIED => side.device,
        _ => return (0, 0),
    };
    let rows = side.height.max(copy.height);
    let first = start + ((side.z * rows + side.y) * side.pitch + side.x) as u64;
    span(first, side.pitch, copy.width, rows * copy.depth.saturating_sub(1) + copy.height)
}

/// `cuMemcpy2D`
pub(crate) unsafe fn rows(at: &At, real: impl FnOnce() -> Code, rows: *const Rows) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's structure.
        let Some(it) = (unsafe { read(rows) }) else { return };
        let side = |side| rows_of(side, it.width, it.height);
        session.copy(at, Stream(0), side(&it.to), side(&it.from), true);
    })
}

/// `cuMemcpy2DAsync`
pub(crate) unsafe fn rows_async(at: &At, real: impl FnOnce() -> Code, rows: *const Rows, stream: Stream) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's structure.
        let Some(it) = (unsafe { read(rows) }) else { return };
        let side = |side| rows_of(side, it.width, it.height);
        session.copy(at, stream, side(&it.to), side(&it.from), false);
    })
}

/// `cuMemcpy3D`
pub(crate) unsafe fn slices(at: &At, real: impl FnOnce() -> Code, copy: *const CopyParams) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's structure.
        let Some(it) = (unsafe { read(copy) }) else { return };
        session.copy(at, Stream(0), slices_of(&it.to, &it), slices_of(&it.from, &it), true);
    })
}

/// `cuMemcpy3DAsync`
pub(crate) unsafe fn slices_async(
    at: &At,
    real: impl FnOnce() -> Code,
    copy: *const CopyParams,
    stream: Stream,
) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's structure.
        let Some(it) = (unsafe { read(copy) }) else { return };
        session.copy(at, stream, slices_of(&it.to, &it), slices_of(&it.from, &it), false);
    })
}

/// `cuMemcpyBatchAsync`
pub(crate) unsafe fn batch(
    at: &At,
    real: impl FnOnce() -> Code,
    to: *const u64,
    from: *const u64,
    sizes: *const usize,
    count: usize,
    attributes: *const c_void,
    of: *const usize,
    kinds: usize,
    _failed: *mut usize,
    stream: Stream,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { batch_v2(at, real, to, from, sizes, count, attributes, of, kinds, stream) }
}

/// `cuMemcpyBatchAsync_v2`
pub(crate) unsafe fn batch_v2(
    at: &At,
    real: impl FnOnce() -> Code,
    to: *const u64,
    from: *const u64,
    sizes: *const usize,
    count: usize,
    _attributes: *const c_void,
    _of: *const usize,
    _kinds: usize,
    stream: Stream,
) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's lists.
        let (to, from, sizes) = unsafe { (list(to, count), list(from, count), list(sizes, count)) };
        for ((to, from), bytes) in to.iter().zip(from).zip(sizes) {
            session.copy(at, stream, (*to, *bytes as u64), (*from, *bytes as u64), false);
        }
    })
}

/// Handlers of fills: of so many elements, and of rows of them.
macro_rules! fills {
    ($($row:ident $row_async:ident $rows:ident $rows_async:ident $ty:ty, $bytes:literal;)*) => {$(
        /// `cuMemsetD`
        pub(crate) unsafe fn $row(at: &At, real: impl FnOnce() -> Code, to: u64, _value: $ty, count: usize) -> Code {
            at.done(real(), |session| session.work(at, Stream(0), &[(to, count as u64 * $bytes, Act::Write)]))
        }

        /// `cuMemsetDAsync`
        pub(crate) unsafe fn $row_async(
            at: &At, real: impl FnOnce() -> Code, to: u64, _value: $ty, count: usize, stream: Stream,
        ) -> Code {
            at.done(real(), |session| session.work(at, stream, &[(to, count as u64 * $bytes, Act::Write)]))
        }

        /// `cuMemsetD2D`
        pub(crate) unsafe fn $rows(
            at: &At, real: impl FnOnce() -> Code, to: u64, pitch: usize, _value: $ty, width: usize, height: usize,
        ) -> Code {
            let (to, bytes) = span(to, pitch, width * $bytes, height);
            at.done(real(), |session| session.work(at, Stream(0), &[(to, bytes, Act::Write)]))
        }

        /// `cuMemsetD2DAsync`
        pub(crate) unsafe fn $rows_async(
            at: &At, real: impl FnOnce() -> Code, to: u64, pitch: usize, _value: $ty, width: usize, height: usize,
            stream: Stream,
        ) -> Code {
            let (to, bytes) = span(to, pitch, width * $bytes, height);
            at.done(real(), |session| session.work(at, stream, &[(to, bytes, Act::Write)]))
        }
    )*};
}

fills! {
    fill8 fill8_async fill2d8 fill2d8_async u8, 1;
    fill16 fill16_async fill2d16 fill2d16_async u16, 2;
    fill32 fill32_async fill2d32 fill2d32_async u32, 4;
}

/// `cuMemPrefetchAsync`
pub(crate) unsafe fn prefetch(
    at: &At,
    real: impl FnOnce() -> Code,
    start: u64,
    bytes: usize,
    _device: c_int,
    stream: Stream,
) -> Code {
    at.done(real(), |session| session.work(at, stream, &[(start, bytes as u64, Act::Read)]))
}

/// `cuMemPrefetchAsync_v2`
pub(crate) unsafe fn prefetch_v2(
    at: &At,
    real: impl FnOnce() -> Code,
    start: u64,
    bytes: usize,
    _location: u64,
    _flags: c_uint,
    stream: Stream,
) -> Code {
    at.done(real(), |session| session.work(at, stream, &[(start, bytes as u64, Act::Read)]))
}
