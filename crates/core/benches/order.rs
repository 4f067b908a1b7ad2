//! Host time of one operation of the order engine, on race-free pipelines and on the worst case.
//!
//! Run with `cargo bench -p millpond-core --bench order`. The pipelines are groups of four streams that hand work on
//! by events, each kernel with three questions `a before b` (its accesses); in the worst case every stream waits for
//! random others, so that each join really changes many entries.

use std::hint::black_box;
use std::time::Instant;

use millpond_core::ids::{Point, StreamId};
use millpond_core::order::{Knows, Order, StreamKind};

const OPERATIONS: usize = 1_000_000;
const REPEATS: usize = 7;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

enum Step {
    Kernel(StreamId, [usize; 3]),
    Record(StreamId, u32),
    Wait(StreamId, u32),
}

/// A program of about half kernels, a quarter records and a quarter waits; `local` keeps waits within a group of four.
fn program(streams: u32, local: bool, records: u64, waits: u64) -> Vec<Step> {
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    (0..OPERATIONS)
        .map(|_| {
            let stream = random.next() as u32 % streams;
            let other = match local {
                true => (stream & !3) + (random.next() as u32 & 3).min(streams - 1 - (stream & !3)),
                false => random.next() as u32 % streams,
            };
            match random.next() % 100 {
                n if n < records => Step::Record(StreamId(stream + 1), stream),
                n if n < records + waits => Step::Wait(StreamId(stream + 1), other),
                _ => Step::Kernel(StreamId(stream + 1), [0, 1, 2].map(|_| (random.next() % 4096) as usize)),
            }
        })
        .collect()
}

fn run(streams: u32, program: &[Step]) -> f64 {
    let mut order = Order::new();
    for _ in 0..streams {
        order.create_stream(0, StreamKind::NonBlocking);
    }
    let nowhere = Point { slot: Default::default(), seq: 0 };
    let mut points = vec![nowhere; 4096];
    let mut at = 0;
    let start = Instant::now();
    for step in program {
        match step {
            Step::Kernel(stream, asked) => {
                let knows = order.knows(*stream).expect("the stream lives");
                for i in asked {
                    black_box(knows.covers(points[*i]));
                }
                points[at % 4096] = order.submit(0, *stream).expect("the stream lives");
                at += 1;
            }
            Step::Record(stream, event) => order.record(0, *stream, *event).expect("the stream lives"),
            Step::Wait(stream, event) => order.wait(0, *stream, *event).expect("the stream lives"),
        }
    }
    start.elapsed().as_nanos() as f64 / program.len() as f64
}

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    println!("{:<28} {:>8} {:>12} {:>12}", "workload", "streams", "min ns/op", "median");
    for (name, local, records, waits, counts) in [
        ("race-free pipelines", true, 26, 26, &[4u32, 64, 1024, 4096][..]),
        ("random waits between all", false, 20, 20, &[4, 32, 256][..]),
    ] {
        for streams in counts {
            let program = program(*streams, local, records, waits);
            let mut times: Vec<f64> = (0..REPEATS).map(|_| run(*streams, &program)).collect();
            times.sort_by(f64::total_cmp);
            println!("{name:<28} {streams:>8} {:>12.1} {:>12.1}", times[0], times[REPEATS / 2]);
        }
    }
}
