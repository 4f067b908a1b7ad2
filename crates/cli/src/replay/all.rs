//! Several programs taken together, as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::compare::Comparison;
use super::report::{Report, sum};

/// The reports of several programs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct All<'a> {
    files: &'a [Report],
    totals: Totals,
    /// Of two recordings: how the second stands to the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
}

/// Several programs taken together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Totals {
    /// How many programs.
    pub programs: usize,
    /// Allocations and frees of one pass of each.
    pub events: usize,
    /// The largest ratio of them.
    pub ratio_max: f64,
    /// Host time of an event, over all events.
    pub ns_per_event: f64,
    /// Calls of the driver, by kind.
    pub driver_calls: BTreeMap<String, u64>,
    /// How many of them were made after the first passes.
    pub driver_calls_after_first_pass: u64,
}

impl<'a> All<'a> {
    /// These reports and their totals; of two, how they compare.
    pub(crate) fn of(files: &'a [Report], comparison: Option<Comparison>) -> Self {
        let events = files.iter().map(|report| report.events).sum();
        let nanoseconds: f64 = files.iter().map(|report| report.ns_per_event * report.events as f64).sum();
        let totals = Totals {
            programs: files.len(),
            events,
            ratio_max: files.iter().map(|report| report.ratio).fold(0.0, f64::max),
            ns_per_event: if events == 0 { 0.0 } else { nanoseconds / events as f64 },
            driver_calls: sum(files.iter().map(|report| &report.driver_calls)),
            driver_calls_after_first_pass: files.iter().map(|report| report.driver_calls_after_first_pass).sum(),
        };
        Self { files, totals, comparison }
    }
}
