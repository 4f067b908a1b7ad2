//! No byte is lost: random programs in order, whose kernels write patterns and verify them.
//!
//! Each buffer is passed around by several streams. Each pass verifies the last pattern and writes a new one. The pools
//! are small, so that memory is reused all the time, in every possible way. A kernel that finds a wrong byte loses the
//! device, which the program then sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use millpond::config::{ReusePolicy, Schedule, Slack};
use millpond::{Buffer, Device, Error, Event, HostConfig, KIB, MIB, Pool, PoolConfig, Stream};

use crate::common::{makes, reuse};

/// The pattern in a buffer, and the event after which the buffer may be used.
struct Passed {
    buffer: Buffer<u64>,
    pattern: u64,
    event: Event,
    home: usize,
}

/// A random program without order mistakes.
struct Program {
    random: Rng,
    streams: Vec<Stream>,
    pool: Pool,
    live: Vec<Passed>,
    /// The bytes verified by kernels.
    verified: Arc<AtomicU64>,
    next_pattern: u64,
    refused: u64,
}

fn value(pattern: u64, index: usize) -> u64 {
    (pattern ^ index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn write(x: &mut [u64], pattern: u64) {
    x.iter_mut().enumerate().for_each(|(i, x)| *x = value(pattern, i));
}

fn verify(x: &[u64], pattern: u64, verified: &AtomicU64) {
    let wrong = x.iter().enumerate().find(|(i, x)| **x != value(pattern, *i));
    assert!(wrong.is_none(), "pattern {pattern}: {wrong:?} of {}", x.len());
    verified.fetch_add(size_of_val(x) as u64, Ordering::Relaxed);
}

impl Program {
    fn new(device: &Device, seed: u64, config: PoolConfig) -> Program {
        Program {
            random: Rng::with_seed(seed),
            streams: (0..4).map(|_| device.stream().unwrap()).collect(),
            pool: device.pool(config).unwrap(),
            live: Vec::new(),
            verified: Arc::default(),
            next_pattern: seed << 32,
            refused: 0,
        }
    }

    fn run(&mut self, device: &Device, steps: usize) -> Result<(), Error> {
        for _ in 0..steps {
            let stream = self.random.usize(..self.streams.len());
            match self.random.u64(..100) {
                0..35 => self.make(stream)?,
                35..65 => self.pass(stream)?,
                65..85 => self.free(stream)?,
                85..92 => self.let_go(),
                92..94 => self.streams[stream].synchronize()?,
                94..96 => self.streams[stream] = device.stream()?,
                96..98 => self.shrink(stream)?,
                98 => drop(self.streams[stream].is_idle()?),
                _ => self.pool.trim_to(self.random.u64(..8) * MIB)?,
            }
        }
        while !self.live.is_empty() {
            self.pass(0)?;
            self.free(1)?;
        }
        device.synchronize()
    }

    fn make(&mut self, stream: usize) -> Result<(), Error> {
        let len = match self.random.u64(..10) {
            0..5 => self.random.u64(..600),
            5..9 => self.random.u64(..64 * KIB),
            _ => self.random.u64(..MIB / 4),
        };
        let at = &self.streams[stream];
        let buffer = match at.alloc::<u64>(&self.pool, 1 + len as usize) {
            Ok(buffer) => buffer,
            Err(Error::OutOfMemory(_)) => {
                self.refused += 1;
                self.live.truncate(self.live.len() / 2);
                return Ok(());
            }
            Err(other) => return Err(other),
        };
        self.next_pattern += 1;
        let pattern = self.next_pattern;
        at.launch(buffer.write(), move |x| write(x, pattern))?;
        let event = at.record()?;
        self.live.push(Passed { buffer, pattern, event, home: stream });
        Ok(())
    }

    fn take(&mut self) -> Option<Passed> {
        let count = self.live.len() as u64;
        (count > 0).then(|| self.live.swap_remove(self.random.u64(..count) as usize))
    }

    /// Makes a stream verify a buffer and write a new pattern.
    fn pass(&mut self, stream: usize) -> Result<(), Error> {
        let Some(mut passed) = self.take() else { return Ok(()) };
        let (old, verified) = (passed.pattern, Arc::clone(&self.verified));
        self.next_pattern += 1;
        let new = self.next_pattern;
        let at = &self.streams[stream];
        at.wait(&passed.event)?;
        at.launch(passed.buffer.write(), move |x| {
            verify(x, old, &verified);
            write(x, new);
        })?;
        (passed.pattern, passed.event, passed.home) = (new, at.record()?, stream);
        self.live.push(passed);
        Ok(())
    }

    /// Makes a stream verify a buffer and free it.
    fn free(&mut self, stream: usize) -> Result<(), Error> {
        let Some(Passed { buffer, pattern, event, .. }) = self.take() else { return Ok(()) };
        let verified = Arc::clone(&self.verified);
        let at = &self.streams[stream];
        at.wait(&event)?;
        at.launch(buffer.read(), move |x| verify(x, pattern, &verified))?;
        Ok(at.free(buffer)?)
    }

    /// Verifies a buffer on its own stream, and drops it while that may still run.
    fn let_go(&mut self) {
        if let Some(Passed { buffer, pattern, home, event }) = self.take() {
            let verified = Arc::clone(&self.verified);
            let at = &self.streams[home];
            at.wait(&event).unwrap();
            at.launch(buffer.read(), move |x| verify(x, pattern, &verified)).unwrap();
        }
    }

    /// Copies the first half of a buffer into a new one on the device, and through the host.
    fn shrink(&mut self, stream: usize) -> Result<(), Error> {
        let Some(Passed { buffer, pattern, event, .. }) = self.take() else { return Ok(()) };
        let (at, half) = (&self.streams[stream], buffer.len() / 2);
        let Ok(copy) = at.alloc::<u64>(&self.pool, half) else { return Ok(()) };
        at.wait(&event)?;
        let first = buffer.view().slice(..half)?;
        at.copy(first.read(), copy.write())?;
        let on_host = at.copy_to_host(copy.read())?;
        verify(&on_host, pattern, &self.verified);
        at.memset(copy.write(), 0xAA)?;
        at.copy_from_host(copy.write(), &on_host)?;
        let event = at.record()?;
        self.live.push(Passed { buffer: copy, pattern, event, home: stream });
        Ok(())
    }
}

fn check(schedule: Schedule, seed: u64, steps: usize, config: PoolConfig) {
    eprintln!("seed {seed}, {schedule:?}, {config:?}");
    let device = Device::host(HostConfig::default().schedule(schedule)).unwrap();
    let mut program = Program::new(&device, seed, config);
    program.run(&device, steps).unwrap();
    assert!(program.verified.load(Ordering::Relaxed) > MIB, "the program did something");
    let (pool, streams) = (program.pool.clone(), std::mem::take(&mut program.streams));
    drop(program);
    device.synchronize().unwrap();
    pool.trim_to(0).unwrap();
    assert_eq!((pool.statistics().used_bytes, pool.statistics().reserved_bytes), (0, 0));
    drop(streams);
}

/// Returns the settings that change how memory is found.
fn config(number: u64) -> PoolConfig {
    let bit = |bit: u64| number >> bit & 1 != 0;
    PoolConfig::default()
        .max_bytes(24 * MIB)
        .release_threshold(if bit(0) { u64::MAX } else { 0 })
        .reuse(if bit(1) { ReusePolicy::default() } else { reuse(bit(2), bit(3), bit(4)) })
        .slack(if bit(5) { Slack::Fixed(0.0) } else { Slack::Adaptive })
        .chunk_bytes_max(if bit(6) { 2 * MIB } else { 512 * MIB })
        .guard(number % 7 == 3)
        .shareable(number % 5 == 1)
}

fn is_wanted() -> bool {
    let wanted = makes().contains(&crate::common::Make::Parallel);
    if !wanted {
        eprintln!("skipped: only a host device has memory to look at");
    }
    wanted
}

#[test]
fn no_byte_is_lost_in_parallel() {
    for seed in 0..if is_wanted() { 48 } else { 0 } {
        check(Schedule::Parallel, seed, 250, config(seed * 37));
    }
}

#[test]
fn no_byte_is_lost_under_any_seed() {
    for seed in 0..if is_wanted() { 96 } else { 0 } {
        check(Schedule::Seeded(seed), seed, 150, config(seed * 53));
    }
}

/// Everything is dropped in unusual orders, by other threads, while kernels run.
#[test]
fn drops_from_other_threads_lose_nothing() {
    for seed in 0..if is_wanted() { 24 } else { 0 } {
        eprintln!("seed {seed}");
        let mut random = Rng::with_seed(seed);
        let device = Device::host(HostConfig::default()).unwrap();
        let pool = device.pool(config(seed)).unwrap();
        let streams: Vec<Stream> = (0..3).map(|_| device.stream().unwrap()).collect();
        let verified = Arc::new(AtomicU64::new(0));
        let mut things: Vec<Box<dyn Send>> = Vec::new();
        for pattern in 0..40 {
            let stream = streams[random.usize(..3)].clone();
            let Ok(x) = stream.alloc::<u64>(&pool, 1 + random.usize(..60_000)) else { continue };
            stream.launch(x.write(), move |x| write(x, pattern)).unwrap();
            let verified = Arc::clone(&verified);
            stream.launch(x.read(), move |x| verify(x, pattern, &verified)).unwrap();
            things.push(Box::new(x));
            things.push(Box::new(stream.record().unwrap()));
            things.push(Box::new(stream));
        }
        let late = device.clone();
        things.extend([Box::new(pool) as Box<dyn Send>, Box::new(device)]);
        things.extend(streams.into_iter().map(|stream| Box::new(stream) as Box<dyn Send>));
        let mut parts: [Vec<Box<dyn Send>>; 3] = Default::default();
        while !things.is_empty() {
            let thing = things.swap_remove(random.usize(..things.len()));
            parts[random.usize(..3)].push(thing);
        }
        std::thread::scope(|scope| {
            for part in parts {
                scope.spawn(move || part.into_iter().for_each(drop));
            }
        });
        late.synchronize().unwrap();
        assert!(verified.load(Ordering::Relaxed) > 0);
    }
}

/// Another stream gets freed memory repeatedly, by an event, while kernels run.
#[test]
fn reuse_by_events_keeps_data_apart() {
    if !is_wanted() {
        return;
    }
    for schedule in [Schedule::Parallel, Schedule::Seeded(5), Schedule::Seeded(6)] {
        let device = Device::host(HostConfig::default().schedule(schedule)).unwrap();
        // The pool has room for two buffers, so the third always reuses memory.
        let pool = device.pool(PoolConfig::default().max_bytes(4 * MIB).reuse(reuse(true, false, false)));
        let (pool, verified) = (pool.unwrap(), Arc::new(AtomicU64::new(0)));
        let streams: Vec<Stream> = (0..4).map(|_| device.stream().unwrap()).collect();
        let mut addresses = std::collections::BTreeSet::new();
        for round in 0..200u64 {
            let (at, next) = (&streams[round as usize % 4], &streams[(round as usize + 1) % 4]);
            let x = at.alloc::<u64>(&pool, 200_000).unwrap();
            addresses.insert(x.address());
            at.launch(x.write(), move |x| write(x, round)).unwrap();
            let seen = Arc::clone(&verified);
            at.launch(x.read(), move |x| verify(x, round, &seen)).unwrap();
            at.free(x).unwrap();
            next.wait(&at.record().unwrap()).unwrap();
        }
        device.synchronize().unwrap();
        assert_eq!(verified.load(Ordering::Relaxed), 200 * 200_000 * 8);
        assert!(addresses.len() < 10, "memory was reused: {addresses:?}");
    }
}
