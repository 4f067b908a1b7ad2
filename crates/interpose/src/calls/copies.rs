//! Copies and fills, with the bytes that they use.
//!
//! A copy without a stream runs on the default stream. If one side is host memory, the call waits for it; so does an
//! asynchronous copy into pageable memory.

use millpond_core::op::{Act, What};
use smallvec::{SmallVec, smallvec};

use crate::abi::*;
use crate::index::Kind;
use crate::session::{At, Session};

/// The first address, and the number of bytes.
type Span = (u64, u64);

impl Session {
    fn is_host(&self, at: u64) -> bool {
        self.index.find(at).is_none_or(|entry| entry.kind == Kind::Host)
    }

    /// Notes a copy from one span to another: of all bytes of both (`is_whole`), or of rows in them.
    fn copy_span(&mut self, at: &At, stream: Option<Stream>, to: Span, from: Span, is_whole: bool) {
        let waits = stream.is_none();
        let stream = stream.unwrap_or(Stream(0));
        // Without race detection, an access counts as the whole allocation. A whole copy between overlapping spans
        // still gets its exact bytes, because its spans must not overlap.
        let is_exact = self.is_exact;
        self.is_exact |= is_whole && overlap(to, from);
        self.move_bytes(at, stream, &moved(to, from, is_whole));
        self.is_exact = is_exact;
        let is_pageable = self.index.find(to.0).is_none();
        let id = self.stream(at, stream);
        if self.origin(at, id, stream).is_some() {
            return;
        }
        if waits && (self.is_host(to.0) || self.is_host(from.0)) || !waits && is_pageable {
            self.push(What::StreamSynchronize { stream: id });
        }
    }

    /// Notes a copy. Without a stream, the call itself waits for it.
    pub(crate) fn copy(&mut self, at: &At, stream: Option<Stream>, to: u64, from: u64, bytes: usize) {
        self.copy_span(at, stream, (to, bytes as u64), (from, bytes as u64), true);
    }

    /// Notes a copy of rows.
    pub(crate) fn copy_rows(&mut self, at: &At, stream: Option<Stream>, copy: &Rows) {
        let side = |side| rows_of(side, copy.width, copy.height);
        self.copy_span(at, stream, side(&copy.to), side(&copy.from), copy.height <= 1);
    }

    /// Notes a copy of slices.
    pub(crate) fn copy_slices(&mut self, at: &At, stream: Option<Stream>, copy: &CopyParams) {
        self.copy_span(at, stream, slices_of(&copy.to, copy), slices_of(&copy.from, copy), is_one_row(copy));
    }

    /// Notes many copies.
    pub(crate) fn copy_each(&mut self, at: &At, stream: Stream, to: &[u64], from: &[u64], sizes: &[usize]) {
        for ((to, from), bytes) in to.iter().zip(from).zip(sizes) {
            self.copy(at, Some(stream), *to, *from, *bytes);
        }
    }

    /// Notes a fill.
    pub(crate) fn fill(&mut self, at: &At, stream: Stream, start: u64, bytes: usize) {
        self.move_bytes(at, stream, &[(start, bytes as u64, Act::Write)]);
    }

    /// Notes a fill of rows, each `width` bytes.
    pub(crate) fn fill_rows(&mut self, at: &At, stream: Stream, start: u64, pitch: usize, width: usize, height: usize) {
        let (start, bytes) = span(start, pitch, width, height);
        self.move_bytes(at, stream, &[(start, bytes, Act::Write)]);
    }
}

/// Returns the bytes from the first byte of the first row to the last byte of the last row.
fn span(start: u64, pitch: usize, width: usize, rows: usize) -> Span {
    (start, (pitch.max(width) * rows.saturating_sub(1) + width) as u64)
}

fn rows_of(side: &RowsSide, width: usize, height: usize) -> Span {
    let start = match side.kind {
        MEMORY_HOST => side.host,
        MEMORY_DEVICE | MEMORY_UNIFIED => side.device,
        // An array has no address.
        _ => return (0, 0),
    };
    span(start + (side.y * side.pitch + side.x) as u64, side.pitch, width, height)
}

/// Returns the accesses of a copy from one span to another. If the spans of rows overlap, the rows may be interleaved:
/// both spans then count as one use.
pub(crate) fn moved(to: Span, from: Span, is_whole: bool) -> SmallVec<[(u64, u64, Act); 2]> {
    if is_whole || !overlap(to, from) {
        return SmallVec::from([(from.0, from.1, Act::Read), (to.0, to.1, Act::Write)]);
    }
    let [start, end] = [to.0.min(from.0), end(to).max(end(from))];
    smallvec![(start, end - start, Act::Write)]
}

fn end((start, bytes): Span) -> u64 {
    start.saturating_add(bytes)
}

fn overlap(one: Span, other: Span) -> bool {
    one.0 < end(other) && other.0 < end(one)
}

/// Returns `true` if a copy of slices covers all bytes between its first and its last.
pub(crate) fn is_one_row(copy: &CopyParams) -> bool {
    copy.height <= 1 && copy.depth <= 1
}

/// Returns the span of one side of a copy of slices.
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
