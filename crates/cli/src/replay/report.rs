//! The result of a replay, as one plain value. The JSON is this value, and the text is made from it.

use std::collections::BTreeMap;
use std::path::Path;

use anstyle::Style;
use comfy_table::Table;
use millpond_core::units::MIB;
use millpond_driver::CallKind;
use serde::Serialize;

use super::passes::{Pass, median};
use crate::args::DeviceKind;
use crate::recorded::{Recorded, Skipped};
use crate::text_table::{render, table};

/// The figures of one program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The file name as given.
    pub file: String,
    /// The program's name.
    pub name: String,
    /// The format of the recording.
    pub format: String,
    /// The GPU it was recorded on, if the file distinguishes several.
    pub gpu: Option<u32>,
    /// The device that served it.
    pub device: &'static str,
    /// The allocations and frees of a pass.
    pub events: usize,
    /// The allocations of a pass.
    pub allocations: u32,
    /// The number of streams.
    pub streams: u32,
    /// The number of passes.
    pub passes: usize,
    /// The peak of the live bytes, as requested.
    pub peak_requested_bytes: u64,
    /// The peak of reserved physical memory, over all passes.
    pub peak_reserved_bytes: u64,
    /// The ratio of reserved to requested bytes.
    pub ratio: f64,
    /// The host time per event: the median of the later passes, or of the first if there are no others.
    pub ns_per_event: f64,
    /// The driver calls in all passes, by kind.
    pub driver_calls: BTreeMap<String, u64>,
    /// The driver calls after the first pass.
    pub driver_calls_after_first_pass: u64,
    /// The figures of the first pass.
    pub first_pass: PassReport,
    /// The figures of the later passes together, if there are any.
    pub later_passes: Option<PassReport>,
    /// Steps of the recording that are not in the program.
    pub skipped: Skipped,
    /// The recording's own figures about the run it was made from.
    pub recorded_run: RecordedRun,
}

/// The figures of one pass, or of several together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PassReport {
    /// The number of passes.
    pub passes: usize,
    /// The peak of reserved physical memory.
    pub peak_reserved_bytes: u64,
    /// The ratio of reserved to requested bytes.
    pub ratio: f64,
    /// The host time per event, the median over the passes.
    pub ns_per_event: f64,
    /// The driver calls, by kind.
    pub driver_calls: BTreeMap<String, u64>,
}

/// A recording's own figures about the run it was made from.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RecordedRun {
    /// Its duration.
    pub seconds: Option<f64>,
    /// The peak of the bytes that its own allocator had reserved.
    pub peak_reserved_bytes: Option<u64>,
}

impl Report {
    /// Computes the figures of some passes, at least one.
    pub(crate) fn new(file: &Path, recorded: &Recorded, device: DeviceKind, passes: &[Pass]) -> Self {
        let program = &recorded.program;
        let (first, later) = passes.split_at(1);
        let of = |passes: &[Pass]| {
            let times = passes.iter().map(|pass| pass.elapsed.as_nanos() as f64 / program.events.len() as f64);
            let peak = passes.iter().map(|pass| pass.figures.peak_reserved_bytes).max().unwrap_or(0);
            PassReport {
                passes: passes.len(),
                peak_reserved_bytes: peak,
                ratio: peak as f64 / program.peak_bytes as f64,
                ns_per_event: median(times.collect()),
                driver_calls: sum(passes.iter().map(|pass| &pass.figures.driver_calls)),
            }
        };
        let all = of(passes);
        let first_pass = of(first);
        let later_passes = (!later.is_empty()).then(|| of(later));
        let after = later_passes.as_ref().map_or(0, |later| later.driver_calls.values().sum());
        Self {
            file: file.display().to_string(),
            name: program.name.clone(),
            format: recorded.format.to_string(),
            gpu: recorded.gpu,
            device: device.name(),
            events: program.events.len(),
            allocations: program.allocations,
            streams: program.streams,
            passes: passes.len(),
            peak_requested_bytes: program.peak_bytes,
            peak_reserved_bytes: all.peak_reserved_bytes,
            ratio: all.ratio,
            ns_per_event: later_passes.as_ref().unwrap_or(&first_pass).ns_per_event,
            driver_calls: all.driver_calls,
            driver_calls_after_first_pass: after,
            first_pass,
            later_passes,
            skipped: recorded.skipped,
            recorded_run: RecordedRun {
                seconds: program.seconds,
                peak_reserved_bytes: recorded.recorded_reserved_bytes,
            },
        }
    }

    /// Returns the program's description.
    pub(crate) fn head(&self) -> String {
        let (bold, title) = (Style::new().bold(), self.title());
        let Self { events, allocations, streams, format, device, .. } = self;
        let many = if *streams == 1 { "" } else { "s" };
        let mut text = format!(
            "{bold}{title}{bold:#}  {events} events, {allocations} allocations, {streams} stream{many}; {format}, \
             served by the {device} device\n"
        );
        text.extend(self.skipped.sentences().iter().map(|sentence| format!("  note: {sentence}\n")));
        text
    }

    /// Returns the table.
    pub(crate) fn tail(&self) -> String {
        format!("\n{}", render(self.table()))
    }

    /// Returns the program's name, with its GPU.
    pub(crate) fn title(&self) -> String {
        match self.gpu {
            Some(gpu) => format!("{} (GPU {gpu})", self.name),
            None => self.name.clone(),
        }
    }

    /// Makes the table: the first pass beside the later ones.
    fn table(&self) -> Table {
        let mut table = table();
        let heads = self.passes().enumerate().map(|(at, pass)| match (at, pass.passes) {
            (0, _) => "first pass".to_owned(),
            (_, 1) => "later pass".to_owned(),
            (_, many) => format!("{many} later passes"),
        });
        table.add_row([String::new()].into_iter().chain(heads));
        for line in self.lines(self.driver_calls.keys()) {
            let cells = line.cells.into_iter().map(|cell| cell.map(|cell| cell.text).unwrap_or_default());
            table.add_row([line.name].into_iter().chain(cells));
        }
        table
    }

    /// Returns the first pass, and the later ones together if there are any.
    fn passes(&self) -> impl Iterator<Item = &PassReport> {
        [Some(&self.first_pass), self.later_passes.as_ref()].into_iter().flatten()
    }

    /// Returns the lines of the table, with a cell for each of [`passes`](Self::passes). `kinds` are the kinds of
    /// driver calls.
    pub(crate) fn lines<'a>(&self, kinds: impl Iterator<Item = &'a String>) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut line = |name: &str, cell: &dyn Fn(&PassReport) -> Cell| {
            lines.push(Line { name: name.to_owned(), cells: self.passes().map(|pass| Some(cell(pass))).collect() });
        };
        line("peak requested", &|_| Cell::bytes(self.peak_requested_bytes));
        line("peak reserved", &|pass| Cell::bytes(pass.peak_reserved_bytes));
        line("ratio", &|pass| Cell { text: format!("{:.3}", pass.ratio), value: pass.ratio });
        let time = |pass: &PassReport| Cell { text: format!("{:.1} ns", pass.ns_per_event), value: pass.ns_per_event };
        line("host time an event", &time);
        line("driver calls a pass", &|pass| Cell::calls(pass.driver_calls.values().sum(), pass.passes));
        for kind in kinds {
            let calls = |pass: &PassReport| pass.driver_calls.get(kind).copied().unwrap_or(0);
            let cuda = CallKind::ALL.iter().find(|it| it.name() == kind).map_or("", |it| it.cuda());
            line(&format!("  {kind} ({cuda})"), &|pass| Cell::calls(calls(pass), pass.passes));
        }
        if let Some(bytes) = self.recorded_run.peak_reserved_bytes {
            let ratio = bytes as f64 / self.peak_requested_bytes as f64;
            let cell = Cell { text: format!("{} ({ratio:.3})", mebibytes(bytes)), value: bytes as f64 };
            let later = self.later_passes.as_ref().map(|_| None);
            lines.push(Line { name: RECORDED.to_owned(), cells: [Some(cell)].into_iter().chain(later).collect() });
        }
        lines
    }
}

/// The title of the line with the figures of the recorded run's own allocator.
const RECORDED: &str = "reserved when recorded";

/// A line of the table of one program.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// One for the first pass, and one for the later ones.
    pub(crate) cells: Vec<Option<Cell>>,
}

/// A figure.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cell {
    /// The figure as text.
    pub(crate) text: String,
    pub(crate) value: f64,
}

impl Cell {
    fn bytes(bytes: u64) -> Self {
        Self { text: mebibytes(bytes), value: bytes as f64 }
    }

    /// Makes a cell with the number of calls per pass.
    fn calls(calls: u64, passes: usize) -> Self {
        Self { text: a_pass(calls, passes), value: calls as f64 / passes as f64 }
    }
}

/// Returns a table with one line for each program.
pub(crate) fn summary(reports: &[Report]) -> String {
    let mut table = table();
    table.add_row(["", "events", "requested", "reserved", "ratio", "later", "ns/event", "calls", "later"]);
    for report in reports {
        let later = |cell: &dyn Fn(&PassReport) -> String| report.later_passes.as_ref().map(cell).unwrap_or_default();
        let first = &report.first_pass;
        table.add_row([
            report.title(),
            report.events.to_string(),
            mebibytes(report.peak_requested_bytes),
            mebibytes(report.peak_reserved_bytes),
            format!("{:.3}", first.ratio),
            later(&|pass| format!("{:.3}", pass.ratio)),
            format!("{:.1}", report.ns_per_event),
            first.driver_calls.values().sum::<u64>().to_string(),
            later(&|pass| a_pass(pass.driver_calls.values().sum(), pass.passes)),
        ]);
    }
    render(table)
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / MIB as f64)
}

/// Formats the number of calls per pass.
fn a_pass(calls: u64, passes: usize) -> String {
    match calls % passes as u64 {
        0 => (calls / passes as u64).to_string(),
        _ => format!("{:.1}", calls as f64 / passes as f64),
    }
}

pub(super) fn sum<'a>(counts: impl Iterator<Item = &'a BTreeMap<String, u64>>) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for (kind, calls) in counts.flatten() {
        *sum.entry(kind.clone()).or_insert(0) += calls;
    }
    sum
}
