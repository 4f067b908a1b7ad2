//! The end of memory: errors name the holders, idle memory is found, and afterwards everything works.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use millpond::error::OutOfMemory;
use millpond::{Buffer, Error, GIB, MIB, Pool, PoolConfig, Stream};

use crate::common::{Make, Subject, on_every_device_of, reuse, touch};

const TOTAL: u64 = 64 * MIB;

fn mib(count: u64) -> usize {
    (count * MIB) as usize
}

/// Makes a pool that keeps all its memory.
fn keeping(on: &Subject) -> Pool {
    on.pool(PoolConfig::default().release_threshold(u64::MAX))
}

#[track_caller]
fn refused(stream: &Stream, pool: &Pool, bytes: usize) -> OutOfMemory {
    match stream.alloc::<u8>(pool, bytes) {
        Err(Error::OutOfMemory(report)) => *report,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{bytes} B were had"),
    }
}

#[test]
fn all_memory_can_be_had_and_no_more() {
    on_every_device_of(TOTAL, |on| {
        let (stream, pool) = (on.stream(), keeping(on));
        for bytes in [mib(2), mib(8), mib(64), 1_000_000] {
            let mut held: Vec<Buffer<u8>> = Vec::new();
            let report = loop {
                match stream.alloc::<u8>(&pool, bytes) {
                    Ok(x) => {
                        x.set_name(&format!("x{}", held.len()));
                        held.push(x);
                    }
                    Err(Error::OutOfMemory(report)) => break report,
                    Err(other) => panic!("{other}"),
                }
            };
            let rounded = bytes.next_multiple_of(512);
            assert_eq!(held.len(), TOTAL as usize / rounded, "every byte was had");
            assert_eq!((report.device_bytes, report.exhausted.requested), (TOTAL, bytes as u64));
            assert_eq!(report.exhausted.held, (held.len() * rounded) as u64);
            assert_eq!(report.largest.len(), held.len().min(5));
            let text = report.to_string();
            assert!(
                text.contains("64.00 MiB") && text.contains("held by `x") && text.contains("exhaustion.rs:"),
                "{text}"
            );
            held.iter().for_each(|x| touch(&stream, x));
            // The end of any one makes room for another.
            let place = held.len() / 2;
            stream.free(held.swap_remove(place)).unwrap();
            held.push(stream.alloc(&pool, bytes).unwrap());
            drop(held);
        }
        assert_eq!(pool.statistics().used_bytes, 0);
    });
}

/// The remains of an earlier request do not make the last bytes unreachable, however large chunks are by then.
#[test]
fn all_of_a_large_device_can_be_had_after_a_small_block() {
    on_every_device_of(64 * GIB, |on| {
        if on.make == Make::Cuda {
            return eprintln!("skipped: a GPU's memory is not a round number, and others use it, too");
        }
        let (stream, pool) = (on.stream(), keeping(on));
        stream.free(stream.alloc::<u8>(&pool, 1).unwrap()).unwrap();
        stream.alloc::<u8>(&pool, 64 * GIB as usize).unwrap();
    });
}

/// A request that can never be met is refused before memory is taken for it, with the statistics from before.
#[test]
fn more_than_there_is_takes_nothing() {
    on_every_device_of(TOTAL, |on| {
        let (stream, pool, limited) =
            (on.stream(), keeping(on), on.pool(PoolConfig::default().max_bytes(8 * MIB).release_threshold(u64::MAX)));
        for bytes in [mib(64) + 1, mib(65), mib(512), usize::MAX] {
            let report = refused(&stream, &pool, bytes);
            assert_eq!((report.exhausted.reserved, report.exhausted.held), (0, 0), "{report}");
        }
        assert_eq!(pool.statistics().reserved_high_bytes, 0, "nothing was taken on the way");
        let report = refused(&stream, &limited, mib(8) + 1);
        assert_eq!((report.exhausted.reserved, report.exhausted.limit), (0, Some(8 * MIB)), "{report}");
        assert_eq!(limited.statistics().reserved_high_bytes, 0);
        // Also if it is too much only because of what is held.
        let x = stream.alloc::<u8>(&pool, mib(10)).unwrap();
        let (high, held) = (pool.statistics().reserved_high_bytes, 10 * MIB);
        let report = refused(&stream, &pool, mib(55));
        assert_eq!((report.exhausted.held, report.exhausted.reserved), (held, pool.statistics().reserved_bytes));
        assert_eq!(pool.statistics().reserved_high_bytes, high);
        stream.free(x).unwrap();
        stream.alloc::<u8>(&pool, mib(64)).unwrap();
    });
}

#[test]
fn the_report_names_the_largest_first() {
    on_every_device_of(TOTAL, |on| {
        let (stream, pool) = (on.stream(), keeping(on));
        let sizes = [3, 1, 9, 2, 7, 5, 4];
        let _held: Vec<_> = sizes.iter().map(|&count| stream.alloc::<u8>(&pool, mib(count)).unwrap()).collect();
        let report = refused(&stream, &pool, mib(60));
        let largest: Vec<u64> = report.largest.iter().map(|holder| holder.range.bytes / MIB).collect();
        assert_eq!(largest, [9, 7, 5, 4, 3]);
    });
}

/// Gaps do not matter: memory is moved together, though addresses are not.
#[test]
fn scattered_memory_serves_a_large_request() {
    on_every_device_of(TOTAL, |on| {
        let (stream, pool) = (on.stream(), keeping(on));
        let mut held: Vec<_> = (0..32).map(|_| stream.alloc::<u8>(&pool, mib(2)).unwrap()).collect();
        held.iter().for_each(|x| touch(&stream, x));
        let mut number = 0;
        held.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        stream.synchronize().unwrap();
        let large = stream.alloc::<u8>(&pool, mib(32)).unwrap();
        touch(&stream, &large);
        refused(&stream, &pool, mib(2));
        drop((held, large));
    });
}

#[test]
fn other_streams_caches_are_emptied_first() {
    on_every_device_of(TOTAL, |on| {
        let pool = keeping(on);
        let streams: [Stream; 4] = on.streams();
        for stream in &streams {
            // 15 MiB of four sizes stay with each stream: in its cache, or returned from it to the heap.
            let held: Vec<_> = [1, 2, 4, 8].map(|count| stream.alloc::<u8>(&pool, mib(count)).unwrap()).into();
            held.iter().for_each(|x| touch(stream, x));
            held.into_iter().for_each(|x| stream.free(x).unwrap());
        }
        assert_eq!(pool.statistics().used_bytes, 0);
        let all = streams[0].alloc::<u8>(&pool, mib(64)).unwrap();
        touch(&streams[0], &all);
        drop(all);
    });
}

/// Idle memory of one pool serves the other, even from the cache of the stream that requests it.
#[test]
fn another_pools_idle_memory_is_taken() {
    on_every_device_of(TOTAL, |on| {
        let [stream, other] = on.streams();
        for freeing in [&other, &stream] {
            let (first, second) = (keeping(on), keeping(on));
            let x = freeing.alloc::<u8>(&first, mib(40)).unwrap();
            touch(freeing, &x);
            freeing.free(x).unwrap();
            freeing.synchronize().unwrap();
            assert!(first.statistics().reserved_bytes >= 40 * MIB, "it is kept");
            let y = stream.alloc::<u8>(&second, mib(60)).unwrap();
            touch(&stream, &y);
            assert!(first.statistics().reserved_bytes <= 4 * MIB);
            drop(y);
            on.device.synchronize().unwrap();
        }
    });
}

/// A pool that was dropped while a kernel used its memory keeps it no longer than the kernel runs.
#[test]
fn a_dropped_pools_memory_is_taken() {
    on_every_device_of(TOTAL, |on| {
        if !on.can_hold() {
            return;
        }
        let [stream, other] = on.streams();
        let (first, second) = (keeping(on), keeping(on));
        let x = stream.alloc::<u8>(&first, mib(40)).unwrap();
        let busy = on.hold(&stream, x.write());
        drop((x, first));
        let report = refused(&other, &second, mib(40));
        assert_eq!(report.other_pools_bytes, 40 * MIB, "{report}");
        drop(busy);
        let event = stream.record().unwrap();
        if on.is_parallel {
            // No thread waits: the request that lacks memory looks for it.
            while !event.is_over().unwrap() {
                std::thread::yield_now();
            }
        } else {
            event.synchronize().unwrap();
        }
        other.alloc::<u8>(&second, mib(40)).unwrap();
    });
}

#[test]
fn another_pools_live_memory_is_not() {
    on_every_device_of(TOTAL, |on| {
        let stream = on.stream();
        let (first, second) = (keeping(on), keeping(on));
        let x = stream.alloc::<u8>(&first, mib(40)).unwrap();
        let report = refused(&stream, &second, mib(25));
        assert_eq!((report.pool.id, report.other_pools_bytes), (second.id(), 40 * MIB));
        assert!(report.to_string().contains("other pools have reserved 40.00 MiB"), "{report}");
        let y = stream.alloc::<u8>(&second, mib(24)).unwrap();
        touch(&stream, &x);
        touch(&stream, &y);
    });
}

/// Memory that a kernel still uses serves no request until that has completed, unless a stream may be made to wait.
#[test]
fn busy_memory_is_not_taken() {
    on_every_device_of(TOTAL, |on| {
        if !on.can_hold() {
            return;
        }
        let [stream, other] = on.streams();
        let pool = on.pool(PoolConfig::default().release_threshold(u64::MAX).reuse(reuse(true, true, false)));
        let x = stream.alloc::<u8>(&pool, mib(40)).unwrap();
        let busy = on.hold(&stream, x.write());
        stream.free(x).unwrap();
        let report = refused(&other, &pool, mib(40));
        assert!(report.exhausted.idle >= 40 * MIB, "idle, but in use: {report}");
        drop(busy);
        stream.synchronize().unwrap();
        other.alloc::<u8>(&pool, mib(40)).unwrap();
    });
}

/// Threads are never refused what fits: eight blocks of up to 3 MiB, each of which may block two more chunks of 2 MiB
/// for other use.
#[test]
fn threads_that_fit_are_served() {
    on_every_device_of(TOTAL, |on| {
        let (pool, start) = (keeping(on), Barrier::new(4));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (pool, stream, start) = (&pool, on.stream(), &start);
                scope.spawn(move || {
                    let mut random = Rng::with_seed(thread);
                    start.wait();
                    for _ in 0..600 {
                        let held: Vec<_> = (0..2)
                            .map(|_| stream.alloc::<u8>(pool, 1 + random.u64(..3 * MIB) as usize).unwrap())
                            .collect();
                        held.iter().for_each(|x| touch(&stream, x));
                        held.into_iter().for_each(|x| stream.free(x).unwrap());
                    }
                });
            }
        });
        on.device.synchronize().unwrap();
        pool.trim_to(0).unwrap();
        assert_eq!((pool.statistics().used_bytes, pool.statistics().reserved_bytes), (0, 0));
    });
}

/// Threads that together want more than there is are refused sometimes, and nothing is lost.
#[test]
fn threads_that_do_not_fit_are_refused_and_go_on() {
    on_every_device_of(TOTAL, |on| {
        let pools = [keeping(on), on.pool(PoolConfig::default())];
        let (refusals, served, start) = (AtomicU64::new(0), AtomicU64::new(0), Barrier::new(4));
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (pools, refusals, served, stream) = (&pools, &refusals, &served, on.stream());
                let start = &start;
                scope.spawn(move || {
                    let mut random = Rng::with_seed(thread.into());
                    let mut held: Vec<(Buffer<u8>, u8)> = Vec::new();
                    for round in 0..150 {
                        if round % 5 == 0 {
                            start.wait();
                        }
                        let pool = &pools[random.usize(..2)];
                        match stream.alloc::<u8>(pool, 1 + random.u64(..10 * MIB) as usize) {
                            Ok(x) => {
                                let mark = round as u8 ^ thread;
                                // One byte for each page is enough to detect whose memory it is.
                                let ends = move |x: &mut [u8]| x.iter_mut().step_by(4096).for_each(|x| *x = mark);
                                match on.runs_closures {
                                    true => stream.launch(x.write(), ends).unwrap(),
                                    false => stream.memset(x.write(), mark).unwrap(),
                                }
                                held.push((x, mark));
                                served.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(Error::OutOfMemory(_)) => {
                                refusals.fetch_add(1, Ordering::Relaxed);
                                held.drain(..held.len() / 2).for_each(|(x, _)| stream.free(x).unwrap());
                            }
                            Err(other) => panic!("{other}"),
                        }
                        if held.len() > 4 {
                            let (x, mark) = held.swap_remove(random.usize(..4));
                            let check = move |x: &[u8]| assert!(x.iter().step_by(4096).all(|x| *x == mark));
                            match on.runs_closures {
                                true => stream.launch(x.read(), check).unwrap(),
                                false => check(&stream.copy_to_host(x.read()).unwrap()),
                            }
                            stream.free(x).unwrap();
                        }
                    }
                });
            }
        });
        on.device.synchronize().unwrap();
        let (refusals, served) = (refusals.into_inner(), served.into_inner());
        assert!(refusals > 0 && served > 200, "{refusals} refused, {served} served");
        for pool in &pools {
            pool.trim_to(0).unwrap();
            assert_eq!((pool.statistics().used_bytes, pool.statistics().reserved_bytes), (0, 0));
        }
        on.stream().alloc::<u8>(&pools[0], mib(64)).unwrap();
    });
}
