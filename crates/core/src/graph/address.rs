//! Where the allocations of one graph are: addresses fixed when an alloc node is made.
//!
//! A private virtual heap whose order is the graph's own edges. Bytes serve again only a node that comes after the free
//! of everything that lay there before, by edges that exist then (CUDA's rule, too). Nothing is live or dead here: a
//! stretch of addresses is *held*, or *open* after a free node, or fresh.
//!
//! The simple version compares a new allocation with every earlier one. Departure: what was freed last in a stretch
//! comes after all that lay there before, so an open stretch needs to remember one node, and held ones need not be
//! looked at. (That is so where each free comes after its allocation; `validate.rs` refuses graphs where one does not.)
//! Among the windows that fit, the one that takes the fewest fresh bytes wins, then the tightest.
//!
//! Allocations of a granule or more own the granules they lie in, so that physical memory can be bound for each by
//! itself; smaller ones are packed together in granules of their own.
//!
//! Invariants: **after**: two allocations share a byte only where the free of one reaches the alloc node of the other.
//! **apart**: at no point of the order does a granule hold both small allocations and part of a large one. A granule
//! freed by a large one may become one of the small ones', not the other way.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::node::{GraphAllocId, NodeId};
use crate::units::{Range, round_down, round_up};

/// Addresses are multiples of this many bytes.
pub const GRAIN: u64 = 512;

/// After which node a stretch is open; none for fresh addresses.
type After = Option<NodeId>;

/// Stretches that may be used, by where they start.
#[derive(Clone, Debug, Default)]
struct Open(BTreeMap<u64, (u64, After)>);

/// An allocation's addresses, and what they were before.
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

/// A stretch that a request could start at.
struct Window {
    start: u64,
    fresh: u64,
    run: u64,
}

impl Open {
    /// The best place for `bytes` among stretches that `is_open` lets through.
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

    /// Takes `range`, all of which is open; what it was.
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

    /// The stretches within `range` that are open after `node`, taken out.
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
    /// No addresses yet; `granularity` is the device's, a power of two and a multiple of [`GRAIN`].
    pub(super) fn new(granularity: u64) -> Self {
        Self { granularity, large: Open::default(), small: Open::default(), placed: BTreeMap::new() }
    }

    /// More addresses to choose from; what does not fill a granule at the ends is not used.
    pub(super) fn extend(&mut self, range: Range) {
        let Some(start) = round_up(range.start, self.granularity) else { return };
        let end = round_down(range.end(), self.granularity);
        self.large.put(Range::between(start, end.max(start)), None);
    }

    /// Bytes that an allocation of `bytes` takes; none where that passes the address space.
    pub(super) fn rounded(granularity: u64, bytes: u64) -> Option<u64> {
        round_up(bytes.max(1), if bytes < granularity { GRAIN } else { granularity })
    }

    /// Places an allocation whose alloc node comes after the nodes for which `is_before` answers true. None where
    /// there are not enough addresses.
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

    /// The allocation is freed by `node`: its bytes are open to what comes after that.
    pub(super) fn free(&mut self, alloc: GraphAllocId, node: NodeId) {
        if let Some(&Placed { range, is_small, .. }) = self.placed.get(&alloc) {
            self.side(is_small).put(range, Some(node));
        }
    }

    /// Its free node was removed: its bytes are held again, but for those that others have taken meanwhile.
    pub(super) fn unfree(&mut self, alloc: GraphAllocId, node: NodeId) {
        if let Some(&Placed { range, is_small, .. }) = self.placed.get(&alloc) {
            self.side(is_small).take_back(range, node);
        }
    }

    /// Its alloc node was removed, and it had no free node any more: its bytes are what they were before it, but for
    /// those that others took while it was freed.
    pub(super) fn remove(&mut self, alloc: GraphAllocId) {
        let Some(placed) = self.placed.remove(&alloc) else { return };
        // Whoever took some of these bytes since has them among its own, or has given them back after its own free.
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

/// What is left of `part` below and above `other`.
fn without(part: Range, other: Range) -> [Range; 2] {
    let below = Range::between(part.start, other.start.clamp(part.start, part.end()));
    let above = Range::between(other.end().clamp(part.start, part.end()), part.end());
    [below, above]
}
