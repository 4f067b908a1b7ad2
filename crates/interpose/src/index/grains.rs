//! Blocks with several allocations: each is cut into the fewest grains that separate them. Allocations that still share
//! a grain are in a list.

use rustc_hash::FxHashMap;

use super::entry::Entry;
use super::pages::{BLOCK, Block, GRAIN, NONE, SHARED, grain_bits, parts};

pub(super) type Shared = FxHashMap<u64, Vec<u32>>;

/// Puts an entry into a block of which it has some bytes and not all. The block is cut into the fewest grains that
/// separate it from others.
pub(super) fn put(shared: &mut Shared, entries: &[Entry], base: u64, block: &mut Block, entry: &Entry) {
    if let Block::Whole(old) = *block {
        *block = Block::Grains(Box::new([old; 2]));
    }
    let Block::Grains(grains) = block else { return };
    let is_other = |at: usize, number: u32, bits: u64| {
        let base = base + ((at as u64) << bits);
        match number {
            NONE => false,
            SHARED => !entry.has_all(base, bits),
            number => entries[number as usize].has_beside(entry, base, bits),
        }
    };
    loop {
        let bits = grain_bits(grains);
        let mut all = parts(base, BLOCK, bits, entry.start, entry.end);
        if bits == GRAIN || !all.any(|at| is_other(at, grains[at], bits)) {
            break;
        }
        *grains = halved(entries, base, grains);
    }
    let bits = grain_bits(grains);
    for at in parts(base, BLOCK, bits, entry.start, entry.end) {
        let grain = &mut grains[at];
        match is_other(at, *grain, bits) {
            true => {
                list(shared, entries, base + ((at as u64) << bits), *grain, entry.id.0);
                *grain = SHARED;
            }
            false => *grain = entry.id.0,
        }
    }
}

/// Returns the grains cut in half: two for each.
fn halved(entries: &[Entry], base: u64, grains: &[u32]) -> Box<[u32]> {
    let bits = grain_bits(grains) - 1;
    let half = |at: usize| match grains[at / 2] {
        number @ (NONE | SHARED) => number,
        number => {
            let (entry, base) = (&entries[number as usize], base + ((at as u64) << bits));
            let has_some = entry.start <= base + ((1 << bits) - 1) && base < entry.end;
            if has_some { number } else { NONE }
        }
    };
    (0..2 * grains.len()).map(half).collect()
}

/// Adds an entry to the list of a grain that another entry already has bytes of.
#[cold]
fn list(shared: &mut Shared, entries: &[Entry], grain: u64, old: u32, number: u32) {
    let numbers = shared.entry(grain >> GRAIN).or_default();
    if old != SHARED {
        // The grain is one allocation's now, so entries that were listed here before are outdated.
        numbers.clear();
        numbers.push(old);
    }
    let entry = &entries[number as usize];
    let is_gone = |it: &Entry| !it.is_live && it.start < entry.end && entry.start < it.end;
    numbers.retain(|number| !is_gone(&entries[*number as usize]));
    numbers.push(number);
}

/// Removes an entry from a block.
pub(super) fn clear(shared: &mut Shared, base: u64, block: &mut Block, number: u32, (start, end): (u64, u64)) {
    match block {
        Block::Whole(it) if *it == number => *it = NONE,
        Block::Whole(_) => {}
        Block::Grains(grains) => {
            let bits = grain_bits(grains);
            for at in parts(base, BLOCK, bits, start, end) {
                if grains[at] == number {
                    grains[at] = NONE;
                } else if grains[at] == SHARED
                    && let Some(numbers) = shared.get_mut(&((base >> GRAIN) + at as u64))
                {
                    numbers.retain(|it| *it != number);
                }
            }
        }
    }
}
