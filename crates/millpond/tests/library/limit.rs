//! A device filled to its limit, by several pools and streams: idle memory is moved or given back before anything is
//! refused, the refusal says what was requested and what exists, nothing is lost, and afterwards everything works.
//!
//! On a GPU (`MILLPOND_TEST_DEVICE=cuda`) it is the whole card, down to what CUDA itself needs, in pieces of gigabytes.
//! Otherwise it is a small device of the same kind. One test at a time: each wants all of it.

use std::sync::{Mutex, PoisonError};

use crate::common::{Make, Subject, makes, order};
use fastrand::Rng;
use millpond::error::OutOfMemory;
use millpond::graph::Instantiate;
use millpond::{Buffer, DeviceConfig, Error, GIB, MIB, Pool, PoolConfig, Stream};

/// The size of a device that is not a card.
const SMALL: u64 = 256 * MIB;
/// The bytes left to CUDA itself on a card, because it needs memory for its own work.
const LEFT: u64 = 2 * GIB;
/// The number of pieces of the available memory.
const PIECES: u64 = 32;
/// The number of bytes that are written and read at each end of a buffer.
const END: usize = 4096;

/// A device, and its available memory.
struct Whole<'a> {
    on: &'a Subject,
    /// The available bytes.
    free: u64,
    /// The size of a piece.
    piece: usize,
}

/// Runs a body on a device of every kind, with all of its memory.
fn on_whole_devices(body: impl Fn(&Whole<'_>)) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for make in makes() {
        let total_bytes = if make == Make::Cuda { u64::MAX } else { SMALL };
        let subject = Subject::sized(make, DeviceConfig::default(), total_bytes);
        let free = match make {
            Make::Cuda => free_of_card(&subject) - LEFT,
            _ => subject.device.properties().total_bytes,
        };
        let piece = (free / PIECES / (8 * MIB) * (8 * MIB)) as usize;
        println!("on {make:?}: {} MiB free, in pieces of {} MiB", free / MIB, piece as u64 / MIB);
        body(&Whole { on: &subject, free, piece });
        subject.assert_contract();
    }
}

/// Returns the free bytes as the driver reports them.
fn free_of_card(subject: &Subject) -> u64 {
    // The device's first call makes its context current on the thread.
    drop(subject.stream());
    let name = std::env::var_os(millpond_driver::cuda::LIBRARY_VARIABLE).unwrap_or_else(|| "libcuda.so.1".into());
    // SAFETY: the driver library, which the device loaded already.
    let library = unsafe { libloading::Library::new(name) }.expect("the driver library");
    type Function = unsafe extern "C" fn(*mut usize, *mut usize) -> i32;
    // SAFETY: the header has this signature.
    let ask = unsafe { library.get::<Function>("cuMemGetInfo_v2") }.expect("it has the function");
    let (mut free, mut total) = (0, 0);
    // SAFETY: two places for numbers.
    let code = unsafe { ask(&raw mut free, &raw mut total) };
    assert_eq!(code, 0, "cuMemGetInfo");
    free as u64
}

impl Whole<'_> {
    /// Makes a pool that keeps all its memory, in chunks that can be moved.
    fn pool(&self) -> Pool {
        let chunk_bytes_max = (self.piece as u64 / 16 / (2 * MIB) * (2 * MIB)).max(2 * MIB);
        self.on.pool(PoolConfig::default().release_threshold(u64::MAX).chunk_bytes_max(chunk_bytes_max))
    }

    /// Allocates pieces and writes their ends until an allocation is refused. Returns the pieces and the refusal.
    fn fill(&self, stream: &Stream, pool: &Pool, marks: &mut Marks) -> (Vec<Piece>, OutOfMemory) {
        let mut pieces = Vec::new();
        loop {
            let before = pool.statistics().reserved_bytes;
            match stream.alloc::<u8>(pool, self.piece) {
                Ok(x) => pieces.push(marks.write(stream, x)),
                Err(Error::OutOfMemory(report)) => {
                    let after = pool.statistics().reserved_bytes;
                    assert!(after <= before, "a refusal keeps nothing: {before} B before, {after} B after: {report}");
                    return (pieces, *report);
                }
                Err(other) => panic!("{other}"),
            }
            assert!(pieces.len() as u64 <= PIECES, "there is more than {} MiB", self.free / MIB);
        }
    }

    /// Asserts that a refusal says what was requested and what exists.
    #[track_caller]
    fn check(&self, report: &OutOfMemory, pool: &Pool, requested: usize) {
        let (text, statistics) = (report.to_string(), pool.statistics());
        assert_eq!((report.pool.id, report.exhausted.requested), (pool.id(), requested as u64), "{text}");
        assert_eq!(report.device_bytes, self.on.device.properties().total_bytes, "{text}");
        assert!(report.exhausted.held >= statistics.used_bytes, "{statistics:?}: {text}");
        assert!(text.contains("out of memory") && text.contains("limit.rs:"), "{text}");
        assert_eq!(report.largest.len() as u64, (statistics.used_bytes / self.piece as u64).min(5), "{text}");
    }
}

/// A buffer whose ends have a value.
struct Piece {
    x: Buffer<u8>,
    mark: u8,
}

/// Values, one after the other.
#[derive(Default)]
struct Marks(u8);

impl Marks {
    fn write(&mut self, stream: &Stream, x: Buffer<u8>) -> Piece {
        self.0 = self.0.wrapping_add(1);
        for end in [0..END, x.len() - END..x.len()] {
            stream.memset(x.view().slice(end).unwrap().write(), self.0).expect("a fill in order");
        }
        x.set_name(&format!("piece {}", self.0));
        Piece { x, mark: self.0 }
    }
}

impl Piece {
    /// Asserts that it still has its value, if that can be read.
    #[track_caller]
    fn check(&self, whole: &Whole<'_>, stream: &Stream) {
        if !whole.on.has_memory {
            return;
        }
        for end in [0..END, self.x.len() - END..self.x.len()] {
            let found = stream.copy_to_host(self.x.view().slice(end.clone()).unwrap().read()).expect("a copy");
            let wrong = found.iter().position(|byte| *byte != self.mark);
            assert_eq!(wrong, None, "piece {} at {end:?} has {:?}", self.mark, &found[..8]);
        }
    }
}

/// Asserts that everything can be allocated again, as at first.
#[track_caller]
fn all_is_back(whole: &Whole<'_>, pools: &[Pool], pieces: usize) {
    whole.on.device.synchronize().unwrap();
    for pool in pools {
        pool.trim_to(0).unwrap();
        assert_eq!((pool.statistics().used_bytes, pool.statistics().reserved_bytes), (0, 0));
    }
    let (stream, pool, mut marks) = (whole.on.stream(), whole.pool(), Marks::default());
    let (again, _) = whole.fill(&stream, &pool, &mut marks);
    assert_eq!(again.len(), pieces, "as many pieces as at first");
    again.iter().for_each(|piece| piece.check(whole, &stream));
    // And left to the next test.
    drop((again, pool));
    whole.on.device.synchronize().unwrap();
}

#[test]
fn idle_memory_of_one_pool_serves_the_others() {
    on_whole_devices(|whole| {
        let [first, second, third]: [Stream; 3] = whole.on.streams();
        let pools = [whole.pool(), whole.pool(), whole.pool()];
        let mut marks = Marks::default();
        let (mut held, report) = whole.fill(&first, &pools[0], &mut marks);
        let pieces = held.len();
        // Pieces are rounded down, and the driver may keep some more for itself.
        assert!(pieces as u64 >= PIECES - 1, "{pieces} pieces: {report}");
        whole.check(&report, &pools[0], whole.piece);

        // Every second piece is freed, by two streams. The rest keeps its values.
        order(&first, &second);
        let mut odd = false;
        let freed: Vec<Piece> = held
            .extract_if(.., |_| {
                odd = !odd;
                odd
            })
            .collect();
        let count = freed.len();
        for (at, piece) in freed.into_iter().enumerate() {
            let on = if at % 2 == 0 { &first } else { &second };
            on.free(piece.x).unwrap();
        }
        first.synchronize().unwrap();
        second.synchronize().unwrap();
        let kept = pools[0].statistics().reserved_bytes;
        assert!(kept >= (pieces * whole.piece) as u64, "all of it is kept: {kept} B");

        // The second pool requests twice a piece, so that pieces of the first have to be joined.
        let large = third.alloc::<u8>(&pools[1], 2 * whole.piece).expect("idle memory of the first pool");
        let large = marks.write(&third, large);
        let (small, report) = whole.fill(&third, &pools[2], &mut marks);
        // The freed pieces, without the large one. Chunks under the ends of freed pieces can be under live ones, too.
        let least = count - count / 4 - 2;
        assert!((least..count).contains(&small.len()), "{} pieces of {count} that were freed: {report}", small.len());
        let others: u64 = pools[..2].iter().map(|pool| pool.statistics().reserved_bytes).sum();
        assert_eq!(report.other_pools_bytes, others);
        whole.check(&report, &pools[2], whole.piece);
        held.iter().for_each(|piece| piece.check(whole, &first));
        small.iter().chain([&large]).for_each(|piece| piece.check(whole, &third));

        // After one more free, the same request succeeds.
        third.free(large.x).unwrap();
        third.synchronize().unwrap();
        let again = third.alloc::<u8>(&pools[2], whole.piece).expect("what was freed just now");
        marks.write(&third, again).check(whole, &third);
        drop((held, small));
        all_is_back(whole, &pools, pieces);
    });
}

/// Memory that work still uses serves no other request. Once that work has completed, the same request succeeds.
#[test]
fn memory_in_use_is_waited_for_or_refused() {
    on_whole_devices(|whole| {
        if !whole.on.can_hold() {
            return;
        }
        let [first, second]: [Stream; 2] = whole.on.streams();
        let pools = [whole.pool(), whole.pool()];
        let mut marks = Marks::default();
        let (mut held, _) = whole.fill(&first, &pools[0], &mut marks);
        let pieces = held.len();
        first.synchronize().unwrap();
        let [x, y] = [held.pop().unwrap(), held.pop().unwrap()];
        let busy = whole.on.hold(&first, x.x.write());
        first.free(x.x).unwrap();
        first.free(y.x).unwrap();
        let refused = second.alloc::<u8>(&pools[1], whole.piece);
        let Err(Error::OutOfMemory(report)) = refused else { panic!("it is in use: {:?}", refused.map(|_| ())) };
        assert_eq!(report.exhausted.requested, whole.piece as u64);
        assert!(report.other_pools_bytes >= (pieces * whole.piece) as u64, "{report}");
        // In the same pool the stream is made to wait for it.
        let z = second.alloc::<u8>(&pools[0], whole.piece).expect("memory that is freed on another stream");
        let z = marks.write(&second, z);
        drop(busy);
        first.synchronize().unwrap();
        let served = second.alloc::<u8>(&pools[1], whole.piece).expect("what was freed is over");
        let served = marks.write(&second, served);
        [&z, &served].iter().for_each(|piece| piece.check(whole, &second));
        held.iter().for_each(|piece| piece.check(whole, &first));
        drop((held, z, served));
        all_is_back(whole, &pools, pieces);
    });
}

/// Threads that together want more than there is are refused sometimes, and nothing is lost.
#[test]
fn threads_that_do_not_fit_go_on() {
    on_whole_devices(|whole| {
        let pools = [whole.pool(), whole.pool(), whole.on.pool(PoolConfig::default())];
        let pieces = {
            let (held, _) = whole.fill(&whole.on.stream(), &pools[0], &mut Marks::default());
            held.len()
        };
        let refusals = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (pools, refusals, stream) = (&pools, &refusals, whole.on.stream());
                scope.spawn(move || {
                    let (mut random, mut marks) = (Rng::with_seed(thread.into()), Marks(thread * 60));
                    let mut held: Vec<Piece> = Vec::new();
                    for _ in 0..40 {
                        let bytes = whole.piece + random.usize(..3 * whole.piece);
                        match stream.alloc::<u8>(&pools[random.usize(..3)], bytes) {
                            Ok(x) => held.push(marks.write(&stream, x)),
                            Err(Error::OutOfMemory(_)) => {
                                refusals.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                                held.drain(..held.len() / 2).for_each(|piece| stream.free(piece.x).unwrap());
                            }
                            Err(other) => panic!("{other}"),
                        }
                        if held.len() > 6 {
                            let piece = held.swap_remove(random.usize(..6));
                            piece.check(whole, &stream);
                            stream.free(piece.x).unwrap();
                        }
                    }
                    held.iter().for_each(|piece| piece.check(whole, &stream));
                });
            }
        });
        println!("{} requests refused", refusals.into_inner());
        all_is_back(whole, &pools, pieces);
    });
}

/// Graphs take their memory from the same device. Idle memory of either serves the other.
#[test]
fn a_launch_finds_idle_memory_or_is_refused() {
    on_whole_devices(|whole| {
        let (stream, pool, mut marks) = (whole.on.stream(), whole.pool(), Marks::default());
        let mut graph = whole.on.device.graph().unwrap();
        let x = graph.add_alloc::<u8>(&[], whole.piece).unwrap();
        let filled = graph.add_memset(&[graph.node_of(x).unwrap()], x.write(), 1).unwrap();
        graph.add_free(&[filled], x).unwrap();
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        for is_upload in [false, true] {
            let act = || if is_upload { exec.upload(&stream) } else { exec.launch(&stream).map(drop) };
            let (mut held, _) = whole.fill(&stream, &pool, &mut marks);
            let pieces = held.len();
            let refused = act().expect_err("nothing is left").to_string();
            assert!(refused.contains("memory"), "{refused}");
            assert_eq!(whole.on.device.graph_memory().reserved_bytes, 0, "a refusal keeps nothing");
            // The pool keeps freed memory, and the graph finds it there, also in the cache of its own stream.
            held.drain(..2).for_each(|piece| stream.free(piece.x).unwrap());
            stream.synchronize().unwrap();
            act().expect("what the pool keeps idle");
            assert!(whole.on.device.graph_memory().reserved_bytes >= whole.piece as u64);
            held.iter().for_each(|piece| piece.check(whole, &stream));
            drop(held);
            // The graph's idle memory serves the pool in turn.
            all_is_back(whole, std::slice::from_ref(&pool), pieces);
        }
    });
}
