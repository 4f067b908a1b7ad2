//! One program, from fresh devices to the last drop, watched.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::finding::{finding, lock};
use crate::kind::Kind;
use crate::maker;
use crate::op::{Op, Program};
use crate::settings::DeviceKind;
use crate::sharing::{self, World};
use crate::stage::Stage;
use crate::steps::Runs;

/// The counters of a program.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // The names say it.
pub struct Count {
    pub programs: u64,
    pub operations: u64,
    pub refusals: u64,
    pub words: u64,
    pub modelled: u64,
}

impl Count {
    /// Adds the counters of another program.
    pub fn add(&mut self, other: Count) {
        self.programs += other.programs;
        self.operations += other.operations;
        self.refusals += other.refusals;
        self.words += other.words;
        self.modelled += other.modelled;
    }
}

/// The progress of each thread of the current program, for the watchdog.
#[derive(Clone, Debug, Default)]
pub struct Watched(Arc<Mutex<Vec<Arc<AtomicU64>>>>);

impl Watched {
    /// Starts a thread that ends the process if nothing progresses for this time.
    pub fn watch(&self, hang: Duration) {
        let (watched, mut last, mut since) = (self.clone(), Vec::new(), Instant::now());
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(500));
                let now: Vec<u64> = lock(&watched.0).iter().map(|it| it.load(Ordering::Relaxed)).collect();
                if now.is_empty() || now != last {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() > hang {
                    let place = |at: &u64| match *at {
                        u64::MAX => "has ended".to_owned(),
                        ENDING => "drops what is left".to_owned(),
                        at => format!("is at its operation {at}"),
                    };
                    let places: Vec<String> = last.iter().map(place).collect();
                    finding(&format!("no progress for {hang:?}: {}", places.join(", ")));
                }
            }
        });
    }
}

const ENDING: u64 = u64::MAX - 1;

/// Runs a program on fresh devices.
pub fn run(program: &Program, kind: DeviceKind, log: Option<File>, watched: &Watched) -> Count {
    let Program { setting, seed, .. } = *program;
    let progress: Vec<Arc<AtomicU64>> = program.threads.iter().map(|_| Arc::default()).collect();
    *lock(&watched.0) = progress.clone();
    let numbers = 0..program.threads.len();
    let stage = match setting.has(Kind::Lend) {
        true => {
            let world = World::new(setting, kind, seed, log);
            let made = numbers.map(|number| sharing::Thread::new(&world, number));
            run_all(&world.stage, made.collect(), program, &progress);
            world.stage
        }
        false => {
            let stage = Stage::new(setting, kind, seed, log);
            // All threads are made before one begins, because a thread may drop a device.
            let made = numbers.map(|number| maker::Thread::new(&stage, number));
            run_all(&stage, made.collect(), program, &progress);
            stage
        }
    };
    let ground = Arc::clone(&stage.ground);
    progress.iter().for_each(|end| end.store(ENDING, Ordering::Relaxed));
    stage.end(seed.is_multiple_of(2));
    let figures = &ground.figures;
    lock(&watched.0).clear();
    Count {
        programs: 1,
        operations: figures.operations.load(Ordering::Relaxed),
        refusals: figures.refusals.load(Ordering::Relaxed),
        words: figures.words.load(Ordering::Relaxed),
        modelled: figures.modelled.load(Ordering::Relaxed),
    }
}

/// Runs all threads. A single thread runs on the calling thread.
fn run_all<T: Runs>(stage: &Stage, threads: Vec<T>, program: &Program, progress: &[Arc<AtomicU64>]) {
    let run = |(mut thread, (ops, progress)): (T, (&Vec<Op>, &Arc<AtomicU64>))| {
        for (at, op) in ops.iter().enumerate() {
            progress.store(at as u64 + 1, Ordering::Relaxed);
            stage.ground.figures.operations.fetch_add(1, Ordering::Relaxed);
            thread.step(*op);
        }
        progress.store(ENDING, Ordering::Relaxed);
        thread.finish(program.seed);
        progress.store(u64::MAX, Ordering::Relaxed);
    };
    let threads = threads.into_iter().zip(program.threads.iter().zip(progress));
    match threads.len() {
        1 => threads.for_each(run),
        _ => std::thread::scope(|scope| {
            for thread in threads {
                let run = &run;
                scope.spawn(move || run(thread));
            }
        }),
    }
}
