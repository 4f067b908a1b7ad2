//! The cost of the host device's calls: `cargo bench -p millpond-driver --bench host`. Each line is the median of
//! several rounds, per call. Not a test: figures depend on the machine; they are recorded in commits that change them.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond_driver::{Driver, HostConfig, HostDriver, RawStream, Schedule, StreamFlags, Work};

const ROUNDS: usize = 9;
const MIB: u64 = 1 << 20;

fn main() {
    let device = host(Schedule::Parallel);
    submission(&device);
    events(&device);
    hand_over(&device);
    throughput(&device);
    memory(&device);
    seeded();
    without_memory();
}

fn host(schedule: Schedule) -> HostDriver {
    HostDriver::new(HostConfig { schedule, ..HostConfig::default() }).expect("a host device")
}

fn stream(device: &dyn Driver) -> RawStream {
    device.open_stream(StreamFlags::default()).expect("a stream")
}

fn run(device: &dyn Driver, stream: RawStream, task: impl FnOnce() + Send + 'static) {
    // SAFETY: the closures of these benches touch no device memory.
    unsafe { device.submit(stream, &mut Some(Work::Run(Box::new(task)))) }.expect("a submission");
}

fn finish(device: &dyn Driver, stream: RawStream) {
    let event = device.record(stream).expect("an event");
    device.block_on(event).expect("the work gets done");
}

/// Prints the median time of a call. `body` makes `calls` calls and returns the time that they took.
fn report(what: &str, calls: u32, mut body: impl FnMut() -> Duration) {
    let mut rounds: Vec<Duration> = (0..ROUNDS).map(|_| body()).collect();
    rounds.sort_unstable();
    println!("{what:<58} {:>10.1} ns", rounds[ROUNDS / 2].as_nanos() as f64 / f64::from(calls));
}

fn timed(body: impl FnOnce()) -> Duration {
    let start = Instant::now();
    body();
    start.elapsed()
}

fn submission(device: &HostDriver) {
    const CALLS: u32 = 100_000;
    let busy = stream(device);
    // The stream is held at its first item, so that only the submission is measured.
    report("submit a closure to a busy stream", CALLS, || {
        let gate = Arc::new(AtomicBool::new(false));
        let held = gate.clone();
        run(device, busy, move || {
            while !held.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let count = Arc::new(AtomicU64::new(0));
        let spent = timed(|| {
            for _ in 0..CALLS {
                let count = count.clone();
                run(device, busy, move || drop(count));
            }
        });
        gate.store(true, Ordering::Release);
        finish(device, busy);
        spent
    });
    report("run a closure that waits in a stream", CALLS, || {
        let gate = Arc::new(AtomicBool::new(false));
        let held = gate.clone();
        run(device, busy, move || {
            while !held.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        });
        let count = Arc::new(AtomicU64::new(0));
        for _ in 0..CALLS {
            let count = count.clone();
            run(device, busy, move || drop(count));
        }
        timed(|| {
            gate.store(true, Ordering::Release);
            finish(device, busy);
        })
    });
    report("submit to an idle stream, block until it ran", 5000, || {
        timed(|| {
            for _ in 0..5000 {
                run(device, busy, || ());
                finish(device, busy);
            }
        })
    });
}

fn events(device: &HostDriver) {
    const CALLS: u32 = 1_000_000;
    let stream = stream(device);
    run(device, stream, || ());
    finish(device, stream);
    let device: &dyn Driver = device;
    report("record", CALLS, || {
        timed(|| {
            for _ in 0..CALLS {
                black_box(device.record(black_box(stream)).expect("an event"));
            }
        })
    });
    let event = device.record(stream).expect("an event");
    report("is_over, of an event that is over", CALLS, || {
        timed(|| {
            for _ in 0..CALLS {
                black_box(device.is_over(black_box(event)).expect("an event"));
            }
        })
    });
    let gate = Arc::new(AtomicBool::new(false));
    let held = gate.clone();
    run(device, stream, move || {
        while !held.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let event = device.record(stream).expect("an event");
    report("is_over, of an event that is not", CALLS, || {
        timed(|| {
            for _ in 0..CALLS {
                black_box(device.is_over(black_box(event)).expect("an event"));
            }
        })
    });
    gate.store(true, Ordering::Release);
    finish(device, stream);
    let other = self::stream(device);
    report("wait for an event that is over", CALLS, || {
        timed(|| {
            for _ in 0..CALLS {
                device.wait(other, black_box(event)).expect("a wait");
            }
        })
    });
}

fn hand_over(device: &HostDriver) {
    const HANDS: u32 = 20_000;
    let streams = [stream(device), stream(device)];
    report("hand over between two streams, all submitted ahead", HANDS, || {
        let gate = Arc::new(AtomicBool::new(false));
        let held = gate.clone();
        run(device, streams[0], move || {
            while !held.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        });
        for hand in 0..HANDS as usize {
            let (here, there) = (streams[hand % 2], streams[(hand + 1) % 2]);
            run(device, here, || ());
            device.wait(there, device.record(here).expect("an event")).expect("a wait");
        }
        timed(|| {
            gate.store(true, Ordering::Release);
            finish(device, streams[0]);
            finish(device, streams[1]);
        })
    });
}

fn throughput(device: &HostDriver) {
    const CALLS: u32 = 100_000;
    for count in [1, 2, 4, 16] {
        let streams: Vec<RawStream> = (0..count).map(|_| stream(device)).collect();
        report(&format!("submit and run on {count} streams in turn"), CALLS, || {
            timed(|| {
                for call in 0..CALLS as usize {
                    run(device, streams[call % count], || ());
                }
                for &stream in &streams {
                    finish(device, stream);
                }
            })
        });
    }
}

fn memory(device: &HostDriver) {
    const CALLS: u32 = 1000;
    for (mib, touched) in [(2, false), (32, false), (512, false), (2, true), (32, true)] {
        let bytes = mib * MIB;
        let at = device.reserve(bytes).expect("addresses");
        let stream = stream(device);
        let calls = if touched { CALLS / 20 } else { CALLS };
        let what = if touched { "touched" } else { "untouched" };
        report(&format!("create, map, unmap, destroy {mib} MiB, {what}"), calls, || {
            timed(|| {
                for _ in 0..calls {
                    let chunk = device.create(bytes).expect("memory");
                    // SAFETY: nothing is mapped in the range.
                    unsafe { device.map(chunk, at, bytes) }.expect("a mapping");
                    if touched {
                        let fill = Work::Fill { at, bytes, value: 1 };
                        // SAFETY: just mapped.
                        unsafe { device.submit(stream, &mut Some(fill)) }.expect("a submission");
                        finish(device, stream);
                    }
                    // SAFETY: nothing uses the range any more.
                    unsafe { device.unmap(at, bytes) }.expect("a mapping");
                    device.destroy(chunk).expect("a chunk");
                }
            })
        });
    }
    let at = device.reserve(64 << 30).expect("addresses");
    for part in ["create", "map", "unmap", "destroy"] {
        report(&format!("{part}, one of 1000 chunks of 2 MiB side by side"), CALLS, || parts(device, at, part));
    }
}

/// Returns the time that one of the four steps takes for many chunks.
fn parts(device: &HostDriver, at: u64, part: &str) -> Duration {
    const COUNT: u64 = 1000;
    let mut spent = [Duration::ZERO; 4];
    let mut chunks = Vec::new();
    spent[0] = timed(|| chunks.extend((0..COUNT).map(|_| device.create(2 * MIB).expect("memory"))));
    let places: Vec<u64> = (0..COUNT).map(|place| at + place * 2 * MIB).collect();
    spent[1] = timed(|| {
        for (&chunk, &place) in chunks.iter().zip(&places) {
            // SAFETY: nothing is mapped in the range.
            unsafe { device.map(chunk, place, 2 * MIB) }.expect("a mapping");
        }
    });
    spent[2] = timed(|| {
        for &place in &places {
            // SAFETY: nothing uses the range.
            unsafe { device.unmap(place, 2 * MIB) }.expect("a mapping");
        }
    });
    spent[3] = timed(|| chunks.iter().for_each(|&chunk| device.destroy(chunk).expect("a chunk")));
    spent[["create", "map", "unmap", "destroy"].iter().position(|&name| name == part).expect("one of the four")]
}

fn seeded() {
    const CALLS: u32 = 100_000;
    let device = host(Schedule::Seeded(1));
    let streams: Vec<RawStream> = (0..4).map(|_| stream(&device)).collect();
    report("seeded: submit and run on 4 streams in turn", CALLS, || {
        timed(|| {
            for call in 0..CALLS as usize {
                run(&device, streams[call % 4], || ());
            }
            for &stream in &streams {
                finish(&device, stream);
            }
        })
    });
}

fn without_memory() {
    const CALLS: u32 = 1_000_000;
    let host = HostDriver::new(HostConfig { memory: false, ..HostConfig::default() }).expect("a host device");
    let device: &dyn Driver = &host;
    let (stream, at) = (stream(device), device.reserve(2 * MIB).expect("addresses"));
    report("without memory: record and is_over", CALLS, || {
        timed(|| {
            for _ in 0..CALLS {
                black_box(device.is_over(device.record(stream).expect("an event")).expect("an event"));
            }
        })
    });
    report("without memory: create, map, unmap, destroy", CALLS, || {
        timed(|| {
            for _ in 0..CALLS {
                let chunk = device.create(2 * MIB).expect("memory");
                // SAFETY: nothing touches it.
                unsafe { device.map(chunk, at, 2 * MIB) }.expect("a mapping");
                // SAFETY: as above.
                unsafe { device.unmap(at, 2 * MIB) }.expect("a mapping");
                device.destroy(chunk).expect("a chunk");
            }
        })
    });
}
