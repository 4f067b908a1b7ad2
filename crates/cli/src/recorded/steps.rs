//! What the readers of other programs' recordings have in common: a recording may have begun in the middle.
//!
//! Frees of what was allocated before the recording began and allocations without bytes are left out and counted.
//! Everything else goes to the [`Recorder`], which refuses what cannot be.

use std::collections::HashSet;

use millpond_core::trace::{Fault, Keys, Program, Recorder};

/// Steps of a recording that are not in the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Skipped {
    /// Frees of memory that was allocated before the recording began.
    pub earlier_frees: u64,
    /// Allocations of 0 bytes; their frees are left out, too.
    pub empty_allocs: u64,
    /// Allocations that failed.
    pub failed_allocs: u64,
    /// Frees that were asked for and not over when the recording ended; their memory counts as live.
    pub pending_frees: u64,
    /// Entries of kinds that are not known.
    pub unknown_entries: u64,
    /// Allocations that no pool of a device would serve: of captured graphs, of the host.
    pub other_memory: u64,
    /// Whether the end of an operation trace is missing.
    pub is_cut: bool,
}

impl Skipped {
    /// What was left out, each as `12 frees of ...`, or is missing; empty where nothing was.
    pub fn sentences(&self) -> Vec<String> {
        let counted = [
            (self.earlier_frees, "free", "of memory from before the recording left out"),
            (self.empty_allocs, "allocation", "of 0 bytes left out"),
            (self.failed_allocs, "failed allocation", "left out"),
            (self.pending_frees, "free", "not completed at the end: the memory stays live"),
            (self.unknown_entries, "record", "of unknown kinds left out"),
            (self.other_memory, "allocation", "of captures and of the host left out"),
        ];
        let sentence = |(count, what, rest): &(u64, &str, &str)| {
            let many = if *count == 1 { "" } else { "s" };
            format!("{count} {what}{many} {rest}")
        };
        let counted = counted.iter().filter(|(count, ..)| *count > 0).map(sentence);
        let cut =
            self.is_cut.then(|| "the program was stopped while it was traced: what it had flushed is served".into());
        counted.chain(cut).collect()
    }
}

/// A recorder that leaves half-seen steps out.
#[derive(Debug)]
pub(crate) struct Steps {
    recorder: Recorder,
    /// Keys of live allocations of 0 bytes.
    empty: HashSet<u64>,
    pub(crate) skipped: Skipped,
}

impl Steps {
    /// For a recording whose keys are addresses or numbers that may be used again.
    pub(crate) fn new() -> Self {
        Self { recorder: Recorder::new(Keys::Recycled), empty: HashSet::new(), skipped: Skipped::default() }
    }

    /// An allocation; one of 0 bytes is left out.
    pub(crate) fn alloc(&mut self, key: u64, bytes: u64, stream: u64, place: u64) -> Result<(), Fault> {
        if bytes == 0 {
            self.skipped.empty_allocs += 1;
            self.empty.insert(key);
            return Ok(());
        }
        self.recorder.alloc(key, bytes, stream, place)?;
        self.empty.remove(&key);
        Ok(())
    }

    /// How many events the program has so far.
    pub(crate) fn len(&self) -> usize {
        self.recorder.len()
    }

    /// Whether `key` names a live allocation of the program.
    pub(crate) fn is_live(&self, key: u64) -> bool {
        self.recorder.is_live(key)
    }

    /// A free of a recording that has seen all allocations.
    pub(crate) fn free(&mut self, key: u64, stream: Option<u64>, place: u64) -> Result<(), Fault> {
        if !self.recorder.is_live(key) && self.empty.remove(&key) {
            return Ok(());
        }
        self.recorder.free(key, stream, place)
    }

    /// A free of a recording that may have begun in the middle: what it never saw allocated is left out.
    pub(crate) fn free_if_seen(&mut self, key: u64, stream: Option<u64>, place: u64) -> Result<(), Fault> {
        if !self.recorder.knows(key) && !self.empty.contains(&key) {
            self.skipped.earlier_frees += 1;
            return Ok(());
        }
        self.free(key, stream, place)
    }

    /// The program.
    pub(crate) fn finish(self, name: &str) -> Result<(Program, Skipped), Fault> {
        Ok((self.recorder.finish(name)?, self.skipped))
    }
}
