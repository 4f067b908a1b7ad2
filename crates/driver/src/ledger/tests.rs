//! The ledger against a naive twin, and each refusal on its own.

use proptest::prelude::*;

use super::*;

const GRAIN: u64 = 16;

/// Re-derives every invariant from scratch.
fn audit<B>(ledger: &Ledger<B>) {
    let mut end = 0;
    for (at, bytes) in ledger.ranges() {
        assert!(at >= end, "inside-range: ranges overlap");
        end = at + bytes;
    }
    let mut end = 0;
    let mut held: BTreeMap<u64, u32> = BTreeMap::new();
    for (at, bytes, chunk) in ledger.mappings() {
        assert!(at >= end, "inside-range: mappings overlap");
        end = at + bytes;
        assert!(ledger.ranges().any(|(start, size)| start <= at && end <= start + size), "inside-range");
        assert_eq!(ledger.chunks[&chunk.0].bytes, bytes, "whole-mapping");
        *held.entry(chunk.0).or_default() += 1;
    }
    for (id, entry) in &ledger.chunks {
        assert_eq!(held.get(id).copied().unwrap_or(0), entry.mappings);
        assert!(!entry.destroyed || entry.mappings > 0, "last-holder");
    }
    let kept: u64 = ledger.chunks.values().map(|entry| entry.bytes).sum();
    assert_eq!(kept, ledger.used_bytes);
    assert!(kept <= ledger.total_bytes, "within-total");
}

fn create(ledger: &mut Ledger<()>, bytes: u64) -> Result<RawChunk> {
    ledger.create(bytes, || Ok(()))
}

fn map(ledger: &mut Ledger<()>, chunk: RawChunk, at: u64, bytes: u64) -> Result<()> {
    ledger.check_map(chunk, at, bytes)?;
    ledger.add_mapping(chunk, at, bytes);
    Ok(())
}

fn give_back(ledger: &mut Ledger<()>, leftover: Option<Leftover<()>>) -> bool {
    leftover.map(|leftover| ledger.gave_back(leftover.bytes)).is_some()
}

#[test]
fn sizes_are_multiples_of_the_granularity() {
    let mut ledger = Ledger::<()>::new(GRAIN, 10 * GRAIN);
    assert!(ledger.check_size("reserve", 0).is_err());
    assert!(ledger.check_size("reserve", GRAIN + 1).is_err());
    assert!(matches!(create(&mut ledger, 11 * GRAIN), Err(DriverError::OutOfMemory { .. })));
    let refused = ledger.create(10 * GRAIN, || Err(failed("create", "the system refuses")));
    assert!(matches!(refused, Err(DriverError::Failed { .. })));
    assert!(create(&mut ledger, 10 * GRAIN).is_ok(), "a refusal takes nothing");
    assert!(matches!(create(&mut ledger, GRAIN), Err(DriverError::OutOfMemory { .. })));
    audit(&ledger);
}

#[test]
fn a_chunk_is_mapped_whole_inside_one_range() {
    let mut ledger = Ledger::<()>::new(GRAIN, 100 * GRAIN);
    let chunk = create(&mut ledger, 2 * GRAIN).unwrap();
    ledger.add_range(0, 2 * GRAIN);
    ledger.add_range(2 * GRAIN, 2 * GRAIN);
    assert!(map(&mut ledger, chunk, 0, GRAIN).is_err(), "part of a chunk");
    assert!(map(&mut ledger, chunk, 1, 2 * GRAIN).is_err(), "misaligned");
    assert!(map(&mut ledger, chunk, GRAIN, 2 * GRAIN).is_err(), "across two ranges");
    assert!(map(&mut ledger, chunk, 4 * GRAIN, 2 * GRAIN).is_err(), "outside");
    assert!(map(&mut ledger, chunk, u64::MAX - GRAIN + 1, 2 * GRAIN).is_err(), "past the end of the space");
    assert!(map(&mut ledger, RawChunk(99), 0, 2 * GRAIN).is_err(), "unknown");
    map(&mut ledger, chunk, 0, 2 * GRAIN).unwrap();
    assert!(map(&mut ledger, chunk, 0, 2 * GRAIN).is_err(), "over a mapping");
    assert!(ledger.check_unreserve(0, 2 * GRAIN).is_err(), "still mapped");
    assert!(ledger.check_unmap(0, GRAIN).is_err(), "part of a mapping");
    assert!(ledger.check_unmap(GRAIN, GRAIN).is_err(), "no mapping starts there");
    audit(&ledger);
}

#[test]
fn the_last_holder_ends_a_chunk() {
    let mut ledger = Ledger::<()>::new(GRAIN, 100 * GRAIN);
    ledger.add_range(0, 4 * GRAIN);
    let chunk = create(&mut ledger, GRAIN).unwrap();
    map(&mut ledger, chunk, 0, GRAIN).unwrap();
    map(&mut ledger, chunk, GRAIN, GRAIN).unwrap();
    assert!(ledger.destroy(chunk).unwrap().is_none());
    assert!(ledger.destroy(chunk).is_err(), "destroyed twice");
    assert!(map(&mut ledger, chunk, 2 * GRAIN, GRAIN).is_err(), "mapped after its destruction");
    assert!(ledger.remove_mapping(0).is_none());
    assert_eq!(ledger.used_bytes(), GRAIN);
    let last = ledger.remove_mapping(GRAIN);
    assert!(give_back(&mut ledger, last));
    assert_eq!(ledger.used_bytes(), 0);
    audit(&ledger);
}

/// One random call; addresses and sizes in grains.
#[derive(Clone, Debug)]
enum Step {
    Create { grains: u64 },
    Destroy { pick: usize },
    Map { pick: usize, at: u64, grains: u64 },
    Unmap { at: u64, grains: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..4u64).prop_map(|grains| Step::Create { grains }),
        (0..8usize).prop_map(|pick| Step::Destroy { pick }),
        (0..8usize, 0..12u64, 1..4u64).prop_map(|(pick, at, grains)| Step::Map { pick, at, grains }),
        (0..12u64, 1..4u64).prop_map(|(at, grains)| Step::Unmap { at, grains }),
    ]
}

/// The twin: it finds the chunk of each grain by looking at all of them.
#[derive(Default)]
struct Twin {
    chunks: Vec<(RawChunk, u64, bool)>,
    mappings: Vec<(u64, u64, RawChunk)>,
}

impl Twin {
    fn used(&self) -> u64 {
        let held = |chunk| self.mappings.iter().any(|&(_, _, of)| of == chunk);
        self.chunks.iter().filter(|&&(chunk, _, live)| live || held(chunk)).map(|&(_, grains, _)| grains).sum()
    }
}

/// Few cases under Miri, which is slow; files of past failures are not written.
fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 8 } else { 256 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_ledger_agrees_with_its_twin(steps in proptest::collection::vec(step(), 0..60)) {
        const RANGE: u64 = 10;
        let mut ledger = Ledger::<()>::new(GRAIN, 12 * GRAIN);
        ledger.add_range(0, RANGE * GRAIN);
        let mut twin = Twin::default();
        for step in steps {
            match step {
                Step::Create { grains } => {
                    let fits = twin.used() + grains <= 12;
                    let chunk = create(&mut ledger, grains * GRAIN);
                    prop_assert_eq!(chunk.is_ok(), fits);
                    twin.chunks.extend(chunk.ok().map(|chunk| (chunk, grains, true)));
                }
                Step::Destroy { pick } => {
                    let Some((chunk, _, live)) = twin.chunks.get_mut(pick) else { continue };
                    let outcome = ledger.destroy(*chunk);
                    prop_assert_eq!(outcome.is_ok(), *live);
                    *live = false;
                    give_back(&mut ledger, outcome.ok().flatten());
                }
                Step::Map { pick, at, grains } => {
                    let Some(&(chunk, whole, live)) = twin.chunks.get(pick) else { continue };
                    let free = twin.mappings.iter().all(|&(start, size, _)| start + size <= at || at + grains <= start);
                    let right = live && grains == whole && at + grains <= RANGE && free;
                    prop_assert_eq!(map(&mut ledger, chunk, at * GRAIN, grains * GRAIN).is_ok(), right);
                    twin.mappings.extend(right.then_some((at, grains, chunk)));
                }
                Step::Unmap { at, grains } => {
                    let found = twin.mappings.iter().position(|&(start, size, _)| (start, size) == (at, grains));
                    prop_assert_eq!(ledger.check_unmap(at * GRAIN, grains * GRAIN).is_ok(), found.is_some());
                    let Some(found) = found else { continue };
                    twin.mappings.swap_remove(found);
                    let leftover = ledger.remove_mapping(at * GRAIN);
                    give_back(&mut ledger, leftover);
                }
            }
            prop_assert_eq!(ledger.used_bytes(), twin.used() * GRAIN);
            audit(&ledger);
        }
    }
}
