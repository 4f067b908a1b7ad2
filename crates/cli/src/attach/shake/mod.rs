//! `millpond shake -- PROGRAM`: runs a program with delays put into its streams, and looks whether its result changes.
//!
//! | file | what it does |
//! |---|---|
//! | `plan` | the delays of a seed |
//! | `narrow` | the few delays that make a run fail |
//! | `trial` | one run of the program |
//! | `edge` | the missing edge at a delayed operation |
//!
//! The program is run without delays first. That run says which operations there are and how long it takes; and its
//! result is the right one. Everything after it follows from the seed and these: a seed has the same delays each time.

mod edge;
mod narrow;
mod plan;
mod trial;

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::edge::Edges;
use self::narrow::{Runs, fewest, last};
use self::plan::{Delay, Points, Which, choose, sum};
use self::trial::{Broken, Kind, Program, Trial};
use super::{counted, end_by, library, target};
use crate::args::Shake;
use crate::output::is_same;
use crate::refusal::{cause, shown_path};
use crate::{Status, Stop};

/// The most runs that narrow a failure.
const RUNS_MAX: usize = 40;
/// The most operations that are tried because the checker names them.
const SUSPECTS_MAX: usize = 8;
/// The time that such an operation is late, in nanoseconds.
const ALONE: u64 = 40_000_000;
/// The least time that the delays of a run may take together, in nanoseconds: less shows nothing.
const TOTAL_LEAST: u64 = 128_000_000;
/// A pass says no more than this.
const PROVES: &str = "a pass proves nothing: it means that these delays changed nothing";

/// Runs a program with delays.
///
/// # Errors
/// Fails if the program cannot be run this way or fails without delays, or if `err` cannot be written.
pub(crate) fn run(shake: &Shake, err: &mut dyn Write) -> Result<Status, Stop> {
    match tried(shake, err) {
        Ok(status) => Ok(status),
        Err(Over::Said(text)) => Err(Stop::bad_input(text)),
        Err(Over::Output(error)) => Err(Stop::Output(error)),
        Err(Over::Signal(signal)) => {
            err.flush()?;
            std::process::exit(end_by(signal))
        }
    }
}

/// Why the command ends early.
#[derive(Debug)]
enum Over {
    Said(String),
    Signal(i32),
    Output(io::Error),
}

impl From<Broken> for Over {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Signal(signal) => Over::Signal(signal),
            Broken::Refused(text) => Over::Said(text),
        }
    }
}

impl From<io::Error> for Over {
    fn from(error: io::Error) -> Self {
        Over::Output(error)
    }
}

/// A file that the program writes.
struct Compared {
    path: PathBuf,
    bytes: Vec<u8>,
    permissions: Permissions,
}

impl Compared {
    /// Reads a file. Behind a link is the file that each run writes anew.
    fn read(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        Ok(Self { bytes: fs::read(&path)?, permissions: fs::metadata(&path)?.permissions(), path })
    }
}

/// What the undelayed run has given.
struct Right {
    time: Duration,
    output: Vec<u8>,
    /// The files that are compared, as the undelayed run wrote them.
    files: Vec<Compared>,
    points: Points,
}

impl Drop for Right {
    fn drop(&mut self) {
        for Compared { path, bytes, permissions } in &self.files {
            // The undelayed run's result is left, as without this command.
            let _ = fs::write(path, bytes).and_then(|()| fs::set_permissions(path, permissions.clone()));
        }
    }
}

fn tried(shake: &Shake, err: &mut dyn Write) -> Result<Status, Over> {
    let [name, args @ ..] = &shake.program[..] else { return Err(Over::Said("no program is named".to_owned())) };
    let program = Program {
        path: target::find(name).map_err(Over::Said)?,
        name,
        args,
        library: library::library().map_err(Over::Said)?,
        graphs: shake.graphs,
        compare: shake.compare,
    };
    if std::env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|value| value != "0" && !value.is_empty()) {
        writeln!(err, "millpond: shake: CUDA_LAUNCH_BLOCKING is left out: with it no stream runs ahead of another")?;
    }
    let right = undelayed(shake, &program, err)?;
    let only_streams = shake.only_streams.iter().copied().collect();
    let which = Which { only_copies: shake.only_copies, only_streams, graphs: shake.graphs };
    let count = right.points.count(&which);
    if count == 0 {
        return Err(Over::Said(nothing_to_delay(&right.points)));
    }
    let total = total_of(shake, right.time);
    let shaken = Shaken { shake, program: &program, right: &right, which: &which, total };
    if !shake.at.is_empty() {
        let delay = |at: &crate::args::At| Delay { stream: at.stream, number: at.number, nanoseconds: at.time.0 };
        let delays: Vec<Delay> = shake.at.iter().map(delay).collect();
        return shaken.by_hand(&delays, err);
    }
    shaken.by_seeds(err)
}

/// Returns why no operation can be delayed.
fn nothing_to_delay(points: &Points) -> String {
    match points.is_empty() {
        true => "the program put no work into a stream: there is nothing to delay".to_owned(),
        false => format!(
            "no operation of the program may be delayed\n  help: it has {}; --only-copies and --only-streams leave \
             operations out, and those of captures are delayed with --graphs only",
            points.lines().join("; ")
        ),
    }
}

/// Returns the time that the delays of a run may take together. It is one of few, because undelayed runs differ by a
/// little and seeds should not.
fn total_of(shake: &Shake, plain: Duration) -> u64 {
    if let Some(total) = shake.total {
        return total.0;
    }
    let wanted = (plain.as_nanos() as f64 * shake.budget / 100.0) as u64;
    let steps = wanted.max(TOTAL_LEAST) / TOTAL_LEAST;
    TOTAL_LEAST << steps.ilog2()
}

/// Runs the program without delays. It must succeed; if its output is compared, it is run again to see whether the
/// output is always the same.
fn undelayed(shake: &Shake, program: &Program<'_>, err: &mut dyn Write) -> Result<Right, Over> {
    if let Some(path) = shake.compare_file.iter().find(|path| is_same(path, &program.path)) {
        return Err(Over::Said(format!("{}: is the program; name a file that it writes", shown_path(path))));
    }
    let plain = program.run(Kind::Plain, &[], None)?;
    if let Some(failure) = plain.failure(None) {
        return Err(Over::Said(format!("the program fails without delays: {failure}")));
    }
    let read = |path: &PathBuf| {
        Compared::read(path).map_err(|error| {
            Over::Said(format!("{}: cannot be read after the undelayed run: {}", shown_path(path), cause(&error)))
        })
    };
    let files = shake.compare_file.iter().map(read).collect::<Result<_, _>>()?;
    let right = Right { time: plain.time, output: plain.output, files, points: plain.points };
    writeln!(err, "millpond: shake: the program succeeds in {:.2} s without delays", right.time.as_secs_f64())?;
    for line in right.points.lines() {
        writeln!(err, "millpond: shake:   {line}")?;
    }
    err.flush()?;
    if shake.compare || !right.files.is_empty() {
        right.prepare();
        let again = program.run(Kind::Delayed, &[], None)?;
        if let Some(difference) = again.failure(None).or_else(|| right.difference(&again)) {
            return Err(Over::Said(format!(
                "two undelayed runs differ: {difference}\n  help: compare what is the same in each run: without times, \
                 addresses and random numbers"
            )));
        }
    }
    Ok(right)
}

impl Right {
    /// Removes the files that are compared, so that a run that does not write them is seen.
    fn prepare(&self) {
        for file in &self.files {
            let _ = fs::remove_file(&file.path);
        }
    }

    /// Returns what differs in the result of another run.
    fn difference(&self, other: &Trial) -> Option<String> {
        let file = self.files.iter().find_map(|Compared { path, bytes, .. }| {
            let name = shown_path(path);
            match fs::read(path) {
                Ok(other) if other == *bytes => None,
                Ok(other) => Some(format!("{name} differs from the undelayed run's: {}", first_change(bytes, &other))),
                Err(_) => Some(format!("{name} was not written")),
            }
        });
        let has_other_output = self.output != other.output;
        let output = || {
            let change = first_change(&self.output, &other.output);
            has_other_output.then(|| format!("its output differs from the undelayed run's: {change}"))
        };
        file.or_else(output)
    }
}

/// Refuses a run that passed although none of its delays was made: it says nothing.
fn check_delayed(delays: &[Delay], trial: &Trial, failure: Option<&str>) -> Result<(), Over> {
    match trial.delays[0] {
        0 if !delays.is_empty() && failure.is_none() => Err(Over::Said(
            "no delay was made: the driver refused the kernel that takes time, or the operations did not come\n  help: \
             the driver has to compile PTX (CUDA_DISABLE_PTX_JIT is not set); the undelayed run lists operations"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Returns where two texts differ first.
fn first_change(right: &[u8], other: &[u8]) -> String {
    let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect::<Vec<_>>();
    let (right, other) = (lines(right), lines(other));
    let is_other = |at: &usize| right.get(*at) != other.get(*at);
    let Some(at) = (0..right.len().max(other.len())).find(is_other) else { return "in the ends of lines".to_owned() };
    let shown = |lines: &[String]| match lines.get(at) {
        Some(line) => format!("`{}`", line.chars().take(60).flat_map(char::escape_debug).collect::<String>()),
        None => "nothing".to_owned(),
    };
    format!("line {}: {} in place of {}", at + 1, shown(&other), shown(&right))
}

/// The runs with delays.
struct Shaken<'a> {
    shake: &'a Shake,
    program: &'a Program<'a>,
    right: &'a Right,
    which: &'a Which,
    /// The most time that the delays of a run take together, in nanoseconds.
    total: u64,
}

impl Shaken<'_> {
    /// Returns the time after which a run counts as one that does not end.
    fn limit(&self, delays: &[Delay]) -> Duration {
        10 * self.right.time + 2 * Duration::from_nanos(sum(delays)) + Duration::from_secs(30)
    }

    /// Runs the program with delays. Returns the run, and why it failed.
    fn try_with(&self, delays: &[Delay]) -> Result<(Trial, Option<String>), Over> {
        self.right.prepare();
        let limit = self.limit(delays);
        let trial = self.program.run(Kind::Delayed, delays, Some(limit))?;
        let failure = trial.failure(Some(limit)).or_else(|| self.right.difference(&trial));
        Ok((trial, failure))
    }

    fn by_hand(&self, delays: &[Delay], err: &mut dyn Write) -> Result<Status, Over> {
        let (trial, failure) = self.try_with(delays)?;
        check_delayed(delays, &trial, failure.as_deref())?;
        self.say_run("the delays", delays, &trial, failure.as_deref(), err)?;
        if failure.is_none() {
            writeln!(err, "millpond: shake: it passed; {PROVES}")?;
            return Ok(Status::Fine);
        }
        self.explain(delays, err)?;
        Ok(Status::Found)
    }

    fn by_seeds(&self, err: &mut dyn Write) -> Result<Status, Over> {
        let all = &self.shake.seeds;
        let seeds = self.shake.seed.map_or(all.start..=all.end.saturating_sub(1), |seed| seed..=seed);
        let (mut count, mut delayed, mut times) = (0_u32, [0; 2], Duration::ZERO);
        for seed in seeds {
            let delays = choose(&self.right.points, self.which, seed, self.total);
            let (trial, failure) = self.try_with(&delays)?;
            check_delayed(&delays, &trial, failure.as_deref())?;
            self.say_run(&format!("seed {seed}"), &delays, &trial, failure.as_deref(), err)?;
            if failure.is_some() {
                let few = self.narrow(&delays, err)?;
                self.explain(&few, err)?;
                self.say_replay(seed, &few, err)?;
                return Ok(Status::Found);
            }
            count += 1;
            times += trial.time;
            delayed.iter_mut().zip(trial.delays).for_each(|(all, more)| *all += more);
        }
        let [delays, sum] = delayed;
        let slower = times.as_secs_f64() / f64::from(count) / self.right.time.as_secs_f64().max(1e-9);
        writeln!(
            err,
            "millpond: shake: {} passed: {}, {} in all; a run took {slower:.1} times as long as without; {PROVES}",
            counted(u64::from(count), "seed", "seeds"),
            counted(delays, "delay", "delays"),
            shown_time(sum),
        )?;
        Ok(Status::Fine)
    }

    /// Says what was delayed in a run, and how it ended.
    fn say_run(
        &self,
        what: &str,
        delays: &[Delay],
        trial: &Trial,
        failure: Option<&str>,
        err: &mut dyn Write,
    ) -> io::Result<()> {
        let [count, sum] = trial.delays;
        let of = self.right.points.count(self.which);
        // A run that was stopped has reported nothing.
        let made = match count {
            0 => format!("{} of {of} operations to be delayed, {}", delays.len(), shown_time(plan::sum(delays))),
            _ => format!("{count} of {of} operations delayed, {}", shown_time(sum)),
        };
        let ended = failure.map_or_else(|| "passed".to_owned(), |failure| format!("FAILED: {failure}"));
        writeln!(err, "millpond: shake: {what}: {made} in all, {:.2} s: {ended}", trial.time.as_secs_f64())?;
        if failure.is_some() {
            trial.tail.iter().try_for_each(|line| writeln!(err, "  | {line}"))?;
        }
        err.flush()
    }

    /// Returns few delays with which the program still fails: mostly one, of the operation that others should wait for.
    fn narrow(&self, delays: &[Delay], err: &mut dyn Write) -> Result<Vec<Delay>, Over> {
        let mut runs = Runs(RUNS_MAX);
        let mut fails = |some: &[Delay]| self.try_with(some).map(|(_, failure)| failure.is_some());
        let (mut few, mut again) = (Vec::new(), 0);
        for suspect in self.suspects(delays)? {
            if runs.take() && fails(&[suspect])? && runs.take() && fails(&[suspect])? {
                (few, again) = (vec![suspect], 2);
                break;
            }
        }
        if few.is_empty() {
            // Two are kept for the proof.
            let mut search = Runs(runs.0.saturating_sub(2));
            few = self.fewest(delays, &mut search, &mut fails)?;
            runs = Runs(search.0);
            again = [fails(&few)?, fails(&few)?].into_iter().filter(|failed| *failed).count();
        }
        let sure = match again {
            2 => "fails each time",
            1 => "fails in one of two runs",
            _ => "did not fail again: the failure needs luck as well",
        };
        writeln!(
            err,
            "millpond: shake: narrowed in {} from {} to {}, with which the program {sure}:",
            counted((RUNS_MAX - runs.0) as u64, "run", "runs"),
            counted(delays.len() as u64, "delay", "delays"),
            few.len(),
        )?;
        err.flush()?;
        Ok(few)
    }

    /// Returns delays that may each make the program fail alone: of operations that the checker says others should wait
    /// for, where it says so about the delayed ones and what follows them.
    fn suspects(&self, delays: &[Delay]) -> Result<Vec<Delay>, Over> {
        let found = self.check(delays)?.suspects();
        let may_be = |&(stream, number): &(u32, u32)| self.right.points.of(stream, self.which).any(|it| it == number);
        let nanoseconds = self.total.min(ALONE);
        let suspects = found.into_iter().filter(may_be).take(SUSPECTS_MAX);
        Ok(suspects.map(|(stream, number)| Delay { stream, number, nanoseconds }).collect())
    }

    /// Returns the fewest of the delays with which the program fails. One alone is put before the last operation where
    /// it still helps, because a delay holds back all that follows on its stream.
    fn fewest(
        &self,
        delays: &[Delay],
        runs: &mut Runs,
        mut fails: impl FnMut(&[Delay]) -> Result<bool, Over>,
    ) -> Result<Vec<Delay>, Over> {
        let few = fewest(delays, runs, &mut fails)?;
        let [one] = few[..] else { return Ok(few) };
        let numbers = self.right.points.of(one.stream, self.which).filter(|number| *number >= one.number);
        let places: Vec<Delay> = numbers.map(|number| Delay { number, ..one }).collect();
        let at = last(places.len(), runs, |at| fails(&places[at..=at]))?;
        Ok(places.get(at).map_or(few, |place| vec![*place]))
    }

    /// Runs the program with the checker, and returns what that says about these operations.
    fn check(&self, delays: &[Delay]) -> Result<Edges, Over> {
        self.right.prepare();
        // The checker takes its time with each call.
        let limit = 4 * self.limit(delays);
        Ok(Edges::read(&self.program.run(Kind::Checked, delays, Some(limit))?))
    }

    /// Says which operations were delayed, and what nothing orders with them.
    fn explain(&self, delays: &[Delay], err: &mut dyn Write) -> Result<(), Over> {
        let edges = self.check(delays)?;
        for delay in delays {
            let Delay { stream, number, nanoseconds } = *delay;
            let (what, time) = (self.right.points.what(*delay), shown_time(nanoseconds));
            let place = edges.place(*delay).map(|place| format!(", {place}")).unwrap_or_default();
            writeln!(err, "  stream {stream}, operation {number}, {what}{place}: {time} late")?;
        }
        for delay in delays {
            edges.show(*delay, err)?;
        }
        Ok(())
    }

    /// Says how to see the failure again.
    fn say_replay(&self, seed: u64, few: &[Delay], err: &mut dyn Write) -> io::Result<()> {
        let Shake { compare, compare_file, only_copies, only_streams, graphs, program, .. } = self.shake;
        let mut judge = Vec::new();
        judge.extend(compare.then(|| "--compare".to_owned()));
        judge.extend(compare_file.iter().map(|path| format!("--compare-file {}", shown_path(path))));
        judge.extend(graphs.then(|| "--graphs".to_owned()));
        let mut seeded = vec![format!("--seed {seed} --total {}", exact(self.total))];
        seeded.extend(only_copies.then(|| "--only-copies".to_owned()));
        let streams: Vec<String> = only_streams.iter().map(u32::to_string).collect();
        seeded.extend((!streams.is_empty()).then(|| format!("--only-streams {}", streams.join(","))));
        let at = |it: &Delay| format!("--at {}:{}={}", it.stream, it.number, exact(it.nanoseconds));
        let alone: Vec<String> = few.iter().map(at).collect();
        let program: Vec<String> = program.iter().map(|word| crate::forgotten::quoted(word)).collect();
        for (what, mut words) in [("replay", seeded), ("replay that alone", alone)] {
            words.extend(judge.iter().cloned());
            writeln!(err, "millpond: shake: {what}: millpond shake {} -- {}", words.join(" "), program.join(" "))?;
        }
        Ok(())
    }
}

/// Returns a time of nanoseconds as an option has it.
fn exact(nanoseconds: u64) -> String {
    match nanoseconds {
        it if it.is_multiple_of(1_000_000) => format!("{}ms", it / 1_000_000),
        it if it.is_multiple_of(1000) => format!("{}us", it / 1000),
        it => format!("{it}ns"),
    }
}

/// Returns a time of nanoseconds as text.
fn shown_time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000_000 => format!("{:.0} us", nanoseconds as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.2} s", nanoseconds as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_change_is_named() {
        assert_eq!(first_change(b"a\nb\n", b"a\nc\n"), "line 2: `c` in place of `b`");
        assert_eq!(first_change(b"a\n", b"a\n\x1b[1m\n"), "line 2: `\\u{1b}[1m` in place of nothing");
        assert_eq!(first_change(b"a\n", b"a"), "in the ends of lines");
    }

    #[test]
    fn times_are_shown_in_their_unit() {
        assert_eq!([1_000, 20_500_000, 2_000_000_000].map(shown_time), ["1 us", "20.5 ms", "2.00 s"]);
        assert_eq!([128_000_000, 1_500_000, 7].map(exact), ["128ms", "1500us", "7ns"]);
    }
}
