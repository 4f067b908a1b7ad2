//! Memory that an exporter has granted, until it is mapped; and whether what it says of it fits together.
//!
//! Nothing that the exporter says is trusted. What is not mapped in the end is given back.

use std::sync::Arc;

use millpond_core::share::{LeaseId, MemoryGrant, Part, Request};
use millpond_driver::RawChunk;
use rustc_hash::FxHashSet;

use super::Peer;
use crate::names::error::Result;
use crate::names::share_error::ShareError;
use crate::state::context::Context;

/// Memory that was claimed, until it is mapped: dropped before that it is given back.
pub(in crate::share) struct Claimed<'c> {
    pub(in crate::share) peer: Arc<Peer>,
    pub(in crate::share) context: &'c Context,
    pub(in crate::share) grant: MemoryGrant,
    /// Each part with its handle, counted as used.
    pub(in crate::share) held: Vec<(Part, RawChunk)>,
    pub(in crate::share) is_taken: bool,
}

impl Claimed<'_> {
    /// It is mapped: whoever has it gives it back.
    pub(in crate::share) fn take(mut self) -> (LeaseId, Vec<(Part, RawChunk)>) {
        self.is_taken = true;
        (self.grant.lease, std::mem::take(&mut self.held))
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let writes = self.grant.can_write;
        self.peer.unuse(self.held.iter().map(|(part, _)| (part.chunk, writes)));
        self.peer.drop_unused(self.context);
        self.peer.tell(&Request::Release { lease: self.grant.lease, uses: Vec::new() });
    }
}

/// What an exporter says of memory must fit together, whatever its intent.
pub(super) fn check(grant: &MemoryGrant, granularity: u64) -> Result<()> {
    /// Allocations begin at multiples of this many bytes: types rely on it.
    const GRAIN: u64 = crate::names::config::GRAIN;
    let whole = |part: &Part| part.bytes > 0 && part.bytes.is_multiple_of(granularity);
    if grant.parts.len() != grant.part_count as usize || !grant.parts.iter().all(whole) {
        return Err(ShareError::answer(format!(
            "its chunks are no multiples of {granularity} B, as this device's are"
        )));
    }
    let mut names = FxHashSet::default();
    if !grant.parts.iter().all(|part| names.insert(part.chunk)) {
        return Err(ShareError::answer("it lies on one chunk twice"));
    }
    let sum = grant.parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.bytes));
    let end = grant.offset.checked_add(grant.bytes);
    let begins_in_first = grant.parts.first().is_some_and(|first| grant.offset < first.bytes);
    if grant.bytes == 0 || !begins_in_first || !grant.offset.is_multiple_of(GRAIN) || end.is_none() || end > sum {
        return Err(ShareError::answer("it does not lie on its chunks"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use millpond_core::share::{ChunkName, ForeignPoint, ForeignUse};

    use super::*;
    use crate::MIB;

    fn grant() -> MemoryGrant {
        let part = |serial| Part { chunk: ChunkName { pool: 0, serial }, bytes: 2 * MIB };
        let point = ForeignPoint { device: 1, slot: 0, seq: 1 };
        let born = ForeignUse { point, act: millpond_core::op::Act::Allocate, stream: 0, op: 1, process: 0 };
        let (gone, uses) = Default::default();
        let parts = vec![part(1), part(2)];
        MemoryGrant {
            lease: LeaseId(1),
            bytes: 3 * MIB,
            offset: 512,
            part_count: 2,
            parts,
            gone,
            born,
            uses,
            device: 1,
            can_write: true,
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        check(&grant(), 2 * MIB).expect("it fits");
        type Spoil = fn(&mut MemoryGrant);
        let wrong: [(&str, Spoil); 10] = [
            ("past the end", |it| it.bytes = 4 * MIB),
            ("past all numbers", |it| it.bytes = u64::MAX),
            ("nothing", |it| it.bytes = 0),
            ("not in the first chunk", |it| it.offset = 2 * MIB),
            ("not aligned", |it| it.offset = 8),
            ("no chunks", |it| it.parts.clear()),
            ("fewer than said", |it| it.part_count = 3),
            ("a chunk twice", |it| it.parts[1].chunk = it.parts[0].chunk),
            ("no granules", |it| it.parts[1].bytes = MIB),
            ("more bytes than numbers", |it| it.parts[1].bytes = u64::MAX - 2 * MIB + 1),
        ];
        for (what, spoil) in wrong {
            let mut grant = grant();
            spoil(&mut grant);
            assert!(check(&grant, 2 * MIB).is_err(), "{what}");
        }
    }
}
