//! The addresses of one graph's allocations, fixed when an alloc node is made.
//!
//! A private virtual heap whose order is the edges of the graph. A node gets bytes again only if it comes after the
//! free of everything that was there before, by edges that exist then (CUDA's rule, too). Nothing is live or dead here:
//! a range of addresses is *held*, or *open* after a free node, or fresh.
//!
//! The simple version compares a new allocation with every earlier one. Departure: the last free in a range comes after
//! everything that was there before, so an open range remembers one node, and held ranges are not examined. (This holds
//! if each free comes after its allocation; `validate.rs` refuses other graphs.) Of the windows that fit, the one with
//! the fewest fresh bytes is chosen, then the tightest.
//!
//! Allocations of a granule or more own the granules that they are in, so that physical memory can be bound for each of
//! them separately. Smaller ones are packed together in granules of their own.
//!
//! Invariants: **after**: two allocations share a byte only if the free of one reaches the alloc node of the other.
//! **apart**: at no point of the order does a granule hold both small allocations and part of a large one. A granule
//! that a large allocation freed may be used for small ones, but not the reverse.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::node::{GraphAllocId, NodeId};
use crate::units::{Range, round_down, round_up};

/// Addresses are multiples of this many bytes.
pub const GRAIN: u64 = 512;

/// The free node after which a range is open; `None` for fresh addresses.
type After = Option<NodeId>;

/// The open and fresh ranges, by their start.
#[derive(Clone, Debug, Default)]
struct Open(BTreeMap<u64, (u64, After)>);

/// The addresses of an allocation, and the state of these ranges before it.
#[derive(Clone, Debug)]
struct Placed {
    range: Range,
    is_small: bool,
    before: SmallVec<[(Range, After); 1]>,
}

/// A graph's addresses: see the module.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    granularity: u64,
    large: Open,
    small: Open,
    placed: BTreeMap<GraphAllocId, Placed>,
}

/// A contiguous range in which a request fits.
struct Window {
    start: u64,
    fresh: u64,
    run: u64,
}

impl Open {
    /// Returns the best window for `bytes` among the ranges for which `is_open` holds.
    fn window(&self, bytes: u64, is_open: impl Fn(After) -> bool) -> Option<Window> {
        let mut best: Option<Window> = None;
        let (mut start, mut end, mut used) = (0, 0, 0);
        let mut consider = |start: u64, end: u64, used: u64| {
            let (fresh, run) = (bytes - used, end - start);
            if run >= bytes && best.as_ref().is_none_or(|best| (fresh, run) < (best.fresh, best.run)) {
                best = Some(Window { start, fresh, run });
            }
        };
        for (&at, &(length, after)) in &self.0 {
            if !is_open(after) {
                continue;
            }
            if at != end {
                consider(start, end, used);
                (start, used) = (at, 0);
            }
            if after.is_some() && at - start < bytes {
                used += length.min(bytes - (at - start));
            }
            end = at + length;
        }
        consider(start, end, used);
        best
    }

    /// Takes `range`, all of which is open or fresh. Returns the parts as they were before.
    fn take(&mut self, range: Range) -> SmallVec<[(Range, After); 1]> {
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |(&at, _)| at);
        let within: SmallVec<[(u64, (u64, After)); 4]> =
            self.0.range(first..range.end()).map(|(&at, &open)| (at, open)).collect();
        let mut taken = SmallVec::new();
        for (at, (length, after)) in within {
            let whole = Range::new(at, length);
            let part = whole.intersection(range);
            if part.is_empty() {
                continue;
            }
            self.0.remove(&at);
            for rest in [Range::between(at, part.start), Range::between(part.end(), whole.end())] {
                self.put(rest, after);
            }
            taken.push((part, after));
        }
        taken
    }

    fn put(&mut self, range: Range, after: After) {
        if !range.is_empty() {
            self.0.insert(range.start, (range.bytes, after));
        }
    }

    /// Takes out the ranges within `range` that are open after `node`, and returns them.
    fn take_back(&mut self, range: Range, node: NodeId) -> SmallVec<[Range; 1]> {
        let within = self.0.range(range.start..range.end());
        let own: SmallVec<[Range; 1]> = within
            .filter(|(_, (_, after))| *after == Some(node))
            .map(|(&at, &(length, _))| Range::new(at, length))
            .collect();
        for range in &own {
            self.0.remove(&range.start);
        }
        own
    }
}

impl Addresses {
    /// Makes a heap without addresses. `granularity` is the device's, a power of two and a multiple of [`GRAIN`].
    pub(super) fn new(granularity: u64) -> Self {
        Self { granularity, large: Open::default(), small: Open::default(), placed: BTreeMap::new() }
    }

    /// Adds addresses to choose from. Incomplete granules at the ends are not used.
    pub(super) fn extend(&mut self, range: Range) {
        let Some(start) = round_up(range.start, self.granularity) else { return };
        let end = round_down(range.end(), self.granularity);
        self.large.put(Range::between(start, end.max(start)), None);
    }

    /// Returns the bytes that an allocation of `bytes` takes, or `None` if that exceeds the address space.
    pub(super) fn rounded(granularity: u64, bytes: u64) -> Option<u64> {
        round_up(bytes.max(1), if bytes < granularity { GRAIN } else { granularity })
    }

    /// Places an allocation whose alloc node comes after the nodes for which `is_before` holds. Returns `None` if there
    /// are not enough addresses.
    pub(super) fn place(
        &mut self,
        alloc: GraphAllocId,
        bytes: u64,
        is_before: impl Fn(NodeId) -> bool,
    ) -> Option<Range> {
        let rounded = Self::rounded(self.granularity, bytes)?;
        let is_open = |after: After| after.is_none_or(&is_before);
        let is_small = bytes < self.granularity;
        let window = match is_small {
            false => self.large.window(rounded, is_open)?,
            true => match self.small.window(rounded, is_open) {
                Some(window) => window,
                None => {
                    let granule = self.large.window(self.granularity, is_open)?;
                    for (part, after) in self.large.take(Range::new(granule.start, self.granularity)) {
                        self.small.put(part, after);
                    }
                    self.small.window(rounded, is_open)?
                }
            },
        };
        let range = Range::new(window.start, rounded);
        let before = if is_small { self.small.take(range) } else { self.large.take(range) };
        self.placed.insert(alloc, Placed { range, is_small, before });
        Some(range)
    }

    fn side(&mut self, is_small: bool) -> &mut Open {
        if is_small { &mut self.small } else { &mut self.large }
    }

    /// Records that `node` frees the allocation: nodes that come after it may use its bytes.
    pub(super) fn free(&mut self, alloc: GraphAllocId, node: NodeId) {
        if let Some(&Placed { range, is_small, .. }) = self.placed.get(&alloc) {
            self.side(is_small).put(range, Some(node));
        }
    }

    /// Records that the free node was removed: the bytes are held again, except those that other allocations have taken
    /// since.
    pub(super) fn unfree(&mut self, alloc: GraphAllocId, node: NodeId) {
        if let Some(&Placed { range, is_small, .. }) = self.placed.get(&alloc) {
            self.side(is_small).take_back(range, node);
        }
    }

    /// Records that the alloc node was removed, when the allocation had no free node any more. Its bytes are as they
    /// were before it, except those that other allocations took while it was freed.
    pub(super) fn remove(&mut self, alloc: GraphAllocId) {
        let Some(placed) = self.placed.remove(&alloc) else { return };
        // An allocation that took some of these bytes since either still holds them or has opened them with its own
        // free.
        let mut rest: Vec<Range> = vec![placed.range];
        let later = self.placed.range(alloc..).map(|(_, other)| other.range);
        let others = later.filter(|other| other.overlaps(placed.range));
        let open = if placed.is_small { &self.small } else { &self.large };
        let opened = open.0.iter().map(|(&at, &(length, _))| Range::new(at, length));
        for other in others.chain(opened.filter(|open| open.overlaps(placed.range))) {
            rest = rest.into_iter().flat_map(|part| without(part, other)).filter(|part| !part.is_empty()).collect();
        }
        for part in rest {
            for (range, after) in &placed.before {
                self.side(placed.is_small).put(part.intersection(*range), *after);
            }
        }
    }
}

/// Returns the parts of `part` below and above `other`.
fn without(part: Range, other: Range) -> [Range; 2] {
    let below = Range::between(part.start, other.start.clamp(part.start, part.end()));
    let above = Range::between(other.end().clamp(part.start, part.end()), part.end());
    [below, above]
}
