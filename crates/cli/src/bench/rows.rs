//! What is measured: rows of figures, and who takes turns in each.

use std::time::{Duration, Instant};

use millpond::config::SimConfig;
use millpond::{Buffer, Device};
use millpond_driver::cuda::own_pool::OwnPool;
use serde::{Deserialize, Serialize};

use super::host_memory;
use super::loops::{Outcome, hand_over, keeping, pair, threads, timed};
use super::programs::{Judge, OPERATIONS, launches, mix};

/// Bytes of each allocation.
const BYTES: usize = 64 << 10;
/// Streams of the programs that the checker judges.
const STREAMS: u32 = 64;

/// Whose figure it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// Millpond.
    Millpond,
    /// mimalloc's `malloc` and `free`: host memory, of which no stream is known.
    Mimalloc,
    /// CUDA's own pool.
    Cuda,
}

impl Who {
    /// The name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Who::Millpond => "Millpond",
            Who::Mimalloc => "mimalloc",
            Who::Cuda => "CUDA",
        }
    }
}

/// What a figure is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Unit {
    /// Nanoseconds a call: less is better.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Millions of operations a second: more is better.
    #[serde(rename = "M operations/s")]
    Rate,
}

impl Unit {
    /// The figure of so many calls in some time.
    pub(super) fn figure(self, time: Duration, calls: u32) -> f64 {
        // A clock that did not move is as coarse as a nanosecond, at best.
        let nanoseconds = (time.as_nanos() as f64).max(1.0) / f64::from(calls);
        match self {
            Unit::Nanoseconds => nanoseconds,
            Unit::Rate => OPERATIONS as f64 / nanoseconds * 1e3,
        }
    }
}

/// Takes the time of so many calls.
pub(super) type Batch<'a> = Box<dyn FnMut(u32) -> Outcome<Duration> + 'a>;

/// One figure, of all that take turns for it.
pub(super) struct Row<'a> {
    pub(super) name: String,
    /// On which device.
    pub(super) device: &'static str,
    pub(super) unit: Unit,
    /// Millpond first.
    pub(super) contenders: Vec<(Who, Batch<'a>)>,
}

/// What is done with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    /// Allocated and freed on one stream.
    Pair,
    /// Allocated on one stream, freed on another after an event.
    HandOver,
    /// A pair on each of so many threads at the same time, each with a stream of its own.
    Threads(usize),
}

impl Work {
    /// All, with these numbers of threads.
    fn all(counts: &[usize]) -> Vec<Self> {
        [Work::Pair, Work::HandOver].into_iter().chain(counts.iter().map(|&count| Work::Threads(count))).collect()
    }

    fn name(self) -> String {
        match self {
            Work::Pair => "alloc + free, one stream".to_owned(),
            Work::HandOver => "alloc, event, free on another stream".to_owned(),
            Work::Threads(1) => "alloc + free, 1 thread".to_owned(),
            Work::Threads(count) => format!("alloc + free, {count} threads"),
        }
    }
}

/// What the host does, on a device that does nothing: beside mimalloc where that is built in.
pub(super) fn of_the_host(counts: &[usize]) -> Outcome<Vec<Row<'static>>> {
    let device = Device::sim(SimConfig::default())?;
    let mut rows = Vec::new();
    for work in Work::all(counts) {
        let mimalloc = by_mimalloc(work).map(|batch| (Who::Mimalloc, batch));
        let contenders = [(Who::Millpond, by_millpond(&device, work)?)].into_iter().chain(mimalloc).collect();
        rows.push(Row { name: work.name(), device: "sim", unit: Unit::Nanoseconds, contenders });
    }
    let name = "launch check, three accesses".to_owned();
    let contenders = vec![(Who::Millpond, launch(&device)?)];
    rows.push(Row { name, device: "sim", unit: Unit::Nanoseconds, contenders });
    for (what, program) in [("launches", launches as fn(u32) -> _), ("a mix", mix)] {
        let mut judge = Judge::new(program(STREAMS));
        let check: Batch = Box::new(move |calls| Ok(timed(calls, || judge.pass())?));
        let name = format!("check, {what} on {STREAMS} streams");
        rows.push(Row { name, device: "none", unit: Unit::Rate, contenders: vec![(Who::Millpond, check)] });
    }
    Ok(rows)
}

/// A CUDA device's memory, served by Millpond and by the device's own pool.
pub(super) fn of_cuda<'a>(device: &Device, own: &'a OwnPool, counts: &[usize]) -> Outcome<Vec<Row<'a>>> {
    let row = |work: Work| {
        let contenders = vec![(Who::Millpond, by_millpond(device, work)?), (Who::Cuda, by_cuda(own, work)?)];
        Ok(Row { name: work.name(), device: "cuda 0", unit: Unit::Nanoseconds, contenders })
    };
    Work::all(counts).into_iter().map(row).collect()
}

fn by_millpond(device: &Device, work: Work) -> Outcome<Batch<'static>> {
    let (pool, device) = (keeping(device)?, device.clone());
    Ok(match work {
        Work::Pair => {
            let stream = device.non_blocking_stream()?;
            Box::new(move |calls| Ok(timed(calls, || pair(&stream, &pool, BYTES))?))
        }
        Work::HandOver => {
            let (left, right) = (device.non_blocking_stream()?, device.non_blocking_stream()?);
            Box::new(move |calls| Ok(timed(calls, || hand_over(&left, &right, &pool, BYTES))?))
        }
        Work::Threads(count) => Box::new(move |calls| {
            threads(count, calls, || {
                let (stream, pool) = (device.non_blocking_stream()?, &pool);
                Ok(move |calls| Ok(timed(calls, || pair(&stream, pool, BYTES))?))
            })
        }),
    })
}

/// None where mimalloc is not built in, and of what host memory does not know.
fn by_mimalloc(work: Work) -> Option<Batch<'static>> {
    let pairs = host_memory::pairs_of_mimalloc(BYTES)?;
    match work {
        Work::Pair => Some(Box::new(move |calls| Ok(pairs(calls)))),
        Work::HandOver => None,
        Work::Threads(count) => {
            Some(Box::new(move |calls| threads(count, calls, || Ok(move |calls| Ok(pairs(calls))))))
        }
    }
}

fn by_cuda(own: &OwnPool, work: Work) -> Outcome<Batch<'_>> {
    fn timed_whole(act: impl FnOnce() -> millpond_driver::Result<()>) -> Outcome<Duration> {
        let start = Instant::now();
        act()?;
        Ok(start.elapsed())
    }
    Ok(match work {
        Work::Pair => {
            let stream = own.stream()?;
            Box::new(move |calls| timed_whole(|| stream.pairs(BYTES, calls)))
        }
        Work::HandOver => {
            let (left, right) = (own.stream()?, own.stream()?);
            Box::new(move |calls| timed_whole(|| left.hand_overs(&right, BYTES, calls)))
        }
        Work::Threads(count) => Box::new(move |calls| {
            threads(count, calls, || {
                let stream = own.stream()?;
                Ok(move |calls| timed_whole(|| stream.pairs(BYTES, calls)))
            })
        }),
    })
}

/// A launch of nothing that declares two reads and a write: what is checked and recorded for it.
fn launch(device: &Device) -> Outcome<Batch<'static>> {
    let (pool, stream) = (keeping(device)?, device.non_blocking_stream()?);
    let [a, b, c] = [0; 3].map(|_| stream.alloc::<u8>(&pool, BYTES));
    let (a, b, c): (Buffer<u8>, Buffer<u8>, Buffer<u8>) = (a?, b?, c?);
    Ok(Box::new(move |calls| Ok(timed(calls, || stream.launch((a.read(), b.read(), c.write()), |_| ()))?)))
}
