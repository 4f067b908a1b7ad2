//! The addresses that one graph and its copies have for themselves.
//!
//! Reserved in steps as alloc nodes need them, given back when the last graph, exec and live allocation is gone and no
//! work is left that could touch them. Knows addresses, and the last launch that used them; no nodes.
//!
//! Invariant **one-at-a-time**: launches of all execs that share an arena are ordered one after the other, because they
//! use the same addresses.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use millpond_core::graph::ArenaKey;
use millpond_core::units::{GIB, Range, round_up};
use millpond_driver::Driver;

use super::last::Last;
use crate::context::{Context, lock};
use crate::error::Result;

/// Addresses are reserved in steps of at least this many bytes: they cost nothing.
const STEP: u64 = 4 * GIB;

/// See the module.
#[derive(Debug)]
pub(crate) struct Arena {
    /// Its number on its device.
    pub(crate) key: ArenaKey,
    pub(crate) context: Arc<Context>,
    ranges: Mutex<Vec<Range>>,
    /// The end of the last launch that used it.
    pub(crate) last: Mutex<Option<Last>>,
}

impl Arena {
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        let key = ArenaKey(context.graphs.next_arena.fetch_add(1, Ordering::Relaxed).into());
        let (ranges, last) = (Mutex::default(), Mutex::default());
        Arc::new(Self { key, context: Arc::clone(context), ranges, last })
    }

    /// Fresh addresses for at least `bytes`.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Range> {
        let granularity = self.context.properties.granularity;
        let bytes = round_up(bytes.max(STEP), granularity).unwrap_or(bytes);
        let range = Range::new(self.context.driver.reserve(bytes)?, bytes);
        lock(&self.ranges).push(range);
        Ok(range)
    }

    /// Whether these are its addresses.
    pub(crate) fn contains(&self, range: Range) -> bool {
        lock(&self.ranges).iter().any(|own| own.contains(range.start))
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let ranges = std::mem::take(self.ranges.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner));
        self.context.graphs.close(self.key, ranges);
        self.context.graphs.finish_closing(&self.context);
    }
}
