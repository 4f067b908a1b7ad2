//! Patterns in memory: a kernel writes one after each allocation, and another kernel checks it before its free.
//!
//! A pattern has a word at every multiple of [`STRIDE`] bytes. Blocks begin at multiples of [`STRIDE`], so two
//! allocations that overlap share the place of a word. The words differ between allocations and passes.

use std::sync::{Arc, Mutex, PoisonError};

use millpond::{Buffer, Stream};
use millpond_cli::replay::Touched;

/// The distance between words in bytes. The pool's blocks are multiples of it.
const STRIDE: usize = 512;
/// The size of a word in bytes; less if an allocation, or its last stride, is shorter.
const WORD: usize = 8;

/// Writes and checks patterns.
pub(super) struct Patterns {
    seed: u64,
    pass: u64,
    found: Arc<Mutex<Touched>>,
}

impl Patterns {
    /// Creates patterns that depend on `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, pass: 0, found: Arc::default() }
    }

    /// Writes the pattern of allocation `id` at this point of the stream.
    pub(super) fn write(&self, stream: &Stream, buffer: &Buffer<u8>, id: u32) -> millpond::Result<()> {
        let seed = self.seed_of(id);
        stream.launch(buffer.write(), move |bytes| {
            for (index, place) in bytes.chunks_mut(STRIDE).enumerate() {
                let word = word(seed, index);
                let length = place.len().min(WORD);
                place[..length].copy_from_slice(&word[..length]);
            }
        })
    }

    /// Checks the pattern of allocation `id` at this point of the stream.
    pub(super) fn check(&self, stream: &Stream, buffer: &Buffer<u8>, id: u32) -> millpond::Result<()> {
        let (seed, pass, found) = (self.seed_of(id), self.pass, Arc::clone(&self.found));
        stream.launch(buffer.read(), move |bytes| {
            let is_wrong = |(index, place): (usize, &[u8])| {
                let length = place.len().min(WORD);
                (place[..length] != word(seed, index)[..length]).then_some(index * STRIDE)
            };
            let wrong = bytes.chunks(STRIDE).enumerate().find_map(is_wrong);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.checked += 1;
            if let Some(offset) = wrong {
                found.mismatches += 1;
                let describe =
                    || format!("allocation {id} of {} B at byte {offset}, in pass {}", bytes.len(), pass + 1);
                found.first_mismatch.get_or_insert_with(describe);
            }
        })
    }

    /// Returns the result of the pass that ends. The device must be idle.
    pub(super) fn end_of_pass(&mut self) -> Touched {
        self.pass += 1;
        std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn seed_of(&self, id: u32) -> u64 {
        mixed(self.seed ^ mixed(self.pass << 32 | u64::from(id)))
    }
}

/// Returns the word at a place.
fn word(seed: u64, index: usize) -> [u8; WORD] {
    mixed(seed.wrapping_add(index as u64)).to_le_bytes()
}

/// The finalizer of splitmix64: every input bit affects every output bit.
fn mixed(input: u64) -> u64 {
    let mut value = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use millpond::{Device, HostConfig, PoolConfig};

    use super::*;

    #[test]
    fn a_changed_byte_is_found_and_an_unchanged_one_is_not() {
        let device = Device::host(HostConfig::default()).unwrap();
        let pool = device.pool(PoolConfig::default()).unwrap();
        let stream = device.stream().unwrap();
        let mut patterns = Patterns::new(7);
        for (bytes, spoiled) in [(1, 0), (9, 7), (512, 3), (513, 512), (5000, 4608)] {
            let buffer = stream.alloc::<u8>(&pool, bytes).unwrap();
            patterns.write(&stream, &buffer, 3).unwrap();
            patterns.check(&stream, &buffer, 3).unwrap();
            stream.launch(buffer.write(), move |bytes| bytes[spoiled] ^= 1).unwrap();
            patterns.check(&stream, &buffer, 3).unwrap();
            device.synchronize().unwrap();
            let found = patterns.end_of_pass();
            assert_eq!((found.checked, found.mismatches), (2, 1), "{bytes} bytes");
            let place = spoiled / STRIDE * STRIDE;
            let first = found.first_mismatch.unwrap();
            assert!(first.starts_with(&format!("allocation 3 of {bytes} B at byte {place}, in pass ")), "{first}");
        }
    }

    #[test]
    fn allocations_and_passes_have_patterns_of_their_own() {
        let mut patterns = Patterns::new(1);
        let first = patterns.seed_of(0);
        assert_ne!(first, patterns.seed_of(1));
        patterns.end_of_pass();
        assert_ne!(first, patterns.seed_of(0));
    }
}
