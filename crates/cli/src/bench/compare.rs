//! `--compare`: this run's figures beside those of an earlier one, and which changed by more than the spread.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::figures::{Figures, Machine, Profile, Run, middle, title};
use super::rounds::Spread;
use super::rows::{Unit, Who};
use crate::recorded::{Place, Refusal};
use crate::source::Opened;
use crate::text_table::{render, table};

/// A report has a few KiB.
const BYTES_MAX: u64 = 1 << 20;

/// How a run stands to an earlier one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// The file of the earlier run.
    pub file: String,
    /// Its version.
    pub version: String,
    /// How that was built.
    pub profile: Profile,
    /// What it ran on.
    pub machine: Machine,
    /// The figures that both have.
    pub rows: Vec<Ratio>,
    /// The figures that one of them has.
    pub unmatched: Vec<String>,
    /// Whether both ran on the same machine with the same build profile, as far as that is known.
    pub is_same_machine: bool,
}

/// A figure then and now.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Ratio {
    /// What was done.
    pub name: String,
    /// On which device.
    pub device: String,
    /// By whom.
    pub who: Who,
    /// What the figures are in.
    pub unit: Unit,
    /// The earlier run's.
    pub before: Spread,
    /// This run's.
    pub now: Spread,
    /// This run's time over the earlier one's.
    pub ratio: f64,
    /// Whether it changed by more than the spread.
    pub change: Change,
}

/// Whether a figure changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The rounds of both runs have values in common.
    None,
    /// All rounds are faster than all of the earlier run.
    Faster,
    /// All rounds are slower than all of the earlier run.
    Slower,
}

/// Reads an earlier run's JSON.
pub(super) fn read(path: &Path) -> Result<Run, Refusal> {
    let refuse = |reason: String| {
        let help = "name a file that `millpond bench --json > FILE` wrote";
        Refusal::new(Place::Whole, reason).help(help).in_file(path)
    };
    let source = Opened::open(path).map(Opened::unzipped).map_err(|refusal| refusal.in_file(path))?;
    let mut text = Vec::new();
    let read = source.take(BYTES_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| refuse(format!("cannot be read: {error}")))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(refuse("more than 1 MiB: no figures of `millpond bench`".to_owned()));
    }
    let run: Run = serde_json::from_slice(&text).map_err(|error| {
        let why = match error.is_data() {
            // Of an object the reason names a field.
            true if text.trim_ascii_start().starts_with(b"{") => error.to_string(),
            true => "JSON, but no object".to_owned(),
            false => format!("no JSON at line {}, byte {}", error.line(), error.column()),
        };
        refuse(format!("not the figures of `millpond bench`: {why}"))
    })?;
    let wrong = run.rows.iter().find(|row| row.all().any(|(_, spread)| !spread.is_right()));
    if let Some(row) = wrong {
        return Err(refuse(format!("`{}` has figures that nothing measures", row.name.escape_debug())));
    }
    Ok(run)
}

impl Compared {
    /// This run's figures beside an earlier one's.
    pub(super) fn new(path: &Path, before: Run, now: &Run) -> Self {
        let (mut rows, mut unmatched) = (Vec::new(), Vec::new());
        for row in &now.rows {
            let is_it = |it: &&Figures| (&it.name, &it.device, it.unit) == (&row.name, &row.device, row.unit);
            let Some(then) = before.rows.iter().find(is_it) else {
                unmatched.push(format!("{}: only in this run", row.title()));
                continue;
            };
            for (who, spread) in row.all() {
                let Some((_, before)) = then.all().find(|(it, _)| *it == who) else { continue };
                rows.push(Ratio::new((&row.name, &row.device), who, row.unit, before, spread));
            }
        }
        let is_gone = |it: &&Figures| !now.rows.iter().any(|row| row.name == it.name && row.device == it.device);
        unmatched
            .extend(before.rows.iter().filter(is_gone).map(|it| format!("{}: only in the earlier run", it.title())));
        let is_same_machine = before.machine == now.machine && before.profile == now.profile;
        let Run { version, profile, machine, .. } = before;
        Self { file: path.display().to_string(), version, profile, machine, rows, unmatched, is_same_machine }
    }

    /// Whether Millpond became slower somewhere.
    pub(super) fn is_slower(&self) -> bool {
        self.rows.iter().any(|it| it.who == Who::Millpond && it.change == Change::Slower)
    }

    /// The comparison for people.
    pub(super) fn text(&self) -> String {
        let bold = Style::new().bold();
        let mut text = format!("{bold}against {}{bold:#}  millpond {}", self.file, self.version.escape_debug());
        if !self.is_same_machine {
            let (cpu, cores) = (self.machine.cpu.escape_debug(), self.machine.cores);
            let gpu = self.machine.gpu.as_deref().map_or(String::new(), |gpu| format!(", {}", gpu.escape_debug()));
            let _ = write!(text, "; it ran on another machine or build: {cpu}, {cores} threads{gpu}");
        }
        text.push('\n');
        let mut cells = table();
        cells.add_row(["", "before", "now", "now / before, time", ""]);
        for row in &self.rows {
            let (name, change) = match row.who {
                Who::Millpond => (title(&row.name, &row.device), row.change.words()),
                // What others' figures did says what the machine did.
                other => (format!("  {}", other.name()), row.change.words()),
            };
            let (before, now) = (middle(row.before, row.unit), middle(row.now, row.unit));
            cells.add_row([name, before, now, format!("{:.2}", row.ratio), change.to_owned()]);
        }
        text.push_str(&render(cells));
        for line in &self.unmatched {
            let _ = writeln!(text, "{}", line.escape_debug());
        }
        let changed = self.rows.iter().filter(|row| row.change != Change::None).count();
        let colour = if self.is_slower() { AnsiColor::Red } else { AnsiColor::Green };
        let style = Style::new().fg_color(Some(colour.into()));
        let all = self.rows.len();
        let _ = writeln!(text, "{style}{changed} of {all} figures changed by more than the spread{style:#}");
        text
    }
}

impl Ratio {
    fn new((name, device): (&str, &str), who: Who, unit: Unit, before: Spread, now: Spread) -> Self {
        let (is_less, is_more) = (now.max < before.min, now.min > before.max);
        let (ratio, is_faster, is_slower) = match unit {
            Unit::Nanoseconds => (now.median / before.median, is_less, is_more),
            Unit::Rate => (before.median / now.median, is_more, is_less),
        };
        let change = match (is_faster, is_slower) {
            (true, _) => Change::Faster,
            (_, true) => Change::Slower,
            _ => Change::None,
        };
        Self { name: name.to_owned(), device: device.to_owned(), who, unit, before, now, ratio, change }
    }
}

impl Change {
    fn words(self) -> &'static str {
        match self {
            Change::None => "",
            Change::Faster => "faster",
            Change::Slower => "slower",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_more_than_the_spread() {
        let spread = |min: f64, max: f64| Spread { min, median: (min + max) / 2.0, max };
        let of = |unit, before, now| {
            let it = Ratio::new(("row", "sim"), Who::Millpond, unit, before, now);
            (it.ratio, it.change)
        };
        let (low, high) = (spread(10.0, 20.0), spread(21.0, 39.0));
        assert_eq!(of(Unit::Nanoseconds, low, high), (2.0, Change::Slower));
        assert_eq!(of(Unit::Nanoseconds, high, low), (0.5, Change::Faster));
        assert_eq!(of(Unit::Rate, low, high), (0.5, Change::Faster));
        assert_eq!(of(Unit::Rate, high, low), (2.0, Change::Slower));
        assert_eq!(of(Unit::Nanoseconds, low, spread(20.0, 25.0)).1, Change::None);
    }
}
