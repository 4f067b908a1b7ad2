//! The state of a device's memory: ranges, chunks and the mappings of each chunk.
//!
//! Pure bookkeeping, for devices that must check their callers themselves (the host device; CUDA reads from it what is
//! left). It does not know where memory comes from: each chunk has a backing that it never reads. Every method either
//! succeeds completely or returns an error and changes nothing, so that a driver can check, call the system, and only
//! then record the result.
//!
//! Invariants, re-derived by `audit` in the tests:
//! * `whole-mapping`: a mapping covers exactly one chunk, from its first byte to its last;
//! * `inside-range`: a mapping lies in one range; mappings do not overlap, nor do ranges;
//! * `last-holder`: a chunk is kept until it is destroyed and its last mapping is gone, and no longer;
//! * `within-total`: the bytes of all kept chunks are at most the device's total.

use std::collections::BTreeMap;

use crate::errors::{failed, unknown};
use crate::{DriverError, MemoryInfo, RawChunk, Result};

/// The bookkeeping of one device's memory. `B` is the backing of a chunk.
#[derive(Debug)]
pub(crate) struct Ledger<B> {
    granularity: u64,
    total_bytes: u64,
    /// Bytes of kept chunks, and of chunks whose memory is being returned (see [`Ledger::gave_back`]).
    used_bytes: u64,
    next_chunk: u64,
    /// Ranges by first address; the value is the size.
    ranges: BTreeMap<u64, u64>,
    /// Kept chunks by handle. Handles are never reused.
    chunks: BTreeMap<u64, Chunk<B>>,
    /// Mappings by first address; the value is the size and the chunk's handle.
    mappings: BTreeMap<u64, (u64, u64)>,
}

/// A chunk that still has a holder.
#[derive(Debug)]
struct Chunk<B> {
    bytes: u64,
    mappings: u32,
    destroyed: bool,
    backing: B,
}

/// The rest of a chunk whose last holder is gone. Its bytes count as used until [`Ledger::gave_back`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Leftover<B> {
    pub(crate) bytes: u64,
    pub(crate) backing: B,
}

impl<B> Ledger<B> {
    /// Returns the ledger of an empty device.
    pub(crate) fn new(granularity: u64, total_bytes: u64) -> Self {
        assert!(granularity.is_power_of_two());
        Self {
            granularity,
            total_bytes,
            used_bytes: 0,
            next_chunk: 1,
            ranges: BTreeMap::new(),
            chunks: BTreeMap::new(),
            mappings: BTreeMap::new(),
        }
    }

    /// Checks that `bytes` is a size that can be reserved or created.
    pub(crate) fn check_size(&self, call: &'static str, bytes: u64) -> Result<()> {
        if bytes == 0 || !bytes.is_multiple_of(self.granularity) {
            return Err(failed(call, format!("{bytes} B is not a positive multiple of {} B", self.granularity)));
        }
        Ok(())
    }

    /// Records a new range.
    pub(crate) fn add_range(&mut self, at: u64, bytes: u64) {
        debug_assert!(at.is_multiple_of(self.granularity) && bytes.is_multiple_of(self.granularity));
        let before = self.ranges.insert(at, bytes);
        debug_assert!(before.is_none(), "inside-range: the system gave an address twice");
    }

    /// Checks that `at` and `bytes` are exactly a range without mappings.
    pub(crate) fn check_unreserve(&self, at: u64, bytes: u64) -> Result<()> {
        const CALL: &str = "unreserve";
        match self.ranges.get(&at) {
            None => return Err(unknown(CALL, "range", at)),
            Some(&known) if known != bytes => {
                return Err(failed(CALL, format!("the range at {at:#x} has {known} B, not {bytes} B")));
            }
            Some(_) => {}
        }
        match self.mappings.range(at..at + bytes).next() {
            None => Ok(()),
            Some((mapped, _)) => Err(failed(CALL, format!("a chunk is still mapped at {mapped:#x}"))),
        }
    }

    /// Removes a range that [`Self::check_unreserve`] has allowed.
    pub(crate) fn remove_range(&mut self, at: u64) {
        let range = self.ranges.remove(&at);
        debug_assert!(range.is_some());
    }

    /// Records a chunk that `make` gets from the system, if the device has this many bytes left.
    pub(crate) fn create(&mut self, bytes: u64, make: impl FnOnce() -> Result<B>) -> Result<RawChunk> {
        self.check_size("create", bytes)?;
        if bytes > self.total_bytes - self.used_bytes {
            return Err(DriverError::OutOfMemory { call: "create", bytes });
        }
        let backing = make()?;
        self.used_bytes += bytes;
        let chunk = RawChunk(self.next_chunk);
        self.next_chunk += 1;
        self.chunks.insert(chunk.0, Chunk { bytes, mappings: 0, destroyed: false, backing });
        Ok(chunk)
    }

    /// Destroys a chunk's handle. Returns the rest of the chunk if nothing maps it.
    pub(crate) fn destroy(&mut self, chunk: RawChunk) -> Result<Option<Leftover<B>>> {
        self.live("destroy", chunk)?;
        let entry = self.chunks.get_mut(&chunk.0).expect("a live chunk is kept");
        entry.destroyed = true;
        Ok(self.take_unheld(chunk.0))
    }

    /// Records that the memory of a [`Leftover`] of this size was returned to the system.
    pub(crate) fn gave_back(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used_bytes, "within-total");
        self.used_bytes -= bytes;
    }

    /// Returns the size and the backing of a chunk that is not destroyed.
    pub(crate) fn live(&self, call: &'static str, chunk: RawChunk) -> Result<(u64, &B)> {
        match self.chunks.get(&chunk.0) {
            Some(entry) if !entry.destroyed => Ok((entry.bytes, &entry.backing)),
            _ => Err(unknown(call, "chunk", chunk.0)),
        }
    }

    /// Checks that a chunk can be mapped there, and returns its backing.
    pub(crate) fn check_map(&self, chunk: RawChunk, at: u64, bytes: u64) -> Result<&B> {
        const CALL: &str = "map";
        let (whole, backing) = self.live(CALL, chunk)?;
        if bytes != whole {
            return Err(failed(CALL, format!("a chunk is mapped whole: it has {whole} B, not {bytes} B")));
        }
        if !at.is_multiple_of(self.granularity) {
            return Err(failed(CALL, format!("{at:#x} is not a multiple of {} B", self.granularity)));
        }
        let range = self.ranges.range(..=at).next_back();
        // No sum, because an address near the end of the space must not wrap around.
        if range.is_none_or(|(&start, &size)| at - start > size || bytes > size - (at - start)) {
            return Err(failed(CALL, format!("{bytes} B at {at:#x} do not lie in one reserved range")));
        }
        match self.mappings.range(..at + bytes).next_back() {
            Some((&start, &(size, _))) if start + size > at => {
                Err(failed(CALL, format!("{bytes} B at {at:#x}: a chunk is already mapped at {start:#x}")))
            }
            _ => Ok(backing),
        }
    }

    /// Records a mapping that [`Self::check_map`] has allowed.
    pub(crate) fn add_mapping(&mut self, chunk: RawChunk, at: u64, bytes: u64) {
        self.chunks.get_mut(&chunk.0).expect("a chunk that may be mapped is kept").mappings += 1;
        self.mappings.insert(at, (bytes, chunk.0));
    }

    /// Checks that `at` and `bytes` are exactly a mapping.
    pub(crate) fn check_unmap(&self, at: u64, bytes: u64) -> Result<()> {
        const CALL: &str = "unmap";
        match self.mappings.get(&at) {
            None => Err(unknown(CALL, "mapping", at)),
            Some(&(known, _)) if known != bytes => {
                Err(failed(CALL, format!("the mapping at {at:#x} has {known} B, not {bytes} B: it goes whole")))
            }
            Some(_) => Ok(()),
        }
    }

    /// Removes a mapping that [`Self::check_unmap`] has allowed. Returns the rest of a chunk if the mapping was its
    /// last holder.
    pub(crate) fn remove_mapping(&mut self, at: u64) -> Option<Leftover<B>> {
        let (_, chunk) = self.mappings.remove(&at).expect("a mapping that may go is written down");
        self.chunks.get_mut(&chunk).expect("last-holder: a mapped chunk is kept").mappings -= 1;
        self.take_unheld(chunk)
    }

    /// Returns the bytes of all chunks that are kept or whose memory is being returned.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Returns the device's total and what is left of it.
    pub(crate) fn memory_info(&self) -> MemoryInfo {
        MemoryInfo { free_bytes: self.total_bytes - self.used_bytes, total_bytes: self.total_bytes }
    }

    /// Returns the ranges, as first address and size.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().map(|(&at, &bytes)| (at, bytes))
    }

    /// Returns the mappings, as first address, size and chunk.
    pub(crate) fn mappings(&self) -> impl Iterator<Item = (u64, u64, RawChunk)> {
        self.mappings.iter().map(|(&at, &(bytes, chunk))| (at, bytes, RawChunk(chunk)))
    }

    /// Returns the chunks that are not destroyed, with their sizes.
    pub(crate) fn live_chunks(&self) -> impl Iterator<Item = (RawChunk, u64)> {
        self.chunks.iter().filter(|(_, entry)| !entry.destroyed).map(|(&id, entry)| (RawChunk(id), entry.bytes))
    }

    /// Returns the backings of all kept chunks.
    pub(crate) fn backings(&self) -> impl Iterator<Item = &B> {
        self.chunks.values().map(|entry| &entry.backing)
    }

    /// Removes a chunk that is destroyed and mapped nowhere. INVARIANT: last-holder.
    fn take_unheld(&mut self, chunk: u64) -> Option<Leftover<B>> {
        let entry = self.chunks.get(&chunk)?;
        if !entry.destroyed || entry.mappings > 0 {
            return None;
        }
        self.chunks.remove(&chunk).map(|entry| Leftover { bytes: entry.bytes, backing: entry.backing })
    }
}

#[cfg(test)]
mod tests;
