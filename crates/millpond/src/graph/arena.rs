//! The addresses that one graph has for itself.
//!
//! They are reserved in steps, as alloc nodes need them. Once the last graph, instance and live allocation is gone, and
//! no work is left that could use the addresses, another arena may get them with the memory that is mapped there. A
//! graph like an earlier one then needs no mapping.
//!
//! Invariant **one-at-a-time**: launches in an arena are ordered one after the other, for all of its instances.

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

/// Addresses are reserved in steps of at least this many bytes: address space costs nothing.
const STEP: u64 = 4 * GIB;

/// The data of an alloc node, for lookups by address.
#[derive(Clone, Copy, Debug)]
struct Note {
    node: (GraphId, GraphAllocId),
    /// The whole range of its memory.
    memory: Range,
    /// The end of its addresses that no later node has.
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
    /// The last alloc node at each address. The key is the first address of a run that one node has.
    nodes: Mutex<ranks::Table, BTreeMap<u64, Note>>,
}

impl Arena {
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        let key = ArenaKey(context.graphs.next_arena.fetch_add(1, Ordering::Relaxed));
        let (ranges, nodes) = (Mutex::default(), Mutex::default());
        let arena = Arc::new(Self { key, context: Arc::clone(context), ranges, nodes });
        lock(&context.graphs.arenas).add(&arena);
        arena
    }

    /// Records that an alloc node has these addresses. An earlier node that had some of them keeps the others.
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

    /// Returns the last alloc node whose memory contains an address.
    pub(crate) fn node_around(&self, pointer: u64) -> Option<((GraphId, GraphAllocId), Range)> {
        self.find(pointer).map(|note| (note.node, note.memory))
    }

    /// Returns the alloc node whose memory starts at an address.
    pub(crate) fn node_from(&self, pointer: u64) -> Option<(GraphId, GraphAllocId)> {
        self.find(pointer).filter(|note| note.memory.start == pointer).map(|note| note.node)
    }

    /// Returns the alloc node at an address, for messages.
    pub(crate) fn node_at(&self, pointer: u64) -> Option<Nearest> {
        let Note { node: (graph, _), memory, place, .. } = self.find(pointer)?;
        let place = callers::at(place);
        let node = format!("memory of {graph}, {}, allocated by a node{place}", Bytes(memory.bytes));
        Some(Nearest::OfGraph { node, offset: pointer - memory.start })
    }

    /// Reserves addresses for at least `bytes` that no other graph has.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Range> {
        let range = find_addresses(&self.context, bytes)?;
        lock(&self.ranges).push(range);
        Ok(range)
    }

    /// Returns `true` if these addresses belong to this arena.
    pub(crate) fn contains(&self, range: Range) -> bool {
        lock(&self.ranges).iter().any(|own| own.contains(range.start))
    }

    /// Returns `true` if these addresses belong to this arena and lie in one reservation.
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

/// Returns addresses for at least `bytes` that no arena has.
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
