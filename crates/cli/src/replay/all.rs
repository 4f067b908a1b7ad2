//! The totals of several programs, as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::compare::Comparison;
use super::report::{Report, sum};

/// The reports of several programs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct All<'a> {
    files: &'a [Report],
    totals: Totals,
    /// With two recordings: the ratios of the second to the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
}

/// The totals of several programs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Totals {
    /// The number of programs.
    pub programs: usize,
    /// Allocations and frees of one pass of each.
    pub events: usize,
    /// The largest of their ratios.
    pub ratio_max: f64,
    /// The host time per event, over all events.
    pub ns_per_event: f64,
    /// Driver calls, by kind.
    pub driver_calls: BTreeMap<String, u64>,
    /// The driver calls after the first passes.
    pub driver_calls_after_first_pass: u64,
}

impl<'a> All<'a> {
    /// Sums up these reports. `comparison` has the ratios if there are two.
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
