//! Host time of allocation and free through the library, with checks, compared with malloc of the system and mimalloc.
//!
//! Run with `cargo bench -p millpond --bench hot`. The host device has no memory here, so only Millpond is timed. Each
//! figure is the median of several rounds. In a pair of 64 KiB and in the rows of threads, mimalloc and Millpond take
//! turns within each round, so that their ratio compares measurements made side by side.
//!
//! `-- cold [TRACE]` times a recorded program's calls (plain lines: `a ID BYTES STREAM`, `f ID STREAM`; without a
//! trace, random replacement) as that program makes them: on a thread that owns no lock, and with all of the near
//! caches used for something else between two calls.

#[path = "common/loops.rs"]
mod loops;
#[path = "common/malloc.rs"]
mod malloc;
#[path = "common/numbers.rs"]
mod numbers;

use std::alloc::{GlobalAlloc, Layout, System};
use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, Instant};

use loops::{keeping, median, pair, timed};
use malloc::malloc_pair;
use millpond::{Buffer, Device, HostConfig, KIB, MIB, Pool, Stream};
use numbers::{Random, in_turns, rounds};

const ROUNDS: usize = 9;
/// The calls of a round of pairs.
const PAIRS: u32 = 500_000;

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let words: Vec<String> = std::env::args().skip_while(|word| word != "cold").skip(1).collect();
    if std::env::args().any(|arg| arg == "cold") {
        let events = words.iter().find(|word| !word.starts_with('-')).map_or_else(replaced, |path| read(path));
        return cold(&Device::host(HostConfig::default().memory(false)).expect("a device"), &events);
    }
    // `-- replacement` and `-- hand-over` run only that workload, for a profiler.
    for (name, workload) in [("replacement", replacement as fn(&Device)), ("hand-over", hand_over)] {
        if std::env::args().any(|arg| arg == name) {
            return workload(&Device::host(HostConfig::default().memory(false)).expect("a device"));
        }
    }
    let quick = std::env::args().any(|arg| arg == "quick");
    let device = Device::host(HostConfig::default().memory(false)).expect("a device");
    let pool = keeping(&device).expect("a pool");
    let stream = device.stream().expect("a stream");
    println!("{:<52} {:>10}", "work", "ns a pair");
    let line = |bytes: u64, ns: f64| println!("{:<52} {ns:>10.1}", format!("alloc + free, {bytes} B, one stream"));
    line(512, rounds(ROUNDS, PAIRS, || pair(&stream, &pool, 512)));
    let ours = |calls| timed(calls, || pair(&stream, &pool, 64 << 10)).expect("right pairs");
    let [ours, theirs, ratio] = in_turns(ROUNDS, PAIRS, ours, |calls| mallocs(calls, &mimalloc::MiMalloc));
    line(64 * KIB, ours);
    for bytes in [MIB, 256 * MIB] {
        line(bytes, rounds(ROUNDS, PAIRS, || pair(&stream, &pool, bytes as usize)));
    }
    println!("{:<52} {theirs:>10.1}", "malloc + free, 64 KiB, mimalloc");
    println!("{:<52} {ratio:>10.2}", "    64 KiB pair / mimalloc's, round by round");
    let system = (0..ROUNDS).map(|_| mallocs(PAIRS, &System).as_nanos() as f64 / f64::from(PAIRS));
    println!("{:<52} {:>10.1}", "malloc + free, 64 KiB, the system", median(system.collect()));
    launch(&device);
    if quick {
        return;
    }
    hand_over(&device);
    replacement(&device);
    for holes in [4_096, 16_384, 65_536] {
        separated_holes(&device, holes);
    }
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let [one, _] = threads(&device, &pool, 1);
    for count in if cores > 2 { vec![1, 2, cores] } else { vec![1, 2] } {
        let [ours, theirs] = threads(&device, &pool, count);
        println!("{:<52} {ours:>10.1}", format!("{count} threads, own streams, 64 KiB: M pairs/s"));
        println!("{:<52} {theirs:>10.1}", format!("{count} threads, 64 KiB, mimalloc: M pairs/s"));
        if count > 1 {
            println!("{:<52} {:>10.2}", format!("{count} threads against one, total"), ours / one);
        }
    }
}

/// Returns the time of `calls` `malloc`s of 64 KiB, each with its `free`.
fn mallocs(calls: u32, allocator: &impl GlobalAlloc) -> Duration {
    let layout = Layout::from_size_align(64 << 10, 512).expect("a layout");
    let call = || {
        malloc_pair(allocator, layout);
        Ok::<(), Infallible>(())
    };
    timed(calls, call).unwrap_or_else(|never| match never {})
}

/// An empty launch that declares two reads and a write: the cost of its checks and records.
fn launch(device: &Device) {
    let (pool, stream) = (keeping(device).expect("a pool"), device.non_blocking_stream().expect("a stream"));
    let [a, b, c]: [Buffer<u8>; 3] = [0; 3].map(|_| stream.alloc(&pool, 64 << 10).expect("memory"));
    let ns = rounds(ROUNDS, 100_000, || stream.launch((a.read(), b.read(), c.write()), |_| ()));
    println!("{:<52} {ns:>10.1}", "launch check, three accesses");
}

/// Allocates on one stream, passes the buffer on by an event, and frees it on another.
fn hand_over(device: &Device) {
    let pool = keeping(device).expect("a pool");
    let (left, right) = (device.stream().expect("a stream"), device.stream().expect("a stream"));
    let ns = rounds(ROUNDS, 50_000, || loops::hand_over(&left, &right, &pool, 64 << 10));
    println!("{:<52} {ns:>10.1}", "alloc, hand-over to another stream, free");
}

/// 1000 live allocations of random sizes, one of which is replaced at random.
fn replacement(device: &Device) {
    let pool = keeping(device).expect("a pool");
    let stream = device.stream().expect("a stream");
    let mut random = Random::default();
    let mut live: Vec<Buffer<u8>> = (0..1000).map(|_| stream.alloc(&pool, random.size()).expect("memory")).collect();
    let mut replace = || {
        let at = random.next() as usize % live.len();
        let fresh = random.size();
        let old = live.swap_remove(at);
        stream.free(old).expect("a right free");
        live.push(stream.alloc(&pool, fresh).expect("memory"));
        Ok::<(), Infallible>(())
    };
    // The first round is not counted.
    black_box(rounds(1, 50_000, &mut replace));
    let ns = rounds(ROUNDS, 50_000, replace);
    let statistics = pool.statistics();
    let ratio = statistics.reserved_high_bytes as f64 / statistics.used_high_bytes as f64;
    println!("{:<52} {ns:>10.1}", "random replacement, 1000 live, 512 B..16 MiB");
    println!("{:<52} {ratio:>10.3}", "    peak reserved / peak used");
}

/// One event of a program: an allocation if it has bytes, otherwise a free.
struct Event {
    id: usize,
    bytes: Option<usize>,
}

fn read(path: &str) -> Vec<Event> {
    let event = |line: &str| {
        let mut words = line.split(' ');
        let is_alloc = words.next() == Some("a");
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
        Event { id: number(), bytes: is_alloc.then(number) }
    };
    std::fs::read_to_string(path).expect("a trace").lines().map(event).collect()
}

/// Returns the random replacement as events.
fn replaced() -> Vec<Event> {
    let mut random = Random::default();
    let mut events: Vec<Event> = (0..1000).map(|id| Event { id, bytes: Some(random.size()) }).collect();
    for _ in 0..20_000 {
        let id = random.next() as usize % 1000;
        events.extend([Event { id, bytes: None }, Event { id, bytes: Some(random.size()) }]);
    }
    events
}

/// The number of last events that are timed, in the third pass. By then the pool has all the memory that it needs.
const TIMED: usize = 16_000;

fn cold(device: &Device, events: &[Event]) {
    let pool = keeping(device).expect("a pool");
    let stream = device.non_blocking_stream().expect("a stream");
    pass(&stream, &pool, events, None);
    // On another thread: from now on, the locks that the first one owns are taken by a swap.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut times = [Vec::new(), Vec::new()];
            pass(&stream, &pool, events, None);
            pass(&stream, &pool, events, Some(&mut times));
            for (work, mut times) in ["alloc", "free"].into_iter().zip(times) {
                times.sort_by(f64::total_cmp);
                let (count, median) = (times.len() - times.len() / 100, times[times.len() / 2]);
                let mean = times[..count].iter().sum::<f64>() / count as f64;
                println!("{:<52} {median:>10.1}", format!("{work} out of far caches, median"));
                println!("{:<52} {mean:>10.1}", "    mean of all but the slowest hundredth");
            }
        });
    });
}

/// Runs all events once. Before each timed event, all of the near caches are used for something else.
fn pass(stream: &Stream, pool: &Pool, events: &[Event], mut times: Option<&mut [Vec<f64>; 2]>) {
    let ids = events.iter().map(|event| event.id + 1).max().unwrap_or(0);
    let mut live: Vec<Option<Buffer<u8>>> = (0..ids).map(|_| None).collect();
    let junk = vec![1u8; 2 << 20];
    let clock = (0..1000).map(|_| Instant::now().elapsed()).min().expect("a look at the clock");
    for (number, &Event { id, bytes }) in events.iter().enumerate() {
        let mut times = times.as_deref_mut().filter(|_| number + TIMED >= events.len());
        if times.is_some() {
            black_box(junk.iter().step_by(64).map(|&byte| u64::from(byte)).sum::<u64>());
        }
        let start = Instant::now();
        match bytes {
            Some(bytes) => live[id] = Some(stream.alloc(pool, bytes).expect("memory")),
            None => stream.free(live[id].take().expect("a live allocation")).expect("a right free"),
        }
        let taken = start.elapsed().saturating_sub(clock);
        if let Some(times) = &mut times {
            times[usize::from(bytes.is_none())].push(taken.as_nanos() as f64);
        }
    }
    live.into_iter().flatten().for_each(|buffer| stream.free(buffer).expect("a right free"));
}

/// A 1 KiB pair among many free holes of 1 KiB that cannot be joined.
fn separated_holes(device: &Device, holes: usize) {
    let pool = keeping(device).expect("a pool");
    let stream = device.stream().expect("a stream");
    let mut live: Vec<Buffer<u8>> = (0..2 * holes).map(|_| stream.alloc(&pool, 1024).expect("memory")).collect();
    let mut odd = false;
    live.retain(|_| {
        odd = !odd;
        odd
    });
    let ns = rounds(ROUNDS, 100_000, || pair(&stream, &pool, 1024));
    println!("{:<52} {ns:>10.1}", format!("1 KiB pair among {holes} separated free holes"));
}

/// Returns millions of pairs per second of all threads together: Millpond's, each thread on a stream of its own, and
/// mimalloc's.
fn threads(device: &Device, pool: &Pool, count: usize) -> [f64; 2] {
    let ours = |calls| {
        loops::threads(count, calls, || {
            let stream = device.stream()?;
            Ok(move |calls| Ok(timed(calls, || pair(&stream, pool, 64 << 10))?))
        })
    };
    let theirs = |calls| loops::threads(count, calls, || Ok(|calls| Ok(mallocs(calls, &mimalloc::MiMalloc))));
    let ns = in_turns(5, 1_000_000, |calls| ours(calls).expect("pairs"), |calls| theirs(calls).expect("pairs"));
    [ns[0], ns[1]].map(|ns| count as f64 / ns * 1e3)
}
