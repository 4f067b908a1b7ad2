//! The addresses that one graph and its copies have for themselves.
//!
//! Taken in steps as alloc nodes need them. When the last graph, exec and live allocation is gone and no work is left
//! that could touch them, another arena may have them, with what is mapped there: a graph like one before it has no
//! mapping to do. Knows addresses; of nodes what messages say of them.
//!
//! Invariant **one-at-a-time**: launches of all execs that share an arena are ordered one after the other, because they
//! use the same addresses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::check::Place;
use millpond_core::graph::{ArenaKey, GraphAllocId, GraphId};
use millpond_core::units::{Bytes, GIB, Range, round_up};
use millpond_driver::{Driver, DriverError, process};

use crate::names::error::{Nearest, Result};
use crate::state::context::Context;
use crate::sync::locks::{Mutex, lock};
use crate::sync::ranks;

/// Addresses are reserved in steps of at least this many bytes: they cost nothing.
const STEP: u64 = 4 * GIB;

/// What an alloc node has, for who asks about an address.
#[derive(Debug)]
struct Note {
    node: (GraphId, GraphAllocId),
    bytes: u64,
    place: Place,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Arena {
    /// Its number on its device.
    pub(crate) key: ArenaKey,
    pub(crate) context: Arc<Context>,
    ranges: Mutex<{ ranks::ARENA_RANGES }, Vec<Range>>,
    /// By its first address, the last alloc node that has it.
    nodes: Mutex<{ ranks::ARENA_NODES }, BTreeMap<u64, Note>>,
}

impl Arena {
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        let key = ArenaKey(context.graphs().next_arena.fetch_add(1, Ordering::Relaxed).into());
        let (ranges, nodes) = (Mutex::default(), Mutex::default());
        let arena = Arc::new(Self { key, context: Arc::clone(context), ranges, nodes });
        context.graphs().enter_arena(&arena);
        arena
    }

    /// An alloc node has this address.
    pub(crate) fn note(&self, at: u64, node: (GraphId, GraphAllocId), bytes: u64, place: Place) {
        lock(&self.nodes).insert(at, Note { node, bytes, place });
    }

    /// The alloc node whose memory starts at an address.
    pub(crate) fn node_from(&self, pointer: u64) -> Option<(GraphId, GraphAllocId)> {
        lock(&self.nodes).get(&pointer).map(|note| note.node)
    }

    /// The alloc node at an address, for messages.
    pub(crate) fn node_at(&self, pointer: u64) -> Option<Nearest> {
        let nodes = lock(&self.nodes);
        let (at, Note { node: (graph, _), bytes, place }) = nodes.range(..=pointer).next_back()?;
        let offset = pointer - at;
        let place = match place.to_string() {
            place if place.is_empty() => place,
            place => format!(" at {place}"),
        };
        let node = || format!("memory of {graph}, {}, allocated by a node{place}", Bytes(*bytes));
        (offset < *bytes).then(|| Nearest::OfGraph { node: node(), offset })
    }

    /// Addresses for at least `bytes` that no other graph has.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Range> {
        let granularity = self.context.properties.granularity;
        let [needed, bytes] = [bytes, bytes.max(STEP)].map(|it| round_up(it, granularity).unwrap_or(it));
        let range = match self.context.graphs().take_spare(bytes) {
            Some(spare) => spare,
            None => match self.context.driver.reserve(bytes) {
                Err(DriverError::OutOfAddresses { .. }) if needed < bytes => {
                    Range::new(self.context.driver.reserve(needed)?, needed)
                }
                start => Range::new(start?, bytes),
            },
        };
        lock(&self.ranges).push(range);
        Ok(range)
    }

    /// Whether these are its addresses.
    pub(crate) fn contains(&self, range: Range) -> bool {
        lock(&self.ranges).iter().any(|own| own.contains(range.start))
    }

    /// Whether these addresses are its own, and of one reservation.
    pub(crate) fn spans(&self, range: Range) -> bool {
        lock(&self.ranges).iter().any(|own| own.start <= range.start && range.end() <= own.end())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        let ranges = std::mem::take(self.ranges.get_mut());
        self.context.graphs().close(self.key, ranges);
        self.context.graphs().finish_closing(&self.context);
    }
}
