//! A server that runs for a year keeps nothing for each request: the heap, files and mappings of the process are the
//! same after many rounds of everything that a request may do.
//!
//! The allocator counts the bytes of the heap, so a few bytes per round show. `MILLPOND_STEADY_SECONDS` is the time
//! that each loop runs (without it each makes as many rounds as are needed to show a leak); `MILLPOND_STEADY_ONLY`
//! selects one loop. The figures are printed (`--nocapture`).

mod processes;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use millpond::config::{Reporter, Trace, Violations};
use millpond::graph::{Graph, GraphNode, Instantiate, MemAllocNode};
use millpond::pool::PeerAccess;
use millpond::{Buffer, Device, HostConfig, MIB, Pool, PoolConfig, Result, Stream};

/// An allocator that counts the allocated bytes.
struct Counting;

static BYTES: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: calls the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

/// The resources that a process may keep.
#[derive(Clone, Copy, Debug)]
struct Kept {
    heap: u64,
    files: usize,
    mappings: usize,
    threads: usize,
    resident_kib: usize,
}

impl Kept {
    fn now() -> Self {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
        let mappings = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let resident_kib = resident.trim().trim_end_matches(" kB").parse().unwrap();
        Self { heap: BYTES.load(Ordering::Relaxed), files, mappings, threads, resident_kib }
    }
}

/// The differences from work in flight (queues that threads fill, devices whose work ends, allocators' own mappings)
/// are smaller than this, however long a loop runs.
const NOISE: Kept = Kept { heap: 32 << 10, files: 32, mappings: 128, threads: 32, resident_kib: 8 << 10 };
/// For loops whose workers wait for each other or for other processes: hundreds of threads, and the chains of 4096
/// streams of other processes that are known through an exporter.
const NOISE_OF_WORKERS: Kept = Kept { heap: 6 << 20, files: 160, mappings: 1500, threads: 300, resident_kib: 16 << 10 };

fn seconds() -> Option<Duration> {
    let seconds = std::env::var("MILLPOND_STEADY_SECONDS").ok()?;
    Some(Duration::from_secs_f64(seconds.parse().expect("MILLPOND_STEADY_SECONDS: a number")))
}

/// Runs a loop. Returns a message if it kept something.
fn run(name: &str, rounds: usize, noise: Kept, mut round: impl FnMut() -> Result<()>) -> Option<String> {
    let mut go = |rounds: usize| (0..rounds).for_each(|_| round().unwrap_or_else(|error| panic!("{name}: {error:?}")));
    // Tables reach their full size: closed streams, numbers that may not be reused yet, names of dropped objects.
    go(2 * rounds);
    let before = Kept::now();
    let (began, mut done, mut samples) = (Instant::now(), 0, 0);
    while done == 0 || seconds().is_some_and(|seconds| began.elapsed() < seconds) {
        go(rounds);
        done += rounds;
        // Ten samples of a long run, to see if the growth continues.
        if seconds().is_some_and(|seconds| began.elapsed() > seconds * samples / 10) {
            samples += 1;
            println!("{name}: {done} rounds: {:?}", Kept::now());
        }
    }
    let each = began.elapsed() / done as u32;
    let after = Kept::now();
    let is_more = after.heap > before.heap + noise.heap
        || after.files > before.files + noise.files
        || after.mappings > before.mappings + noise.mappings
        || after.threads > before.threads + noise.threads
        || after.resident_kib > before.resident_kib + noise.resident_kib;
    let figures = format!("{name}: {done} rounds of {each:?}: from {before:?} to {after:?}");
    println!("{figures}");
    is_more.then_some(figures)
}

/// Waits until the kernels report that they ran. The host has not synchronised then.
fn heard_of(stream: &Stream, x: &Buffer<u8>) -> Result<()> {
    let (send, answer) = channel();
    stream.launch_once(x.read(), move |x| send.send(x[0]).unwrap_or(()))?;
    assert_eq!(answer.recv(), Ok(0));
    Ok(())
}

/// Makes a request on a stream of its own. The kernel itself reports its end to the host.
fn unsynchronised(stream: Stream, pool: &Pool) -> Result<()> {
    let x = stream.alloc_zeroed::<u8>(pool, 64)?;
    heard_of(&stream, &x)?;
    Ok(stream.free(x)?)
}

fn other_device() -> Result<Device> {
    Device::host(HostConfig::default().total_bytes(64 * MIB))
}

type Round = Box<dyn FnMut() -> Result<()>>;
/// Makes a loop over a device of its own, and a stream of that device.
type Make = fn(Device, Stream) -> Round;

/// The bytes of a request's memory.
const LEN: usize = 4096;
/// Enough rounds to exceed all tables with a bound, and to detect eight bytes per round.
const MANY: usize = 4_000;
/// The rounds of slow loops.
const FEW: usize = 300;

const LOOPS: &[(&str, usize, Make)] = &[
    ("streams", MANY, |d, _| Box::new(move || unsynchronised(d.stream()?, &d.default_pool()))),
    ("non-blocking streams", MANY, |d, _| {
        Box::new(move || unsynchronised(d.non_blocking_stream()?, &d.default_pool()))
    }),
    ("named streams", MANY, |d, _| {
        let mut count = 0;
        Box::new(move || {
            count += 1;
            unsynchronised(d.stream()?.named(format!("request {count:09}")), &d.default_pool())
        })
    }),
    ("streams beside the legacy default stream", MANY, |d, _| {
        Box::new(move || {
            unsynchronised(d.stream()?, &d.default_pool())?;
            d.legacy_stream().launch((), |()| ())
        })
    }),
    ("pools", MANY / 2, |d, _| Box::new(move || unsynchronised(d.stream()?, &d.pool(PoolConfig::default())?))),
    ("buffers that are dropped", 3 * MANY, |d, _| {
        Box::new(move || {
            let (stream, other) = (d.stream()?, d.stream()?);
            let x = stream.upload::<u8>(&d.default_pool(), &[0; 300])?;
            other.wait(&stream.record()?)?;
            heard_of(&other, &x)
        })
    }),
    ("threads' own streams", MANY / 2, |d, _| {
        Box::new(move || {
            let thread = || unsynchronised(d.per_thread_stream()?, &d.default_pool());
            std::thread::scope(|scope| scope.spawn(thread).join()).expect("no panic")
        })
    }),
    ("pinned memory that is dropped under its copy", MANY, |d, s| {
        Box::new(move || {
            let x = s.alloc_zeroed::<u8>(&d.default_pool(), 64)?;
            let mut h = d.pinned::<u8>(64)?;
            s.copy_to_pinned(x.read(), h.write())?;
            drop(h);
            heard_of(&s, &x)?;
            Ok(s.free(x)?)
        })
    }),
    ("pinned memory of many sizes", MANY, |d, s| {
        let mut last = 0;
        Box::new(move || {
            last = (last + 977) % 100_000;
            let x = s.alloc_zeroed::<u8>(&d.default_pool(), last + 1)?;
            let mut h = d.pinned::<u8>(last + 1)?;
            s.copy_to_pinned(x.read(), h.write())?;
            s.synchronize()?;
            assert_eq!(h.as_slice()?[last], 0);
            Ok(s.free(x)?)
        })
    }),
    ("events", MANY, |d, s| {
        let (x, t) = (s.alloc_zeroed::<u8>(&d.default_pool(), 64).expect("memory"), d.stream().expect("a stream"));
        Box::new(move || {
            let (first, last) = (s.record_timed()?, t.record()?);
            t.wait(&first)?;
            s.wait(&last)?;
            let _ = first.is_over()?;
            heard_of(&s, &x)
        })
    }),
    ("external events", MANY, |d, s| {
        let (x, t) = (s.alloc_zeroed::<u8>(&d.default_pool(), 64).expect("memory"), d.stream().expect("a stream"));
        Box::new(move || {
            let event = d.external_event();
            s.record_external(&event)?;
            t.wait_external(&event)?;
            heard_of(&t, &x)
        })
    }),
    ("host functions and scopes", MANY, |_, s| {
        Box::new(move || {
            // SAFETY: it submits a function that uses no memory.
            unsafe { s.enqueue((), |queue, ()| queue.host_function(|| ())) }?;
            s.scope(|scope| scope.launch((), |()| ()))
        })
    }),
    ("reports", MANY, |_, _| {
        let reporter = Violations::Report(Reporter::new(|_| ()));
        let d = Device::host(HostConfig::default().violations(reporter)).expect("a device");
        let (s, t) = (d.stream().expect("a stream"), d.stream().expect("a stream"));
        Box::new(move || {
            let x = s.alloc::<u8>(&d.default_pool(), 64)?;
            t.launch(x.write(), |x| x.fill(1))?;
            s.free(x)?;
            d.synchronize()
        })
    }),
    ("a trace", MANY, |_, _| {
        let path = std::env::temp_dir().join(format!("steady-{}.trace", std::process::id()));
        let d = Device::host(HostConfig::default().trace(Trace::create(&path).expect("a trace"))).expect("a device");
        std::fs::remove_file(path).expect("it is there");
        Box::new(move || unsynchronised(d.stream()?, &d.default_pool()))
    }),
    ("graphs that are built", MANY / 2, |d, s| {
        Box::new(move || {
            let (mut graph, x, kernel) = graph(&d)?;
            graph.add_free(&[kernel], x)?;
            let _ = graph.instantiate(Instantiate::default())?.launch(&s)?;
            s.synchronize()
        })
    }),
    ("graphs that are captured", MANY / 2, |d, s| {
        let side = d.stream().expect("a stream");
        Box::new(move || {
            let (graph, ()) = s.capture(|s| {
                let x = s.alloc::<u8>(&d.default_pool(), 4096)?;
                side.wait(&s.record()?)?;
                side.launch(x.write(), |x| x.fill(1))?;
                s.wait(&side.record()?)?;
                Ok(s.free(x)?)
            })?;
            let _ = graph.instantiate(Instantiate::default())?.launch(&s)?;
            s.synchronize()
        })
    }),
    ("graphs that record events", MANY / 2, |d, s| {
        let event = d.external_event();
        Box::new(move || {
            let mut graph = d.graph()?;
            graph.add_event_record(&[], &event)?;
            let _ = graph.instantiate(Instantiate::default())?.launch(&s)?;
            s.wait_external(&event)?;
            s.synchronize()
        })
    }),
    // This many frees of memory whose instances were dropped are remembered.
    ("memory that launches leave", 9_000, |d, s| {
        Box::new(move || {
            let (graph, x, _) = graph(&d)?;
            let x = graph.instantiate(Instantiate::default())?.launch(&s)?.take(x)?;
            s.free(x)?;
            s.synchronize()
        })
    }),
    ("memory that launches leave, dropped", 9_000, |d, s| {
        Box::new(move || {
            let (graph, x, _) = graph(&d)?;
            drop(graph.instantiate(Instantiate::default())?.launch(&s)?.take(x)?);
            s.synchronize()
        })
    }),
    ("tickets that nobody uses", MANY, processes::tickets),
    ("devices that meet", FEW, |d, _| {
        Box::new(move || {
            let other = other_device()?;
            let (s, t) = (other.stream()?, d.stream()?);
            t.wait(&s.record()?)?;
            other.legacy_stream().launch((), |()| ())?;
            other.synchronize()?;
            t.synchronize()
        })
    }),
    ("devices that meet, unsynchronised", FEW, |d, _| {
        Box::new(move || {
            let other = other_device()?;
            let (s, t) = (other.stream()?, d.stream()?);
            t.wait(&s.record()?)?;
            s.record()?;
            t.synchronize()
        })
    }),
    ("devices that lend", FEW, |d, _| Box::new(move || lend(&d, |_, _, t, _| t.synchronize()))),
    ("devices that lend, unsynchronised", 2 * FEW, |d, _| Box::new(move || lend(&d, |_, _, _, _| Ok(())))),
    ("devices that lend and revoke", FEW, |d, _| {
        Box::new(move || {
            lend(&d, |other, s, t, x| {
                t.synchronize()?;
                s.free(x)?;
                other.default_pool().revoke(&d)
            })
        })
    }),
    ("devices that borrow", FEW, |d, _| {
        Box::new(move || {
            let (other, pool) = (other_device()?, d.default_pool());
            let (s, t) = (d.stream()?, other.stream()?);
            pool.grant(&other, PeerAccess::ReadWrite)?;
            let x = s.alloc_zeroed::<u8>(&pool, 4096)?;
            t.wait(&s.record()?)?;
            t.launch(x.write(), |x| x[0] = 1)?;
            s.wait(&t.record()?)?;
            s.free(x)?;
            s.synchronize()?;
            pool.revoke(&other)
        })
    }),
];

/// Loops that keep workers of the device busy. Most of them use two processes.
const WORKERS: &[(&str, usize, Make)] = &[
    // The kept memory depends on the number of streams ever in flight at once, not on the number of rounds.
    ("streams in flight at once", FEW / 10, |d, gate| {
        Box::new(move || {
            let (open, gated) = channel::<()>();
            gate.launch_once((), move |()| gated.recv().unwrap_or_default())?;
            let begin = gate.record()?;
            for _ in 0..300 {
                let stream = d.stream()?;
                stream.wait(&begin)?;
                let x = stream.alloc::<u8>(&d.default_pool(), 512)?;
                stream.launch(x.write(), |x| x[0] = 1)?;
                stream.free(x)?;
            }
            drop(open);
            d.synchronize()
        })
    }),
    ("exports to a process", MANY / 2, |d, s| processes::exports(d, s, usize::MAX)),
    ("exports to processes that are killed", FEW, |d, s| processes::exports(d, s, 3)),
    ("exports of a pool", MANY / 2, |d, s| processes::exports_of_a_pool(d, s, usize::MAX)),
    ("exports of a pool to processes that are killed", FEW, |d, s| processes::exports_of_a_pool(d, s, 3)),
    ("imports of a process", MANY / 2, |d, s| processes::imports(d, s, usize::MAX)),
    ("imports of processes that are killed", FEW, |d, s| processes::imports(d, s, 3)),
];

/// Makes a graph that allocates memory and writes it. Returns the graph, the memory and the kernel.
fn graph(d: &Device) -> Result<(Graph, MemAllocNode<u8>, GraphNode)> {
    let mut graph = d.graph()?;
    let x = graph.add_alloc::<u8>(&[], 4096)?;
    let alloc = graph.node_of(x).expect("it has bytes");
    let kernel = graph.add_kernel(&[alloc], x.write(), |x| x.fill(1))?;
    Ok((graph, x, kernel))
}

/// Uses another device's memory on `d`, in order. Then everything of the other device is dropped.
fn lend(d: &Device, end: impl FnOnce(&Device, &Stream, &Stream, Buffer<u8>) -> Result<()>) -> Result<()> {
    let other = other_device()?;
    let (s, t) = (other.stream()?, d.stream()?);
    let x = s.alloc_zeroed::<u8>(&other.default_pool(), 4096)?;
    other.default_pool().grant(d, PeerAccess::ReadWrite)?;
    t.wait(&s.record()?)?;
    t.launch(x.write(), |x| x[0] = 1)?;
    end(&other, &s, &t, x)
}

#[test]
fn nothing_is_kept_for_each_request() {
    let only = std::env::var("MILLPOND_STEADY_ONLY").ok();
    let mut more = Vec::new();
    let all = LOOPS.iter().map(|it| (it, NOISE)).chain(WORKERS.iter().map(|it| (it, NOISE_OF_WORKERS)));
    for ((name, rounds, make), noise) in all.filter(|((name, ..), _)| only.as_deref().is_none_or(|only| only == *name))
    {
        let device = Device::host(HostConfig::default()).unwrap();
        let stream = device.stream().unwrap();
        more.extend(run(name, *rounds, noise, make(device, stream)));
    }
    assert!(more.is_empty(), "{}", more.join("\n"));
}
