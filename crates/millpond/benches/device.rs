//! Host time of allocation, free and graphs on a device, for a comparison with other allocators (`bench/gpu/peers.cpp`
//! runs the same work with the same random numbers): tab-separated lines of workload, peer, value and unit.
//!
//! `cargo bench -p millpond --bench device -- [host|none|cuda] [TRACE...]`, where a trace is plain lines
//! (`a ID BYTES STREAM`, `f ID STREAM`). Checks are on. Each figure is the median of several rounds.

#[path = "common/loops.rs"]
mod loops;
#[path = "common/malloc.rs"]
mod malloc;
#[path = "common/numbers.rs"]
mod numbers;

use std::alloc::Layout;
use std::convert::Infallible;
use std::hint::black_box;
use std::time::Instant;

use loops::{keeping, median, pair, timed};
use malloc::malloc_pair;

use millpond::config::Slack;
use millpond::graph::{GraphExec, Instantiate};
use millpond::{Buffer, Device, HostConfig, KIB, MIB, PoolConfig, Stream};
use numbers::{Random, in_turns};

const ROUNDS: usize = 7;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.iter().any(|word| word == "--test") {
        return;
    }
    let kind = words.first().map_or("none", String::as_str);
    let device = match kind {
        "host" => Device::host(HostConfig::default()),
        "none" => Device::host(HostConfig::default().memory(false)),
        "cuda" => Device::cuda(0),
        other => {
            eprintln!("device: '{other}' is not a device; there are host, none (the host without memory) and cuda");
            std::process::exit(2);
        }
    };
    let device = device.expect("a device");
    warm_up();
    // First: once two streams of a CUDA context have waited for each other, the nodes of its graphs take 0.2 us longer.
    graphs(&device);
    pairs(&device);
    replacement(&device);
    hand_over(&device);
    [4_096, 16_384, 65_536].into_iter().for_each(|count| holes(&device, count));
    words.iter().skip(1).for_each(|path| trace(&device, path));
    random_allocations(&device, Slack::Adaptive, "");
    random_allocations(&device, Slack::Pressure, ", pressure");
    multi_stream(&device);
    threads(&device);
}

fn graphs(device: &Device) {
    [1, 10, 100].into_iter().for_each(|count| chain(device, count));
    for (outputs, fills) in [(2, Fills::Alike), (16, Fills::Alike), (16, Fills::Unlike)] {
        producer(device, outputs, fills);
    }
}

fn row(work: impl std::fmt::Display, value: f64, unit: &str) {
    println!("{work}\tmillpond\t{value:.4}\t{unit}");
}

/// The first work is slower by a tenth, because an idle processor takes time to speed up. `peers.cpp` waits as long.
fn warm_up() {
    let start = Instant::now();
    while start.elapsed().as_millis() < 300 {
        std::hint::spin_loop();
    }
}

/// Returns the median over rounds of the time of one call, in nanoseconds.
fn rounds<E: std::fmt::Debug>(calls: u32, call: impl FnMut() -> Result<(), E>) -> f64 {
    numbers::rounds(ROUNDS, calls, call)
}

fn pairs(device: &Device) {
    let (pool, stream) = (keeping(device).expect("a pool"), device.non_blocking_stream().expect("a stream"));
    for (bytes, label) in [(512, "512 B"), (64 * KIB, "64 KiB"), (MIB, "1 MiB"), (256 * MIB, "256 MiB")] {
        timed(100, || pair(&stream, &pool, bytes as usize)).expect("right pairs");
        row(format!("pair {label}"), rounds(200_000, || pair(&stream, &pool, bytes as usize)), "ns");
    }
}

/// 1000 live allocations of random sizes, one of which is replaced at random.
fn replacement(device: &Device) {
    let (pool, stream) = (keeping(device).expect("a pool"), device.non_blocking_stream().expect("a stream"));
    let mut random = Random::default();
    let mut live: Vec<Buffer<u8>> = (0..1000).map(|_| stream.alloc(&pool, random.size()).expect("memory")).collect();
    let mut replace = || {
        let at = random.next() as usize % live.len();
        let fresh = random.size();
        stream.free(live.swap_remove(at)).expect("a right free");
        live.push(stream.alloc(&pool, fresh).expect("memory"));
        Ok::<(), Infallible>(())
    };
    timed(20_000, &mut replace).expect("replaced");
    row("replacement", rounds(20_000, replace), "ns");
    let statistics = pool.statistics();
    row("replacement ratio", statistics.reserved_high_bytes as f64 / statistics.used_high_bytes as f64, "ratio");
}

/// Allocates on one stream, passes the buffer on by an event, and frees it on another.
fn hand_over(device: &Device) {
    let pool = keeping(device).expect("a pool");
    let (left, right) =
        (device.non_blocking_stream().expect("a stream"), device.non_blocking_stream().expect("a stream"));
    let call = || loops::hand_over(&left, &right, &pool, 64 << 10);
    row("hand-over", rounds(5_000, call), "ns");
    device.synchronize().expect("a device");
    // With work in both streams, but no more than the device takes at once.
    let round = |_| {
        let start = Instant::now();
        for _ in 0..100 {
            let buffer: Buffer<u8> = left.alloc(&pool, 64 << 10).expect("memory");
            left.memset(buffer.write(), 0).expect("a fill");
            right.wait(&left.record().expect("an event")).expect("a wait");
            right.memset(buffer.write(), 1).expect("a fill");
            right.free(buffer).expect("a right free");
        }
        let ns = start.elapsed().as_nanos() as f64 / 100.0;
        device.synchronize().expect("a device");
        ns
    };
    row("hand-over of work", median((0..ROUNDS).map(round).collect()), "ns");
}

/// A 1 KiB pair among many free holes of 1 KiB that cannot be joined.
fn holes(device: &Device, holes: usize) {
    let (pool, stream) = (keeping(device).expect("a pool"), device.non_blocking_stream().expect("a stream"));
    let all = (0..2 * holes).map(|_| stream.alloc::<u8>(&pool, 1024).expect("memory"));
    let live: Vec<_> = all.collect::<Vec<_>>().into_iter().skip(1).step_by(2).collect();
    row(format!("holes {holes}"), rounds(100_000, || pair(&stream, &pool, 1024)), "ns");
    drop(live);
}

/// One event of a recorded program.
enum Event {
    Alloc { id: usize, bytes: usize, stream: usize },
    Free { id: usize, stream: usize },
}

fn read(path: &str) -> Vec<Event> {
    let text = std::fs::read_to_string(path).expect("a trace");
    let event = |line: &str| {
        let mut words = line.split(' ');
        let is_alloc = words.next() == Some("a");
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
        match is_alloc {
            true => Event::Alloc { id: number(), bytes: number(), stream: number() },
            false => Event::Free { id: number(), stream: number() },
        }
    };
    text.lines().map(event).collect()
}

/// A recorded program's allocations and frees, four times, timed with the driver's calls.
fn trace(device: &Device, path: &str) {
    let events = read(path);
    let (mut ids, mut streams) = (0, 0);
    for event in &events {
        let (Event::Alloc { id, stream, .. } | Event::Free { id, stream }) = event;
        (ids, streams) = (ids.max(id + 1), streams.max(stream + 1));
    }
    let pool = keeping(device).expect("a pool");
    let streams: Vec<_> = (0..streams).map(|_| device.non_blocking_stream().expect("a stream")).collect();
    let name = path.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or(path);
    let (mut times, mut peak) = (Vec::new(), 0);
    for pass in 0..4 {
        let mut live: Vec<Option<(Buffer<u8>, usize)>> = (0..ids).map(|_| None).collect();
        let mut used = 0;
        let start = Instant::now();
        for event in &events {
            match *event {
                Event::Alloc { id, bytes, stream } => {
                    live[id] = Some((streams[stream].alloc(&pool, bytes).expect("memory"), stream));
                    used += bytes;
                    peak = peak.max(used);
                }
                Event::Free { id, stream } => {
                    let (buffer, home) = live[id].take().expect("a live allocation");
                    used -= buffer.len();
                    if home != stream {
                        // The trace does not have the order of the two streams: an event takes its place.
                        streams[stream].wait(&streams[home].record().expect("an event")).expect("a wait");
                    }
                    streams[stream].free(buffer).expect("ordered");
                }
            }
        }
        times.push(start.elapsed().as_nanos() as f64 / events.len() as f64);
        device.synchronize().expect("a device");
        drop(live);
        device.synchronize().expect("a device");
        if pass == 0 {
            let ratio = pool.statistics().reserved_high_bytes as f64 / peak as f64;
            row(format!("trace {name} ratio first"), ratio, "ratio");
        }
    }
    row(format!("trace {name} first"), times.remove(0), "ns/event");
    row(format!("trace {name} later"), median(times), "ns/event");
    row(format!("trace {name} ratio"), pool.statistics().reserved_high_bytes as f64 / peak as f64, "ratio");
}

/// RMM's `random_allocations` with its parameters: 2 N steps over at most 16 000 MiB.
fn random_allocations(device: &Device, slack: Slack, label: &str) {
    let config = PoolConfig::default().release_threshold(u64::MAX).slack(slack);
    for count in [1_000, 10_000] {
        for most in [1, 64, 1024] {
            let (pool, stream) = (device.pool(config.clone()), device.non_blocking_stream().expect("a stream"));
            let pool = pool.expect("a pool");
            let (mut random, mut live) = (Random::default(), Vec::<Buffer<u8>>::new());
            let (mut bytes, mut made) = (0, 0);
            let start = Instant::now();
            for _ in 0..2 * count {
                let size = (1 + random.next() % most) * MIB;
                let (chance, index) = (random.next() % 100, random.next() % count);
                if live.is_empty() || (chance < 73 && made < count && bytes + size < 16_000 * MIB) {
                    live.push(stream.alloc(&pool, size as usize).expect("memory"));
                    (bytes, made) = (bytes + size, made + 1);
                } else {
                    let buffer = live.swap_remove(index as usize % live.len());
                    bytes -= buffer.len() as u64;
                    stream.free(buffer).expect("a right free");
                }
            }
            let ns = start.elapsed().as_nanos() as f64 / (2 * count) as f64;
            row(format!("random_allocations {count} x {most} MiB{label}"), ns, "ns/step");
        }
    }
}

/// RMM's `multi_stream_allocations`: four kernels over `count` streams, each with 8 B of its own, until the device has
/// finished. Instead of RMM's kernel that spins, there is a fill that takes some time.
fn multi_stream(device: &Device) {
    for count in [1, 2, 4] {
        let pool = keeping(device).expect("a pool");
        let busy = |_| {
            let stream = device.non_blocking_stream().expect("a stream");
            let buffer: Buffer<u8> = stream.alloc(&pool, 256 * MIB as usize).expect("memory");
            (stream, buffer)
        };
        let streams: Vec<_> = (0..count).map(busy).collect();
        let ns = rounds(10, || {
            for kernel in 0..4 {
                let (stream, busy) = &streams[kernel % count];
                let own: Buffer<u8> = stream.alloc(&pool, 8).expect("memory");
                stream.memset(own.write(), 0).expect("a fill");
                stream.memset(busy.write(), 0).expect("a fill");
                stream.free(own).expect("a right free");
            }
            device.synchronize()
        });
        row(format!("multi_stream_allocations {count}"), ns / 1e3, "us");
    }
}

/// Pairs of all threads together, each on its own stream. For comparison, the speed of threads that share nothing:
/// pairs of a malloc with a heap for each thread.
fn threads(device: &Device) {
    let pool = keeping(device).expect("a pool");
    let layout = Layout::from_size_align(64, 8).expect("a layout");
    for count in [1, 2, 4, 8, 16] {
        let ours = || {
            let (stream, pool) = (device.non_blocking_stream()?, &pool);
            Ok(move |calls| Ok(timed(calls, || pair(&stream, pool, 64 << 10))?))
        };
        let theirs = || {
            let call = || {
                malloc_pair(&mimalloc::MiMalloc, layout);
                Ok::<(), Infallible>(())
            };
            Ok(move |calls| Ok(timed(calls, call)?))
        };
        let ns = in_turns(
            3,
            1_000_000,
            |calls| loops::threads(count, calls, ours).expect("right pairs"),
            |calls| loops::threads(count, calls, theirs).expect("right pairs"),
        );
        let [ours, theirs] = [ns[0], ns[1]].map(|ns| count as f64 / ns * 1e3);
        row(format!("threads {count}"), ours, "Mpairs/s");
        println!("threads {count}\tmimalloc\t{theirs:.4}\tMpairs/s");
    }
}

fn launches(name: &str, exec: &GraphExec, stream: &Stream) {
    (0..20).for_each(|_| drop(exec.launch(stream).expect("a launch")));
    stream.synchronize().expect("a stream");
    let (mut host, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let start = Instant::now();
        let _ = black_box(exec.launch(stream).expect("a launch"));
        host.push(start.elapsed().as_nanos() as f64 / 1e3);
        stream.synchronize().expect("a stream");
        whole.push(start.elapsed().as_nanos() as f64 / 1e3);
    }
    row(format!("{name} launch"), median(host), "us");
    row(format!("{name} launch + sync"), median(whole), "us");
}

/// A chain of memsets, each with 4 MiB that are still live in the next.
fn chain(device: &Device, count: usize) {
    let stream = device.non_blocking_stream().expect("a stream");
    let build = || {
        let mut graph = device.graph().expect("a graph");
        let (mut last, mut before) = (Vec::new(), None);
        for _ in 0..count {
            let memory = graph.add_alloc::<u8>(&last, 4 << 20).expect("an allocation");
            let alloc = graph.node_of(memory).expect("its node");
            let fill = graph.add_memset(&[alloc], memory.write(), 0).expect("a memset");
            last = vec![fill];
            if let Some(before) = before.replace(memory) {
                last = vec![graph.add_free(&last, before).expect("a free")];
            }
        }
        graph.add_free(&last, before.expect("an allocation")).expect("a free");
        graph
    };
    let (mut times, mut firsts, mut wholes, mut exec) = (Vec::new(), Vec::new(), Vec::new(), None);
    for _ in 0..10 {
        let whole = Instant::now();
        let graph = build();
        let start = Instant::now();
        let instance = graph.instantiate(Instantiate::default()).expect("an instance");
        times.push(start.elapsed().as_nanos() as f64 / 1e3);
        // This includes what is postponed to the first launch.
        let _ = instance.launch(&stream).expect("a launch");
        firsts.push(start.elapsed().as_nanos() as f64 / 1e3);
        wholes.push(whole.elapsed().as_nanos() as f64 / 1e3);
        stream.synchronize().expect("a stream");
        exec = Some(instance);
    }
    row(format!("graph {count} instantiate"), median(times), "us");
    row(format!("graph {count} instantiate and first launch"), median(firsts), "us");
    // CUDA's nodes are made when they are added, ours at the first launch. This includes both.
    row(format!("graph {count} build to first launch"), median(wholes), "us");
    launches(&format!("graph {count}"), &exec.expect("an instance"), &stream);
}

/// The values of the fills: adjacent fills of one value are one node in our graphs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fills {
    Alike,
    Unlike,
}

/// A graph that leaves its outputs live and frees them at its next launch. They are small, because the memsets are not
/// measured.
fn producer(device: &Device, outputs: usize, fills: Fills) {
    let stream = device.non_blocking_stream().expect("a stream");
    let mut graph = device.graph().expect("a graph");
    let mut last = Vec::new();
    for output in 0..outputs {
        let value = if fills == Fills::Unlike { output as u8 } else { 0 };
        let memory = graph.add_alloc::<u8>(&last, 64 << 10).expect("an allocation");
        let alloc = graph.node_of(memory).expect("its node");
        last = vec![graph.add_memset(&[alloc], memory.write(), value).expect("a memset")];
    }
    let instantiate = Instantiate::default().auto_free_on_launch(true);
    let name = format!("auto-free {outputs}{}", if fills == Fills::Unlike { " unlike" } else { "" });
    launches(&name, &graph.instantiate(instantiate).expect("an instance"), &stream);
}
