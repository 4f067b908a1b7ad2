//! Copies and fills, with the bytes that they use.
//!
//! A copy without a stream is work of the default stream; where one side is of the host the call waits for it, as it
//! does for a copy into pageable memory.

use millpond_core::op::{Act, What};
use smallvec::{SmallVec, smallvec};

use crate::abi::*;
use crate::index::Kind;
use crate::session::{At, Session};

/// Bytes: the first address, and how many.
type Span = (u64, u64);

impl Session {
    fn is_host(&self, at: u64) -> bool {
        self.index.find(at).is_none_or(|entry| entry.kind == Kind::Host)
    }

    /// A copy from one span to another: of all bytes of both, or of rows in them.
    fn copy_span(&mut self, at: &At, stream: Option<Stream>, to: Span, from: Span, is_whole: bool) {
        let waits = stream.is_none();
        let stream = stream.unwrap_or(Stream(0));
        // Where no races are looked for memory counts as a whole, but for copies that are not to overlap.
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

    /// A copy; without a stream the call itself waits for it.
    pub(crate) fn copy(&mut self, at: &At, stream: Option<Stream>, to: u64, from: u64, bytes: usize) {
        self.copy_span(at, stream, (to, bytes as u64), (from, bytes as u64), true);
    }

    /// A copy of rows.
    pub(crate) fn copy_rows(&mut self, at: &At, stream: Option<Stream>, copy: &Rows) {
        let side = |side| rows_of(side, copy.width, copy.height);
        self.copy_span(at, stream, side(&copy.to), side(&copy.from), copy.height <= 1);
    }

    /// A copy of slices.
    pub(crate) fn copy_slices(&mut self, at: &At, stream: Option<Stream>, copy: &CopyParams) {
        self.copy_span(at, stream, slices_of(&copy.to, copy), slices_of(&copy.from, copy), is_one_row(copy));
    }

    /// Many copies.
    pub(crate) fn copy_each(&mut self, at: &At, stream: Stream, to: &[u64], from: &[u64], sizes: &[usize]) {
        for ((to, from), bytes) in to.iter().zip(from).zip(sizes) {
            self.copy(at, Some(stream), *to, *from, *bytes);
        }
    }

    /// Bytes are set.
    pub(crate) fn fill(&mut self, at: &At, stream: Stream, start: u64, bytes: usize) {
        self.move_bytes(at, stream, &[(start, bytes as u64, Act::Write)]);
    }

    /// Rows of so many bytes are set.
    pub(crate) fn fill_rows(&mut self, at: &At, stream: Stream, start: u64, pitch: usize, width: usize, height: usize) {
        let (start, bytes) = span(start, pitch, width, height);
        self.move_bytes(at, stream, &[(start, bytes, Act::Write)]);
    }
}

/// All bytes from the first row's first to the last row's last.
fn span(start: u64, pitch: usize, width: usize, rows: usize) -> Span {
    (start, (pitch.max(width) * rows.saturating_sub(1) + width) as u64)
}

fn rows_of(side: &RowsSide, width: usize, height: usize) -> Span {
    let start = match side.kind {
        MEMORY_HOST => side.host,
        MEMORY_DEVICE | MEMORY_UNIFIED => side.device,
        // An array is not memory with an address.
        _ => return (0, 0),
    };
    span(start + (side.y * side.pitch + side.x) as u64, side.pitch, width, height)
}

/// What a copy does from one span to another. Rows of spans that overlap may lie between each other: both are one use
/// then.
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

/// Whether a copy of slices is of all bytes between its first and its last.
pub(crate) fn is_one_row(copy: &CopyParams) -> bool {
    copy.height <= 1 && copy.depth <= 1
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
