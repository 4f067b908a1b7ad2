//! One program, from fresh devices to the last drop, watched.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::finding::{finding, lock};
use crate::kind::Kind;
use crate::maker;
use crate::op::Program;
use crate::settings::DeviceKind;
use crate::stage::Stage;
use crate::thread::Thread;
use crate::world::World;

/// What a program did.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // The names say it.
pub struct Count {
    pub programs: u64,
    pub operations: u64,
    pub refusals: u64,
    pub words: u64,
}

impl Count {
    /// Adds another.
    pub fn add(&mut self, other: Count) {
        self.programs += other.programs;
        self.operations += other.operations;
        self.refusals += other.refusals;
        self.words += other.words;
    }
}

/// How far each thread of the program at hand is, for the watchdog.
#[derive(Clone, Debug, Default)]
pub struct Watched(Arc<Mutex<Vec<Arc<AtomicU64>>>>);

impl Watched {
    /// Ends the process where nothing moves for so long.
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
    if !program.setting.has(Kind::Lend) && std::env::var_os("MILLPOND_STRESS_WORLD").is_some_and(|it| it == "runner") {
        return run_by_runner(program, kind, log, watched);
    }
    let world = World::new(program.setting, kind, program.seed, log);
    let progress: Vec<Arc<AtomicU64>> = program.threads.iter().map(|_| Arc::default()).collect();
    let end = Arc::<AtomicU64>::default();
    *lock(&watched.0) = progress.iter().chain([&end]).cloned().collect();
    match &program.threads[..] {
        [ops] => Thread::new(&world, 0, progress[0].clone()).run(ops),
        all => std::thread::scope(|scope| {
            for (number, ops) in all.iter().enumerate() {
                let thread = Thread::new(&world, number, Arc::clone(&progress[number]));
                scope.spawn(move || thread.run(ops));
            }
        }),
    }
    let oracle = Arc::clone(&world.oracle);
    end.store(ENDING, Ordering::Relaxed);
    world.end(program.seed.is_multiple_of(2));
    let figures = &oracle.figures;
    lock(&watched.0).clear();
    Count {
        programs: 1,
        operations: figures.operations.load(Ordering::Relaxed),
        refusals: figures.refusals.load(Ordering::Relaxed),
        words: figures.words.load(Ordering::Relaxed),
    }
}

/// As `run`, by the runner of operations.
fn run_by_runner(program: &Program, kind: DeviceKind, log: Option<File>, watched: &Watched) -> Count {
    let stage = Stage::new(program.setting, kind, program.seed, log);
    let progress: Vec<Arc<AtomicU64>> = program.threads.iter().map(|_| Arc::default()).collect();
    let end = Arc::<AtomicU64>::default();
    *lock(&watched.0) = progress.iter().chain([&end]).cloned().collect();
    let seed = program.seed;
    // All are made before one begins: a thread may drop a device.
    let made = |number: usize| maker::Thread::new(&stage, number, Arc::clone(&progress[number]));
    let mut threads: Vec<_> = (0..progress.len()).map(made).zip(&program.threads).collect();
    match threads.pop() {
        Some((thread, ops)) if threads.is_empty() => thread.run(ops, seed),
        last => std::thread::scope(|scope| {
            for (thread, ops) in threads.into_iter().chain(last) {
                scope.spawn(move || thread.run(ops, seed));
            }
        }),
    }
    let ground = Arc::clone(&stage.ground);
    end.store(ENDING, Ordering::Relaxed);
    stage.end(program.seed.is_multiple_of(2));
    let figures = &ground.figures;
    lock(&watched.0).clear();
    Count {
        programs: 1,
        operations: figures.operations.load(Ordering::Relaxed),
        refusals: figures.refusals.load(Ordering::Relaxed),
        words: figures.words.load(Ordering::Relaxed),
    }
}
