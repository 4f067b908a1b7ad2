//! The addresses that one graph has for itself.
//!
//! Taken in steps as alloc nodes need them. When the last graph, instance and live allocation is gone and no work is
//! left that could touch them, another arena may have them, with what is mapped there: a graph like one before it has
//! no mapping to do.
//!
//! Invariant **one-at-a-time**: launches in an arena are ordered one after the other, whichever instance has it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::check::Place;
use millpond_core::graph::{ArenaKey, GraphAllocId, GraphId};
use millpond_core::units::{Bytes, GIB, Range, round_up};
use millpond_driver::locks::{Mutex, lock};
use millpond_driver::{Driver, DriverError, process};

use crate::names::error::{Nearest, Result};
use crate::state::context::Context;
use crate::sync::ranks;
use crate::trace::callers;

/// Addresses are reserved in steps of at least this many bytes: they cost nothing.
const STEP: u64 = 4 * GIB;

/// What an alloc node has, for who asks about an address.
#[derive(Clone, Copy, Debug)]
struct Note {
    node: (GraphId, GraphAllocId),
    /// Where its memory is, all of it.
    memory: Range,
    /// Where the addresses end that are its alone.
    end: u64,
    place: Place,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Arena {
    /// Its number on its device.
    pub(crate) key: ArenaKey,
    pub(crate) context: Arc<Context>,
    ranges: Mutex<ranks::Table, Vec<Range>>,
    /// For each address the last alloc node that has it, by the first address of those in a row.
    nodes: Mutex<ranks::Table, BTreeMap<u64, Note>>,
}

impl Arena {
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        let key = ArenaKey(context.graphs.next_arena.fetch_add(1, Ordering::Relaxed));
        let (ranges, nodes) = (Mutex::default(), Mutex::default());
        let arena = Arc::new(Self { key, context: Arc::clone(context), ranges, nodes });
        context.graphs.enter_arena(&arena);
        arena
    }

    /// An alloc node has these addresses. Those before it that had some of them have the others still.
    pub(crate) fn note(&self, memory: Range, node: (GraphId, GraphAllocId), place: Place) {
        let mut nodes = lock(&self.nodes);
        let is_covered = |(_, note): &(&u64, &Note)| note.end > memory.start;
        let covered: Vec<u64> = nodes.range(..memory.end()).rev().take_while(is_covered).map(|(at, _)| *at).collect();
        for at in covered {
            let Some(former) = nodes.remove(&at) else { continue };
            if at < memory.start {
                nodes.insert(at, Note { end: memory.start, ..former });
            }
            if former.end > memory.end() {
                nodes.insert(memory.end(), former);
            }
        }
        nodes.insert(memory.start, Note { node, memory, end: memory.end(), place });
    }

    fn find(&self, pointer: u64) -> Option<Note> {
        let nodes = lock(&self.nodes);
        nodes.range(..=pointer).next_back().map(|(_, note)| *note).filter(|note| pointer < note.end)
    }

    /// The last alloc node whose memory an address lies in.
    pub(crate) fn node_around(&self, pointer: u64) -> Option<((GraphId, GraphAllocId), Range)> {
        self.find(pointer).map(|note| (note.node, note.memory))
    }

    /// The alloc node whose memory starts at an address.
    pub(crate) fn node_from(&self, pointer: u64) -> Option<(GraphId, GraphAllocId)> {
        self.find(pointer).filter(|note| note.memory.start == pointer).map(|note| note.node)
    }

    /// The alloc node at an address, for messages.
    pub(crate) fn node_at(&self, pointer: u64) -> Option<Nearest> {
        let Note { node: (graph, _), memory, place, .. } = self.find(pointer)?;
        let place = callers::at(place);
        let node = format!("memory of {graph}, {}, allocated by a node{place}", Bytes(memory.bytes));
        Some(Nearest::OfGraph { node, offset: pointer - memory.start })
    }

    /// Addresses for at least `bytes` that no other graph has.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Range> {
        let range = find_addresses(&self.context, bytes)?;
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
        self.context.graphs.close(&self.context, self.key, ranges);
        self.context.memory_came_back();
    }
}

/// Addresses for at least `bytes` that no arena has.
fn find_addresses(context: &Context, bytes: u64) -> Result<Range> {
    let granularity = context.properties.granularity;
    let [needed, bytes] = [bytes, bytes.max(STEP)].map(|it| round_up(it, granularity).unwrap_or(it));
    match context.graphs.take_spare(bytes) {
        Some(spare) => Ok(spare),
        None => match context.driver.reserve(bytes) {
            Err(DriverError::OutOfAddresses { .. }) if needed < bytes => {
                Ok(Range::new(context.driver.reserve(needed)?, needed))
            }
            start => Ok(Range::new(start?, bytes)),
        },
    }
}
