//! Runs programs in processes: one after the other until the time is up. A program that failed is run repeatedly with
//! fewer and fewer operations.
//!
//! A finding ends its process, and so may a crash. The parent sees only the status and the last program that began.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::op::Program;
use crate::program::Count;
use crate::random::{Random, mix};
use crate::settings::{DeviceKind, SETTINGS, Setting};

/// A worker without output for this time is stuck in a way that its watchdog cannot end.
const STUCK: Duration = Duration::from_secs(60);
/// The time for which a worker runs programs of one setting.
const BATCH: Duration = Duration::from_secs(2);
/// The longest time to shrink a program.
const SHRINK: Duration = Duration::from_secs(240);

/// The programs to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The time to run.
    pub time: Duration,
    /// The seed that determines the programs.
    pub seed: u64,
    /// The kinds of devices to use, if restricted.
    pub kinds: Option<Vec<DeviceKind>>,
    /// The only setting to use, if restricted.
    pub only: Option<&'static Setting>,
    /// The number of findings after which to stop.
    pub findings: usize,
}

/// A program, identified by its setting, device and seed.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// Its setting.
    pub setting: &'static Setting,
    /// Its kind of device.
    pub kind: DeviceKind,
    /// Its seed.
    pub seed: u64,
    /// The longest stop of its threads in microseconds; 0 for none.
    pub preempt: u64,
}

/// The failure of a process.
#[derive(Debug)]
struct Failure {
    /// The last program that it ran.
    seed: u64,
    /// Its message.
    said: String,
    is_hang: bool,
}

/// Runs programs until the time is up. Returns the number of findings.
pub fn run(plan: &Plan) -> usize {
    let (begun, mut random) = (Instant::now(), Random::new(plan.seed));
    let mut choices = Vec::new();
    for setting in SETTINGS.iter().filter(|it| plan.only.is_none_or(|only| only.name == it.name)) {
        let fits = |kind: &&DeviceKind| match &plan.kinds {
            Some(kinds) => kinds.contains(kind),
            None => **kind != DeviceKind::Cuda,
        };
        let kinds: Vec<DeviceKind> = setting.kinds.iter().filter(fits).copied().collect();
        if !kinds.is_empty() {
            (0..setting.share).for_each(|_| choices.push((setting, kinds.clone())));
        }
    }
    if choices.is_empty() {
        eprintln!("no setting runs there");
        return 1;
    }
    let (mut total, mut found, mut batch) = (Count::default(), 0, 0);
    while begun.elapsed() < plan.time && found < plan.findings {
        let (setting, kinds) = &choices[random.below(choices.len() as u64) as usize];
        let kind = kinds[random.below(kinds.len() as u64) as usize];
        batch += 1;
        let first = mix(plan.seed ^ mix(batch)) >> 16;
        let left = plan.time.saturating_sub(begun.elapsed()).min(BATCH);
        let may_stop = kind != DeviceKind::Cuda && random.chance(40);
        let preempt = if may_stop { [300, 1000, 3000][random.below(3) as usize] } else { 0 };
        let name = Name { setting, kind, seed: first, preempt };
        match worker(name, left) {
            Ok(count) => total.add(count),
            Err(failure) => {
                found += 1;
                report(Name { seed: failure.seed, ..name }, &failure);
            }
        }
    }
    let Count { programs, operations, refusals, words, modelled } = total;
    println!(
        "{operations} operations in {programs} programs, {modelled} of them modelled, {refusals} refused, \
         {} MiB verified, {} s, {found} findings",
        words >> 17,
        begun.elapsed().as_secs()
    );
    found
}

fn command(name: Name, what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a program knows where it is"));
    command.args([what, "--setting", name.setting.name, "--seed", &name.seed.to_string()]);
    command.args(["--kind", &format!("{:?}", name.kind), "--preempt", &name.preempt.to_string()]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs programs of a setting for some time, starting with a seed.
fn worker(name: Name, time: Duration) -> Result<Count, Failure> {
    let mut command = command(name, "worker");
    command.args(["--millis", &time.as_millis().to_string()]);
    let (status, out, err) = wait(command.spawn().expect("a process can be started"), time + STUCK);
    let seed = out.lines().rev().find_map(|line| line.strip_prefix("at ")?.parse().ok());
    let sum = out.lines().rev().find_map(|line| line.strip_prefix("sum "));
    match sum.filter(|_| status == "exit status: 0") {
        Some(sum) => {
            let numbers: Vec<u64> = sum.split(' ').filter_map(|it| it.parse().ok()).collect();
            let [programs, operations, refusals, words, modelled] = numbers[..] else {
                panic!("a worker said `{sum}`")
            };
            Ok(Count { programs, operations, refusals, words, modelled })
        }
        None => {
            let is_hang = err.contains("no progress") || err.contains("do not go") || status == "killed";
            Err(Failure { seed: seed.unwrap_or(name.seed), said: format!("{status}\n{err}"), is_hang })
        }
    }
}

/// Waits for a process, and kills it if it takes too long. Returns its status and its output.
fn wait(mut child: Child, time: Duration) -> (String, String, String) {
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let lines = pipe.into_iter().flat_map(|pipe| BufReader::new(pipe).lines().map_while(Result::ok));
            let lines: Vec<String> = lines.collect();
            lines.join("\n")
        })
    };
    let out = read(child.stdout.take().map(|it| Box::new(it) as _));
    let err = read(child.stderr.take().map(|it| Box::new(it) as _));
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.to_string(),
            Ok(None) if begun.elapsed() < time => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break "killed".to_owned();
            }
        }
    };
    (status, out.join().unwrap_or_default(), err.join().unwrap_or_default())
}

/// Returns the kind of a failure: its message without the numbers of the program.
fn signature(said: &str) -> String {
    let line = said.lines().find(|line| line.starts_with("finding: ")).or(said.lines().next()).unwrap_or_default();
    let is_name = |word: &&str| !word.contains(|c: char| c.is_ascii_digit());
    line.split([' ', ',', ';', ':', '.']).filter(is_name).take(9).collect::<Vec<_>>().join(" ")
}

/// A program that is being shrunk.
struct Trial {
    name: Name,
    /// The kind of failure to reproduce.
    signature: String,
    /// The number of runs without a failure after which it counts as fine.
    tries: u32,
    /// The seconds without progress that count as a hang.
    hang: u64,
    folder: PathBuf,
}

impl Trial {
    /// Runs the program with these operations. Returns the message if it fails.
    fn fails(&self, places: &[usize], tries: u32, log: Option<&Path>) -> Option<String> {
        let keep = self.folder.join("keep");
        let list: Vec<String> = places.iter().map(usize::to_string).collect();
        std::fs::write(&keep, list.join(" ")).ok()?;
        for _ in 0..tries {
            let mut command = command(self.name, "try");
            command.arg("--keep").arg(&keep).args(["--hang", &self.hang.to_string()]);
            if let Some(log) = log {
                command.arg("--log").arg(log);
            }
            let time = Duration::from_secs(self.hang * 3 + 30);
            let (status, _, err) = wait(command.spawn().expect("a process can be started"), time);
            let said = format!("{status}\n{err}");
            if status != "exit status: 0" && signature(&said) == self.signature {
                return Some(said);
            }
        }
        None
    }

    /// Removes operations while the program still fails and there is time.
    fn shrink(&self, all: Vec<usize>) -> Vec<usize> {
        let (mut kept, begun) = (all, Instant::now());
        let mut size = kept.len() / 2;
        while size > 0 && begun.elapsed() < SHRINK {
            let (mut at, before) = (0, kept.len());
            while at < kept.len() && begun.elapsed() < SHRINK {
                let fewer: Vec<usize> =
                    kept[..at].iter().chain(&kept[(at + size).min(kept.len())..]).copied().collect();
                match self.fails(&fewer, self.tries, None) {
                    Some(_) => kept = fewer,
                    None => at += size,
                }
            }
            if size == 1 && kept.len() == before {
                break;
            }
            size = (size / 2).max(1);
        }
        kept
    }
}

/// Reports a failure, shrinks the program and prints it.
fn report(name: Name, failure: &Failure) {
    let Name { setting, kind, seed, preempt } = name;
    println!("finding: setting {}, device {kind:?}, seed {seed}: {}", setting.name, failure.said);
    let folder = std::env::temp_dir().join(format!("millpond-stress-{}", std::process::id()));
    if std::fs::create_dir_all(&folder).is_err() {
        return;
    }
    let program = Program::random(setting, seed);
    let all: Vec<usize> = (0..program.len()).collect();
    let hang = if failure.is_hang { 3 } else { 20 };
    let mut trial = Trial { name, signature: signature(&failure.said), tries: 1, hang, folder };
    let runs = if setting.threads == 1 && preempt == 0 { 5 } else { 40 };
    let most = if failure.is_hang { 8 } else { runs };
    let failed = (0..most).filter(|_| trial.fails(&all, 1, None).is_some()).count();
    println!("run alone, it failed {failed} times of {most}");
    let again =
        format!("millpond-stress try --setting {} --kind {kind:?} --seed {seed} --preempt {preempt}", setting.name);
    if failed == 0 {
        println!("again: {again}");
    } else {
        trial.tries = (3 * most / failed as u32).clamp(1, 60);
        let kept = trial.shrink(all);
        let log = trial.folder.join("log");
        let mut said = None;
        for _ in 0..200 {
            let _ = File::create(&log);
            said = trial.fails(&kept, 1, Some(&log));
            if said.is_some() {
                break;
            }
        }
        let places: Vec<String> = kept.iter().map(usize::to_string).collect();
        println!("made small: {} operations: {}", kept.len(), said.unwrap_or_else(|| "it did not fail again".into()));
        println!("{}", std::fs::read_to_string(&log).unwrap_or_default());
        println!("again: {again} --places {}", places.join(","));
    }
    let _ = std::fs::remove_dir_all(&trial.folder);
}
