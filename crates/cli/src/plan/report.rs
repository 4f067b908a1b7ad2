//! What a planning found, as one plain value: the JSON is this value, the text is made of it.

use std::time::Duration;

use anstyle::{AnsiColor, Style};
use millpond_core::units::Bytes;
use millpond_plan::Outcome;
use serde::Serialize;

use super::Instance;
use crate::args::Plan as Args;

/// The figures of one planning.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The file as it was named.
    pub file: String,
    /// How many buffers it has.
    pub buffers: usize,
    /// What the plan needs.
    pub capacity_bytes: u64,
    /// What was asked for.
    pub asked_bytes: Option<u64>,
    /// No plan needs less: proven.
    pub bound_bytes: u64,
    /// The plan's capacity less the bound.
    pub gap_bytes: u64,
    /// The same as a part of the bound.
    pub gap: f64,
    /// Whether no plan needs less than this one.
    pub proven: bool,
    /// How long it took, reading and writing not counted.
    pub seconds: f64,
    /// Steps of search.
    pub steps: u64,
    /// Where each buffer begins, in the order of the file.
    pub offsets: Vec<Placed>,
}

/// One buffer of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Placed {
    /// What the file calls it.
    pub id: String,
    /// Where it begins, in bytes.
    pub offset: u64,
}

impl Report {
    /// The figures of an outcome.
    pub(crate) fn new(args: &Args, instance: &Instance, outcome: &Outcome, elapsed: Duration) -> Self {
        let (capacity, bound) = (outcome.plan.capacity, outcome.bound);
        let placed = instance.rows.iter().zip(&outcome.plan.offsets);
        Self {
            file: args.file.display().to_string(),
            buffers: instance.rows.len(),
            capacity_bytes: capacity,
            asked_bytes: args.capacity,
            bound_bytes: bound,
            gap_bytes: capacity - bound,
            gap: (capacity - bound) as f64 / bound as f64,
            proven: outcome.proven(),
            seconds: elapsed.as_secs_f64(),
            steps: outcome.steps,
            offsets: placed.map(|(row, &offset)| Placed { id: row.id.clone(), offset }).collect(),
        }
    }

    /// Whether the capacity asked for, if any, suffices.
    pub(crate) fn reached(&self) -> bool {
        self.asked_bytes.is_none_or(|asked| self.capacity_bytes <= asked)
    }

    /// The report for people.
    pub(crate) fn text(&self) -> String {
        let bold = Style::new().bold();
        let (colour, verdict) = match self.asked_bytes {
            Some(asked) if self.bound_bytes > asked => (AnsiColor::Red, format!("{} is impossible", bytes(asked))),
            Some(asked) if !self.reached() => (AnsiColor::Red, format!("{} not reached", bytes(asked))),
            Some(asked) => (AnsiColor::Green, format!("within the {} asked for", bytes(asked))),
            None if self.proven => (AnsiColor::Green, "no plan needs less".to_owned()),
            None => (AnsiColor::Yellow, "the smallest found".to_owned()),
        };
        let style = Style::new().fg_color(Some(colour.into()));
        let gap = match self.gap_bytes {
            0 => "none: no plan needs less".to_owned(),
            gap => format!("{} ({:.2}% of the bound)", bytes(gap), self.gap * 100.0),
        };
        format!(
            "{bold}{}{bold:#}  {} buffers\n  capacity  {}  {style}{verdict}{style:#}\n  bound     {}  proven\n  \
             gap       {gap}\n  time      {:.3} s, {} steps of search\n",
            self.file,
            self.buffers,
            bytes(self.capacity_bytes),
            bytes(self.bound_bytes),
            self.seconds,
            self.steps
        )
    }
}

/// Exact, and readable where that is something else.
fn bytes(bytes: u64) -> String {
    let (exact, readable) = (format!("{bytes} B"), Bytes(bytes).to_string());
    if exact == readable { exact } else { format!("{exact} ({readable})") }
}
