//! The sim device by itself; what it shares with other devices is in the conformance suite.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::*;

const MIB2: u64 = 2 << 20;

fn at_block() -> SimDriver {
    SimDriver::new(SimConfig { completion: Completion::AtBlock, ..SimConfig::default() })
}

fn fill(at: u64, bytes: u64) -> Work {
    Work::Fill { at, bytes, value: 0 }
}

/// A chunk of 2 MiB, mapped.
fn mapped(sim: &SimDriver) -> (RawChunk, u64) {
    let (chunk, at) = (sim.create(MIB2).unwrap(), sim.reserve(MIB2).unwrap());
    // SAFETY: simulated memory is never touched.
    unsafe { sim.map(chunk, at, MIB2) }.unwrap();
    (chunk, at)
}

fn submit(sim: &SimDriver, stream: RawStream, work: Work) -> Result<()> {
    // SAFETY: simulated memory is never touched.
    unsafe { sim.submit(stream, &mut Some(work)) }
}

fn unmap(sim: &SimDriver, at: u64) -> Result<()> {
    // SAFETY: simulated memory is never touched.
    unsafe { sim.unmap(at, MIB2) }
}

#[test]
fn calls_are_kept_as_data() {
    let sim = SimDriver::new(SimConfig { total_bytes: MIB2, ..SimConfig::default() });
    let chunk = sim.create(MIB2).unwrap();
    assert!(sim.create(MIB2).is_err());
    sim.destroy(chunk).unwrap();
    let error = DriverError::OutOfMemory { call: "create", bytes: MIB2 };
    let expected =
        [Call::Create { bytes: MIB2, chunk }, Call::Refused { kind: CallKind::Create, error }, Call::Destroy { chunk }];
    assert_eq!(sim.take_calls(), expected);
    assert!(sim.calls().is_empty());
    sim.assert_clean();
}

#[test]
fn breaches_and_leaks_are_named() {
    let sim = SimDriver::default();
    let (chunk, at) = mapped(&sim);
    let stream = sim.open_stream(StreamFlags::default()).unwrap();
    submit(&sim, stream, fill(at + MIB2 - 8, 16)).unwrap();
    submit(&sim, stream, Work::Protect { at: at + 1, bytes: 4096, access: crate::Access::None }).unwrap();
    assert!(sim.destroy(RawChunk(chunk.0 + 1)).is_err());
    let kinds: Vec<CallKind> = sim.violations().iter().map(|violation| violation.kind).collect();
    assert_eq!(kinds, [CallKind::Submit, CallKind::Submit, CallKind::Destroy]);
    assert!(sim.violations()[0].to_string().contains("not all mapped"), "{:?}", sim.violations());
    assert_eq!(sim.leaks().len(), 4, "a mapping, a chunk, a range and a stream: {:?}", sim.leaks());
}

#[test]
fn unmapping_under_pending_work_is_a_breach() {
    let sim = at_block();
    let (chunk, at) = mapped(&sim);
    let stream = sim.open_stream(StreamFlags::default()).unwrap();
    submit(&sim, stream, fill(at, 1)).unwrap();
    unmap(&sim, at).unwrap();
    assert_eq!(sim.violations().len(), 1);
    // SAFETY: simulated memory is never touched.
    unsafe { sim.map(chunk, at, MIB2) }.unwrap();
    let mark = sim.mark(stream).unwrap();
    assert_eq!(sim.is_over(mark), Ok(false));
    sim.block_on(mark).unwrap();
    unmap(&sim, at).unwrap();
    assert_eq!(sim.violations().len(), 1, "the work has completed");
}

#[test]
fn work_runs_when_somebody_blocks() {
    let sim = at_block();
    let stream = sim.open_stream(StreamFlags::default()).unwrap();
    let before = sim.mark(stream).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let task = {
        let ran = ran.clone();
        move || ran.store(7, Ordering::Relaxed)
    };
    submit(&sim, stream, Work::Run(Box::new(task))).unwrap();
    let after = sim.mark(stream).unwrap();
    sim.block_on(before).unwrap();
    assert_eq!((sim.is_over(after), ran.load(Ordering::Relaxed)), (Ok(false), 0));
    sim.block_on(after).unwrap();
    assert_eq!((sim.is_over(after), ran.load(Ordering::Relaxed)), (Ok(true), 7));
}

#[test]
fn work_that_blocks_on_itself_is_reported() {
    let sim = Arc::new(at_block());
    let stream = sim.open_stream(StreamFlags::default()).unwrap();
    let answer = Arc::new(std::sync::Mutex::new(None));
    let task = {
        let (sim, answer) = (sim.clone(), answer.clone());
        move || {
            let mark = sim.mark(stream).unwrap();
            *answer.lock().unwrap() = Some(sim.block_on(mark));
        }
    };
    submit(&sim, stream, Work::Run(Box::new(task))).unwrap();
    let mark = sim.mark(stream).unwrap();
    sim.block_on(mark).unwrap();
    assert!(matches!(answer.lock().unwrap().take(), Some(Err(DriverError::Failed { .. }))));
}

#[test]
fn where_calls_are_not_watched_nothing_is_known() {
    let sim = SimDriver::new(SimConfig { watch: Watch::Counts, ..SimConfig::default() });
    let (_, at) = mapped(&sim);
    assert_ne!(sim.reserve(MIB2).unwrap(), at);
    assert_eq!((sim.calls().len(), sim.violations().len()), (0, 0));
}

#[test]
fn there_is_no_more_memory_than_it_says_whatever_is_watched() {
    for watch in [Watch::Calls, Watch::Contract, Watch::Counts] {
        let sim = SimDriver::new(SimConfig { watch, total_bytes: 3 * MIB2, ..SimConfig::default() });
        let chunk = sim.create(2 * MIB2).unwrap();
        let refused = DriverError::OutOfMemory { call: "create", bytes: 2 * MIB2 };
        assert_eq!((sim.create(2 * MIB2).unwrap_err(), sim.used_bytes()), (refused, 2 * MIB2), "{watch:?}");
        sim.destroy(chunk).unwrap();
        sim.create(3 * MIB2).unwrap();
        assert!(sim.create(MIB2).is_err() && sim.destroy(chunk).is_err(), "{watch:?}");
    }
}
