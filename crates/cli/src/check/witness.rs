//! Schedules that show a violation: a run of the program on the host device with some seed, up to the damage.
//!
//! The program's tasks, with the edges that the program's own order gives them, run on a host device with a seeded
//! schedule. Each task logs that it ran, and nothing is refused. The model decides what goes wrong in that order. For a
//! finding that no schedule shows (a leak, a rule about calls), the output says so.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anstyle::{AnsiColor, Style};
use millpond::config::Schedule;
use millpond::{Device, Event, HostConfig, Stream};
use millpond_core::check::Finding;
use millpond_litmus::model::{Damage, Harm, Model};
use millpond_litmus::{Program, statement};
use serde::Serialize;

/// The number of seeds to try.
const SEEDS: u64 = 4096;
/// The largest number of states of a program for which every schedule is explored first.
const STATES_MAX: usize = 1 << 18;
/// The largest number of steps that are shown. These are the last ones.
const STEPS_SHOWN: usize = 40;

/// One step of a schedule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Step {
    /// The stream or host thread that does it.
    pub who: String,
    /// The line of the program.
    pub line: u32,
    /// The line of the launch that the step is a part of.
    pub launch: Option<u32>,
    /// The text of the line.
    pub text: String,
}

/// The evidence for a finding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Witness {
    /// A schedule, up to the step that does the damage.
    Schedule {
        /// The seed of the host device.
        seed: u64,
        /// The steps, in the order in which they ran.
        steps: Vec<Step>,
        /// The damage that the last step does.
        damage: String,
    },
    /// There is no schedule.
    None {
        /// The reason, as a sentence.
        reason: String,
    },
}

/// Returns a witness for each finding.
pub(super) fn witnesses(text: &str, program: &Program, findings: &[Finding]) -> Vec<Witness> {
    let none = |reason: &str| Witness::None { reason: reason.to_owned() };
    let model = match Model::new(program) {
        Ok(model) => model,
        Err(why) => return vec![none(&format!("no schedule was looked for: {why}")); findings.len()],
    };
    let all = model.explore(STATES_MAX);
    let possible = |finding: &&Finding| match &all {
        Some(all) => finding.kind.is_about_order() && best(&model, &all.damages, finding) > 0,
        None => finding.kind.is_about_order(),
    };
    let mut found: Vec<Option<Witness>> = vec![None; findings.len()];
    let wanted: Vec<usize> = (0..findings.len()).filter(|&at| possible(&&findings[at])).collect();
    let lines: Vec<&str> = text.lines().collect();
    for seed in 0..SEEDS {
        if wanted.iter().all(|at| found[*at].is_some()) {
            break;
        }
        let Some(order) = run(&model, seed) else { break };
        let damages = model.replay(&order);
        for &at in wanted.iter().filter(|at| found[**at].is_none()).collect::<Vec<_>>() {
            let bar = all.as_ref().map_or(1, |all| best(&model, &all.damages, &findings[at]));
            let shows = |(_, damage): &&(usize, Damage)| model.shows(damage, &findings[at]) >= bar;
            if let Some((step, damage)) = damages.iter().find(shows) {
                found[at] = Some(schedule(&model, &lines, seed, &order[..=*step], damage));
            }
        }
    }
    let reason = |at: usize| match wanted.contains(&at) {
        true => none(&format!("none of the first {SEEDS} seeds shows this")),
        false if findings[at].kind.is_advice() => none("advice: nothing is wrong"),
        false => none("no schedule shows this: it is about what the program asks for, not about when it runs"),
    };
    found.into_iter().enumerate().map(|(at, witness)| witness.unwrap_or_else(|| reason(at))).collect()
}

/// Returns the highest degree to which one of the damages shows a finding.
fn best(model: &Model, damages: &[Damage], finding: &Finding) -> usize {
    damages.iter().map(|damage| model.shows(damage, finding)).max().unwrap_or(0)
}

/// Runs the tasks on a host device. Returns the order in which they ran.
fn run(model: &Model, seed: u64) -> Option<Vec<usize>> {
    let config = HostConfig::default().schedule(Schedule::Seeded(seed));
    let device = Device::host(config).ok()?;
    let log = Arc::new(Mutex::new(Vec::with_capacity(model.tasks.len())));
    let mut streams: Vec<(Stream, usize)> = Vec::new();
    let mut events: Vec<Event> = Vec::new();
    for (task, of) in model.tasks.iter().enumerate() {
        // Use a stream whose last task this task needs anyway, if there is one.
        let at = match streams.iter().position(|(_, last)| of.needs.contains(last)) {
            Some(at) => at,
            None => {
                streams.push((device.non_blocking_stream().ok()?, task));
                streams.len() - 1
            }
        };
        let stream = &streams[at].0;
        for need in of.needs.iter().filter(|need| **need != streams[at].1) {
            stream.wait(&events[*need]).ok()?;
        }
        let log = Arc::clone(&log);
        stream.launch((), move |()| log.lock().unwrap_or_else(PoisonError::into_inner).push(task)).ok()?;
        events.push(stream.record().ok()?);
        streams[at].1 = task;
    }
    device.synchronize().ok()?;
    let order = log.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (order.len() == model.tasks.len()).then_some(order)
}

fn schedule(model: &Model, lines: &[&str], seed: u64, order: &[usize], damage: &Damage) -> Witness {
    let shown = order.iter().filter(|task| !model.tasks[**task].is_hidden);
    let step = |task: &usize| {
        let task = &model.tasks[*task];
        let text = lines.get((task.line as usize).saturating_sub(1)).map_or("", |line| statement(line));
        Step { who: task.who.clone(), line: task.line, launch: task.launch, text: text.to_owned() }
    };
    let name = &model.lives[damage.life].name;
    let line = |task: usize| match model.tasks[task].launch {
        Some(launch) => format!("line {} (launched at line {launch})", model.tasks[task].line),
        None => format!("line {}", model.tasks[task].line),
    };
    let damage = match damage.harm {
        Harm::NotBorn => format!("`{name}` is not allocated yet: these bytes are poison"),
        Harm::Freed(by) => {
            format!("`{name}` is freed already, by {}: these bytes are poison, or another allocation's", line(by))
        }
        Harm::StaleName(by) => {
            format!("{}, which comes later in the program, has run: `{name}` is not what it should be", line(by))
        }
        Harm::Held => format!("another process still holds `{name}`"),
    };
    Witness::Schedule { seed, steps: shown.map(step).collect(), damage }
}

/// Prints a witness below its finding.
pub(super) fn show(witness: &Witness, out: &mut dyn Write) -> io::Result<()> {
    let (bold, red) = (Style::new().bold(), Style::new().bold().fg_color(Some(AnsiColor::Red.into())));
    let (seed, steps, damage) = match witness {
        Witness::None { reason } => return writeln!(out, "{bold}witness{bold:#}: {reason}\n"),
        Witness::Schedule { seed, steps, damage } => (seed, steps, damage),
    };
    writeln!(out, "{bold}witness{bold:#}: with seed {seed} the host device runs it so")?;
    let hidden = steps.len().saturating_sub(STEPS_SHOWN);
    if hidden > 0 {
        writeln!(out, "        ... {hidden} steps before")?;
    }
    let width = |of: &dyn Fn(&Step) -> usize| steps[hidden..].iter().map(of).max().unwrap_or(0);
    let at = |step: &Step| match step.launch {
        Some(launch) => format!("{} in {launch}", step.line),
        None => step.line.to_string(),
    };
    let (who, line) = (width(&|step| step.who.chars().count()), width(&|step| at(step).len()));
    for (number, step) in steps.iter().enumerate().skip(hidden) {
        let is_last = number + 1 == steps.len();
        let style = if is_last { red } else { Style::new() };
        let Step { who: by, text, .. } = step;
        writeln!(out, "{style}{:>6}  line {:<line$}  {by:<who$}  {text}{style:#}", number + 1, at(step))?;
    }
    let indent = 6 + 2 + 5 + line + 2 + who + 2;
    writeln!(out, "{:indent$}{red}^ {damage}{red:#}\n", "")
}
