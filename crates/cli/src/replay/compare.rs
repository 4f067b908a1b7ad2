//! The comparison of two recordings: one table of both, with the ratio of every figure.

use std::collections::BTreeSet;

use anstyle::Style;
use serde::Serialize;

use super::report::{Cell, Line, PassReport, Report};
use crate::text_table::{render, table};

/// The ratios of the second program's figures to the first program's; `None` if the first figure is 0.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// The first program's name.
    pub first: String,
    /// The second program's name.
    pub second: String,
    /// The ratio of the peaks of live bytes.
    pub peak_requested_bytes: Option<f64>,
    /// The ratio of the peaks of reserved bytes, over all passes.
    pub peak_reserved_bytes: Option<f64>,
    /// The ratio of the two reserved-to-requested ratios.
    pub ratio: Option<f64>,
    /// The ratio of the host times per event.
    pub ns_per_event: Option<f64>,
    /// The ratios of the first pass.
    pub first_pass: PassRatios,
    /// The ratios of the later passes together, if both programs have some.
    pub later_passes: Option<PassRatios>,
}

/// The ratios of one pass, or of several together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PassRatios {
    /// The ratio of the peaks of reserved bytes.
    pub peak_reserved_bytes: Option<f64>,
    /// The ratio of the two reserved-to-requested ratios.
    pub ratio: Option<f64>,
    /// The ratio of the host times per event.
    pub ns_per_event: Option<f64>,
    /// The ratio of the driver calls in a pass.
    pub driver_calls: Option<f64>,
}

impl Comparison {
    /// Divides the second program's figures by the first program's.
    pub(crate) fn of(first: &Report, second: &Report) -> Self {
        let bytes = |of: &dyn Fn(&Report) -> u64| over(of(second) as f64, of(first) as f64);
        let later = second.later_passes.as_ref().zip(first.later_passes.as_ref());
        Self {
            first: first.title(),
            second: second.title(),
            peak_requested_bytes: bytes(&|it| it.peak_requested_bytes),
            peak_reserved_bytes: bytes(&|it| it.peak_reserved_bytes),
            ratio: over(second.ratio, first.ratio),
            ns_per_event: over(second.ns_per_event, first.ns_per_event),
            first_pass: PassRatios::of(&first.first_pass, &second.first_pass),
            later_passes: later.map(|(second, first)| PassRatios::of(first, second)),
        }
    }
}

impl PassRatios {
    fn of(first: &PassReport, second: &PassReport) -> Self {
        let calls = |it: &PassReport| it.driver_calls.values().sum::<u64>() as f64 / it.passes as f64;
        Self {
            peak_reserved_bytes: over(second.peak_reserved_bytes as f64, first.peak_reserved_bytes as f64),
            ratio: over(second.ratio, first.ratio),
            ns_per_event: over(second.ns_per_event, first.ns_per_event),
            driver_calls: over(calls(second), calls(first)),
        }
    }
}

fn over(second: f64, first: f64) -> Option<f64> {
    (first > 0.0).then_some(second / first)
}

/// Returns both tables in one, as text for a terminal.
pub(crate) fn text(first: &Report, second: &Report) -> String {
    let bold = Style::new().bold();
    let mut text = String::new();
    for (letter, report) in [("A", first), ("B", second)] {
        text += &format!("{bold}{letter}{bold:#}  {} ({})\n", report.title(), report.file);
    }
    let kinds: BTreeSet<&String> = first.driver_calls.keys().chain(second.driver_calls.keys()).collect();
    let (ours, theirs) = (first.lines(kinds.iter().copied()), second.lines(kinds.iter().copied()));
    let mut names: Vec<&String> = ours.iter().map(|line| &line.name).collect();
    names.extend(theirs.iter().map(|line| &line.name).filter(|name| !ours.iter().any(|line| line.name == **name)));
    let passes = ours.first().map_or(0, |line| line.cells.len());
    let mut cells = table();
    let heads = ["A first", "B first", "B / A", "A later", "B later", "B / A"].into_iter().take(passes * 3);
    cells.add_row([""].into_iter().chain(heads));
    for name in names {
        let of = |lines: &[Line], pass: usize| -> Option<Cell> {
            lines.iter().find(|line| line.name == *name)?.cells.get(pass)?.clone()
        };
        let mut row = vec![name.clone()];
        for pass in 0..passes {
            let (a, b) = (of(&ours, pass), of(&theirs, pass));
            let ratio = a.as_ref().zip(b.as_ref()).and_then(|(a, b)| over(b.value, a.value));
            row.extend([a, b].map(|cell| cell.map(|cell| cell.text).unwrap_or_default()));
            row.push(ratio.map(|ratio| format!("{ratio:.3}")).unwrap_or_default());
        }
        cells.add_row(row);
    }
    text + &render(cells)
}
