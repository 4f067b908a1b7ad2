//! Every reader of files on mutated seeds, for a given time: `.ci/fuzz SECONDS [SEED]`. No panic, no input that takes
//! long, and results are consistent. An ordinary test run takes one second.
//!
//! A failure prints its target, seed file and number, which reproduce it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::audit::audit;
use crate::mutation::mutated;
use fastrand::Rng;
use millpond_cli::{plan, recorded, view};
use millpond_core::check::{Checker, Settings};
use millpond_core::trace::ops::{Reader, Writer};
use millpond_litmus::Program;

/// Returns `true` if the bytes were read. Results are checked.
type Target = fn(&[u8]) -> bool;

/// Each reader, and the folder of its seeds.
const TARGETS: &[(&str, &str, Target)] = &[
    ("any", "seeds/any", |bytes| recordings(recorded::read("seed", bytes))),
    ("json_lines", "seeds/json_lines", |bytes| {
        recordings(recorded::json_lines::read("seed", bytes).map(|it| vec![it]))
    }),
    ("plain", "seeds/plain", |bytes| recordings(recorded::plain::read("seed", bytes).map(|it| vec![it]))),
    ("rmm", "seeds/rmm", |bytes| recordings(recorded::rmm::read("seed", bytes).map(|it| vec![it]))),
    ("snapshot", "seeds/snapshot", |bytes| recordings(recorded::snapshot::read("seed", bytes))),
    ("table", "instances", |bytes| plan::read(bytes).is_ok()),
    ("litmus", "litmus", litmus),
    ("trace", "litmus", trace),
];

/// The longest time for one input.
const LONGEST: Duration = Duration::from_secs(20);
/// The number of consecutive mutations of a seed.
const ROUND: u64 = 20;
/// Larger seeds are left out: the mutations of one would take all the time.
const SEED_MAX: u64 = 1 << 18;

fn recordings(read: Result<Vec<recorded::Recorded>, recorded::Refusal>) -> bool {
    match read {
        Ok(found) => {
            found.iter().for_each(|recorded| audit(&recorded.program));
            true
        }
        Err(refusal) => {
            let text = refusal.to_string();
            assert!(text.len() < 600, "a refusal that goes on and on: {text}");
            false
        }
    }
}

/// Reads, judges and draws a program.
fn litmus(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Ok(program) = Program::parse(&text) else { return false };
    program.differences(&program.check());
    view::litmus_page("seed", &text).is_ok() || program.ops().is_empty()
}

/// The bytes of a trace's header, and of the head of a frame after it.
const HEADER: usize = 12;
const FRAME_HEAD: usize = 16;

/// Reads the bytes as they are, and the content of their first frame with a right checksum. Results are judged.
fn trace(bytes: &[u8]) -> bool {
    let Some(ops) = bytes.get(HEADER + FRAME_HEAD..) else { return judged(bytes) };
    let mut frame = b"ops\n".to_vec();
    frame.extend((ops.len() as u32).to_le_bytes());
    frame.extend((ops.len() as u32).to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame);
    hasher.update(ops);
    let checksum = hasher.finalize().to_le_bytes();
    let sealed = [&Writer::new().seal(), &frame, checksum.as_slice(), ops].concat();
    judged(bytes) | judged(&sealed)
}

fn judged(bytes: &[u8]) -> bool {
    let (mut reader, mut checker, mut found) = (Reader::new(), Checker::new(Settings::RECORDED), Vec::new());
    let mut read = 0;
    for piece in bytes.chunks(4096) {
        reader.feed(piece);
        while let Ok(Some(op)) = reader.next_op() {
            checker.check(&op, reader.names(), &mut found);
            read += 1;
        }
    }
    checker.finish(reader.names(), &mut found);
    read > 0
}

/// Collects all files below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())).flatten() {
        match entry.path() {
            path if path.is_dir() => files(&path, found),
            path if fs::metadata(&path).is_ok_and(|it| it.len() <= SEED_MAX) => found.push(path),
            _ => {}
        }
    }
    found.sort();
}

/// Returns a litmus program as a trace.
fn traced(text: &[u8]) -> Option<Vec<u8>> {
    let program = Program::parse(std::str::from_utf8(text).ok()?).ok()?;
    let mut writer = Writer::new();
    program.ops().iter().for_each(|op| writer.push(op, program.names()));
    Some(writer.finish())
}

/// Returns the seeds of a target, with their names.
fn seeds(name: &str, folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(folder), &mut paths);
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap();
        let bytes = if name == "trace" { traced(&bytes)? } else { bytes };
        Some((path, bytes))
    };
    paths.into_iter().filter_map(read).collect()
}

/// The results for a target.
#[derive(Default)]
struct Tally {
    inputs: u64,
    read: u64,
    slowest: Duration,
    taken: Duration,
}

#[test]
fn mutated_files_are_read_or_refused() {
    let number = |name: &str| std::env::var(name).ok().map(|it| it.parse::<u64>().expect("a number"));
    let budget = Duration::from_secs(number("MILLPOND_FUZZ_SECONDS").unwrap_or(1));
    let seed = number("MILLPOND_FUZZ_SEED").unwrap_or(1);
    let began = Instant::now();
    let mut targets: Vec<_> =
        TARGETS.iter().map(|&(name, folder, run)| (name, run, seeds(name, folder), Tally::default())).collect();
    let mut round = 0;
    while round == 0 || began.elapsed() < budget {
        for (name, run, seeds, tally) in &mut targets {
            let (path, bytes) = &seeds[round as usize % seeds.len()];
            let start = Instant::now();
            for step in 0..ROUND {
                let dice_seed = seed << 40 ^ round << 8 ^ step;
                let input = mutated(bytes, &mut Rng::with_seed(dice_seed));
                let from = Instant::now();
                let outcome = std::panic::catch_unwind(|| run(&input));
                let took = from.elapsed();
                let which = || format!("{name}: {} of seed {dice_seed} ({})", path.display(), kept(name, &input));
                assert!(outcome.is_ok(), "a panic: {}", which());
                assert!(took < LONGEST, "{took:?}: {}", which());
                tally.inputs += 1;
                tally.read += u64::from(outcome.is_ok_and(|read| read));
                tally.slowest = tally.slowest.max(took);
            }
            tally.taken += start.elapsed();
        }
        round += 1;
    }
    for (name, _, seeds, tally) in &targets {
        let Tally { inputs, read, slowest, taken } = tally;
        println!(
            "{name:10} {:4} seeds {inputs:9} inputs {read:9} read {taken:9.1?} slowest {slowest:.1?}",
            seeds.len()
        );
        assert!(
            budget < Duration::from_secs(60) || (*read > 0 && read < inputs),
            "{name}: a reader that always agrees"
        );
    }
    let peak = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = peak.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().replace('\t', " ");
    println!("seed {seed}, {round} rounds, {:.0?}; {peak}", began.elapsed());
}

/// Saves an input that failed. Returns the path.
fn kept(name: &str, input: &[u8]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("failed.{name}"));
    match fs::write(&path, input) {
        Ok(()) => path.display().to_string(),
        Err(error) => error.to_string(),
    }
}
