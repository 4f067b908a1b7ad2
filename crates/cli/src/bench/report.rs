//! What a run measured, as one plain value: the JSON is this value, the text is made of it.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::compare::Compared;
use super::figures::{Machine, Profile, Run, shown};
use crate::text_table::{render, table};

/// A run, and how it stands to an earlier one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// What was measured.
    #[serde(flatten)]
    pub run: Run,
    /// How that stands to the figures of an earlier run, where that was asked for.
    pub compared: Option<Compared>,
}

impl Report {
    /// The report for people.
    pub(super) fn text(&self) -> String {
        let bold = Style::new().bold();
        let Machine { cpu, cores, gpu } = &self.run.machine;
        let mut text = format!("{bold}millpond {}{bold:#}  {cpu}, {cores} threads", self.run.version);
        if let Some(gpu) = gpu {
            let _ = write!(text, "; {gpu}");
        }
        let _ = writeln!(text, "; {} rounds, median (lowest to highest)\n", self.run.rounds);
        let mut cells = table();
        cells.add_row(["", "Millpond", "", "beside it", "", "", "Millpond / it", ""]);
        for row in &self.run.rows {
            let mut others = row.all().skip(1);
            let (who, theirs) = others.next().map_or(("", None), |(who, spread)| (who.name(), Some(spread)));
            let ratio = row.over_mimalloc.or(row.over_cuda);
            let [[ours, our_range], [theirs, their_range]] = [Some(row.millpond), theirs]
                .map(|spread| spread.map_or_else(Default::default, |it| shown(it, row.unit)));
            let [ratio, ratio_range] = ratio.map_or_else(Default::default, |it| {
                [format!("{:.2}", it.median), format!("({:.2} to {:.2})", it.min, it.max)]
            });
            cells.add_row([row.title(), ours, our_range, who.to_owned(), theirs, their_range, ratio, ratio_range]);
        }
        text.push_str(&render(cells));
        if self.run.profile == Profile::Debug {
            let yellow = Style::new().fg_color(Some(AnsiColor::Yellow.into()));
            let _ = writeln!(text, "\n{yellow}note:{yellow:#} built with debug assertions: a release is faster");
        }
        if let Some(compared) = &self.compared {
            text.push('\n');
            text.push_str(&compared.text());
        }
        text
    }
}
