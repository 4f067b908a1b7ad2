//! What one run measured, as plain values.

use serde::{Deserialize, Serialize};

use super::rounds::{Measured, ROUNDS, Spread};
use super::rows::{Row, Unit, Who};

/// The figures of a machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The version of the command that measured, with its commit.
    pub version: String,
    /// How that was built: only what is optimised says something of a release.
    pub profile: Profile,
    /// What it ran on.
    pub machine: Machine,
    /// About how many seconds it measured.
    pub seconds: u32,
    /// How often.
    pub rounds: usize,
    /// The figures.
    pub rows: Vec<Figures>,
    /// What is not in them, and why.
    pub left_out: Vec<String>,
}

impl Run {
    pub(super) fn new(seconds: u32, machine: Machine, rows: Vec<Figures>, left_out: Vec<String>) -> Self {
        let profile = if cfg!(debug_assertions) { Profile::Debug } else { Profile::Release };
        let version = env!("MILLPOND_VERSION").to_owned();
        Self { version, profile, machine, seconds, rounds: ROUNDS, rows, left_out }
    }
}

/// How the command was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// With debug assertions.
    Debug,
    /// Without.
    Release,
}

/// What was measured on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor.
    pub cpu: String,
    /// How many threads run at once.
    pub cores: usize,
    /// The CUDA device that was measured.
    pub gpu: Option<String>,
}

/// One row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// What was done.
    pub name: String,
    /// On which device; `none` where there is none.
    pub device: String,
    /// What the figures are in.
    pub unit: Unit,
    /// Millpond's.
    pub millpond: Spread,
    /// mimalloc's.
    pub mimalloc: Option<Spread>,
    /// Those of CUDA's own pool.
    pub cuda: Option<Spread>,
    /// Millpond's time over mimalloc's, round by round.
    pub over_mimalloc: Option<Spread>,
    /// Millpond's time over that of CUDA's own pool, round by round.
    pub over_cuda: Option<Spread>,
}

impl Figures {
    pub(super) fn new(row: &Row<'_>, measured: &Measured) -> Self {
        let of = |list: &[(Who, Spread)], who| list.iter().find(|(it, _)| *it == who).map(|(_, spread)| *spread);
        Self {
            name: row.name.clone(),
            device: row.device.to_owned(),
            unit: row.unit,
            millpond: measured.figures[0].1,
            mimalloc: of(&measured.figures, Who::Mimalloc),
            cuda: of(&measured.figures, Who::Cuda),
            over_mimalloc: of(&measured.ratios, Who::Mimalloc),
            over_cuda: of(&measured.ratios, Who::Cuda),
        }
    }

    /// All figures of the row, Millpond's first.
    pub(super) fn all(&self) -> impl Iterator<Item = (Who, Spread)> {
        let others = [(Who::Mimalloc, self.mimalloc), (Who::Cuda, self.cuda)];
        let others = others.into_iter().filter_map(|(who, spread)| Some((who, spread?)));
        std::iter::once((Who::Millpond, self.millpond)).chain(others)
    }

    /// What was done, and where.
    pub(super) fn title(&self) -> String {
        title(&self.name, &self.device)
    }
}

/// What was done, and where that is a device that does it.
pub(super) fn title(name: &str, device: &str) -> String {
    match device {
        "none" => name.to_owned(),
        _ => format!("{device}: {name}"),
    }
}

/// A figure and its range.
pub(super) fn shown(spread: Spread, unit: Unit) -> [String; 2] {
    let digits = if spread.median < 100.0 { 1 } else { 0 };
    let number = |value: f64| format!("{value:.digits$}");
    let name = match unit {
        Unit::Nanoseconds => "ns",
        Unit::Rate => "M op/s",
    };
    [format!("{} {name}", number(spread.median)), format!("({} to {})", number(spread.min), number(spread.max))]
}

/// The middle of a spread, with its unit.
pub(super) fn middle(spread: Spread, unit: Unit) -> String {
    let [middle, _] = shown(spread, unit);
    middle
}
