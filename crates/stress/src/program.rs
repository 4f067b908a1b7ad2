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
    let Program { setting, seed, .. } = *program;
    let progress: Vec<Arc<AtomicU64>> = program.threads.iter().map(|_| Arc::default()).collect();
    let end = Arc::<AtomicU64>::default();
    *lock(&watched.0) = progress.iter().chain([&end]).cloned().collect();
    let numbered = (0..).zip(&progress).map(|(number, progress)| (number, Arc::clone(progress)));
    let stage = match setting.has(Kind::Lend) {
        true => {
            let world = World::new(setting, kind, seed, log);
            let made = numbered.map(|(number, progress)| sharing::Thread::new(&world, number, progress));
            run_all(made.zip(&program.threads).collect(), |thread, ops| thread.run(ops));
            world.stage
        }
        false => {
            let stage = Stage::new(setting, kind, seed, log);
            // All are made before one begins: a thread may drop a device.
            let made = numbered.map(|(number, progress)| maker::Thread::new(&stage, number, progress));
            run_all(made.zip(&program.threads).collect(), |thread, ops| thread.run(ops, seed));
            stage
        }
    };
    let ground = Arc::clone(&stage.ground);
    end.store(ENDING, Ordering::Relaxed);
    stage.end(seed.is_multiple_of(2));
    let figures = &ground.figures;
    lock(&watched.0).clear();
    Count {
        programs: 1,
        operations: figures.operations.load(Ordering::Relaxed),
        refusals: figures.refusals.load(Ordering::Relaxed),
        words: figures.words.load(Ordering::Relaxed),
    }
}

/// One alone runs on this thread.
fn run_all<T: Send>(mut threads: Vec<(T, &Vec<Op>)>, run: impl Fn(T, &[Op]) + Sync) {
    match threads.pop() {
        Some((thread, ops)) if threads.is_empty() => run(thread, ops),
        last => std::thread::scope(|scope| {
            for (thread, ops) in threads.into_iter().chain(last) {
                let run = &run;
                scope.spawn(move || run(thread, ops));
            }
        }),
    }
}
