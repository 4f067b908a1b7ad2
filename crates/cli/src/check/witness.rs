//! Schedules that show a violation: an order in which a device may run the program, up to the damage.
//!
//! The tasks are those of the litmus model, with the edges that the program's own order gives them. Nothing is refused.
//! The damage that a task does depends only on which tasks have run before it. Each damage needs at most one other task
//! to have run, or one not to have run. So the shortest schedule has the tasks that the damaging task needs, those that
//! the other task needs, and the other task, in the order of the program. The damaging task follows. For a finding that
//! no schedule shows (a leak, a rule about calls), the output says so.

use std::cmp::Reverse;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use millpond_core::check::Finding;
use millpond_litmus::model::{Damage, Harm, Model};
use millpond_litmus::{Program, statement};
use serde::Serialize;

/// The largest number of tasks that are tried for each side of a finding. A node has a task for each launch.
const TASKS_TRIED: usize = 128;
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
    let lines: Vec<&str> = text.lines().collect();
    let witness = |finding: &Finding| match finding.kind.is_about_order().then(|| shortest(&model, finding)).flatten() {
        Some((order, damage)) => schedule(&model, &lines, &order, &damage),
        None if finding.kind.is_advice() => none("advice: nothing is wrong"),
        None => none("no schedule shows this: it is about what the program asks for, not about when it runs"),
    };
    findings.iter().map(witness).collect()
}

/// Returns a shortest schedule among those whose last task does the damage that shows a finding best.
fn shortest(model: &Model, finding: &Finding) -> Option<(Vec<usize>, Damage)> {
    let sides = [&finding.earlier, &finding.later].into_iter().flatten().filter_map(|side| side.spot.line);
    let of_line = |line: u32| {
        let is_of =
            move |task: &usize| [Some(model.tasks[*task].line), model.tasks[*task].launch].contains(&Some(line));
        (0..model.tasks.len()).filter(is_of).take(TASKS_TRIED)
    };
    let needed: Vec<(usize, Vec<bool>)> = sides.flat_map(of_line).map(|task| (task, needed(model, task))).collect();
    let rank = |(order, damage): &(Vec<usize>, Damage)| (model.shows(damage, finding), Reverse(order.len()));
    let mut best: Option<(Vec<usize>, Damage)> = None;
    for (task, own) in &needed {
        let alone = std::iter::once(None);
        let others = needed.iter().filter(|(_, theirs)| !theirs[*task]).map(|(_, theirs)| Some(theirs));
        for other in alone.chain(others) {
            let has_run = |it: usize| it != *task && (own[it] || other.is_some_and(|theirs| theirs[it]));
            let mut damages = Vec::new();
            model.damages_of(*task, &has_run, &mut damages);
            if damages.is_empty() {
                continue;
            }
            let order: Vec<usize> = (0..own.len()).filter(|it| has_run(*it)).chain([*task]).collect();
            let found = damages.into_iter().map(|damage| (order.clone(), damage)).max_by_key(rank);
            best = [best, found].into_iter().flatten().rev().max_by_key(rank);
        }
    }
    best.filter(|(_, damage)| model.shows(damage, finding) > 0)
}

/// Returns for each task whether `task` needs it, directly or not. It needs itself.
fn needed(model: &Model, task: usize) -> Vec<bool> {
    let mut is_needed = vec![false; model.tasks.len()];
    is_needed[task] = true;
    for at in (0..=task).rev() {
        if is_needed[at] {
            model.tasks[at].needs.iter().for_each(|need| is_needed[*need] = true);
        }
    }
    is_needed
}

fn schedule(model: &Model, lines: &[&str], order: &[usize], damage: &Damage) -> Witness {
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
    Witness::Schedule { steps: shown.map(step).collect(), damage }
}

/// Prints a witness below its finding.
pub(super) fn show(witness: &Witness, out: &mut dyn Write) -> io::Result<()> {
    let (bold, red) = (Style::new().bold(), Style::new().bold().fg_color(Some(AnsiColor::Red.into())));
    let (steps, damage) = match witness {
        Witness::None { reason } => return writeln!(out, "{bold}witness{bold:#}: {reason}\n"),
        Witness::Schedule { steps, damage } => (steps, damage),
    };
    writeln!(out, "{bold}witness{bold:#}: a device may run it so")?;
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
