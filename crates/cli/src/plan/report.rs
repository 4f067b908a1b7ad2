//! The result of planning, as one plain value. The JSON is this value, and the text is made from it.

use std::time::Duration;

use anstyle::{AnsiColor, Style};
use millpond_core::units::Bytes;
use millpond_plan::Outcome;
use serde::Serialize;

use super::Instance;
use crate::args::Plan as Args;

/// The figures of one plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The file name as given.
    pub file: String,
    /// The number of buffers.
    pub buffers: usize,
    /// The capacity that the plan needs.
    pub capacity_bytes: u64,
    /// The requested capacity.
    pub asked_bytes: Option<u64>,
    /// The proven lower bound: no plan needs less.
    pub bound_bytes: u64,
    /// The plan's capacity minus the bound.
    pub gap_bytes: u64,
    /// The gap as a fraction of the bound.
    pub gap: f64,
    /// `true` if no plan needs less than this one.
    pub proven: bool,
    /// The time taken, without reading and writing files.
    pub seconds: f64,
    /// The number of search steps.
    pub steps: u64,
    /// The offset of each buffer, in the order of the file.
    pub offsets: Vec<Placed>,
}

/// One buffer of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Placed {
    /// Its id in the file.
    pub id: String,
    /// Its offset in bytes.
    pub offset: u64,
}

impl Report {
    /// Computes the figures of an outcome.
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

    /// Returns `true` if the plan fits the requested capacity, if there is one.
    pub(crate) fn reached(&self) -> bool {
        self.asked_bytes.is_none_or(|asked| self.capacity_bytes <= asked)
    }

    /// Returns the report as text for a terminal.
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

/// Formats an exact number of bytes, with a readable form if that differs.
fn bytes(bytes: u64) -> String {
    let (exact, readable) = (format!("{bytes} B"), Bytes(bytes).to_string());
    if exact == readable { exact } else { format!("{exact} ({readable})") }
}
