//! Host time of static placement: bound and first fit for a thousand buffers, and search on the bundled instances.
//!
//! Run with `cargo bench -p millpond-plan --bench plan`. Other files, with the capacity in their name, can be given
//! after `--` (paths are relative to this package's folder). Each figure is the median of some repeats. A search is run
//! once, because it is repeatable.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millpond_plan::{Budget, Buffer, Effort, Lifetime, Problem, lower_bound, solve};

const BUFFERS: usize = 1000;
const REPEATS: usize = 15;

/// A search is stopped after this time.
const PATIENCE: Duration = Duration::from_secs(60);

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn median(mut run: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..REPEATS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[REPEATS / 2]
}

fn quick() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let buffers = (0..BUFFERS).map(|_| Buffer::new((1 + random.below(64)) << random.below(16)).aligned(512)).collect();
    let line = (0..BUFFERS as i64).map(|i| Lifetime { lower: i, upper: i + 1 + i * 7 % 100 }).collect();
    let problem = Problem::from_lifetimes(buffers, line).expect("sound");
    let report = |what: &str, time: Duration| println!("{what:<58} {:>9.3} ms", time.as_secs_f64() * 1e3);
    report("quick plan", median(|| _ = black_box(solve(&problem, None, Effort::Quick))));
    report("lower bound", median(|| _ = black_box(lower_bound(&problem))));
    let outcome = solve(&problem, None, Effort::Quick);
    println!("  first fit needs {:.3} of the bound", outcome.plan.capacity as f64 / lower_bound(&problem) as f64);
}

/// Reads a table `id,lower,upper,size`, which is assumed to be right.
fn read(path: &Path) -> Problem {
    let table = std::fs::read_to_string(path).expect("the file is text");
    let rows = table.lines().skip(1).map(|line| {
        let cells: Vec<i64> = line.split(',').skip(1).map(|cell| cell.parse().expect("a number")).collect();
        (Buffer::new(cells[2] as u64), Lifetime { lower: cells[0], upper: cells[1] })
    });
    let (buffers, lives) = rows.unzip();
    Problem::from_lifetimes(buffers, lives).expect("sound")
}

fn search(path: &Path) {
    let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
    let Some(capacity) = name.rsplit('.').next().and_then(|capacity| capacity.parse().ok()) else {
        println!("{name}: no capacity in its name");
        return;
    };
    let problem = read(path);
    let start = Instant::now();
    let first_fit = solve(&problem, None, Effort::Quick).plan.capacity;
    let quick = start.elapsed();
    let start = Instant::now();
    let mut watch = |_: &_| start.elapsed() < PATIENCE;
    let outcome = solve(&problem, Some(capacity), Effort::Search(Budget::steps(u64::MAX).watched(&mut watch)));
    println!(
        "{name:<18} {:>4} buffers  first fit {first_fit:>9} in {:>6.2} ms  search {:>9} of {capacity}, \
         bound {}, in {:>6.2} s, {} steps",
        problem.buffers().len(),
        quick.as_secs_f64() * 1e3,
        outcome.plan.capacity,
        outcome.bound,
        start.elapsed().as_secs_f64(),
        outcome.steps
    );
}

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    quick();
    // Cargo adds options of its own.
    let named = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let mut files: Vec<PathBuf> = named.map(PathBuf::from).collect();
    if files.is_empty() {
        let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instances");
        let entries = std::fs::read_dir(bundled).expect("the instances are there").flatten();
        files =
            entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "csv")).collect();
        files.sort();
    }
    files.iter().for_each(|file| search(file));
}
