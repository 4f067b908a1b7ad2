//! The missing edge: which later operations on the same memory nothing orders with a delayed one.
//!
//! The checker says so, in a run without delays: its verdicts do not depend on times. It tells only of the delayed
//! operations, and of those after them on their streams, which a delay holds back as well. It tells in the order in
//! which the program makes its calls, so the nearest comes first.
//!
//! Mostly the delayed operation is the one that others should wait for. But a delay of the others may show the mistake
//! as well: what the host submits meanwhile then runs at once, without the time between that kept it apart.

use std::io::{self, Write};

use millpond_core::check::{Found, Shown};

use super::plan::Delay;
use super::trial::Trial;

/// The most findings that are shown for a delayed operation.
const SHOWN_MAX: usize = 3;

/// A delayed operation, as the checker knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Known {
    stream: u32,
    number: u32,
    /// The checker's name of the stream.
    who: String,
    /// The number of the operation among all of the stream.
    op: u64,
    /// The file, the line and the function.
    place: String,
}

/// What a checked run says.
#[derive(Debug, Default)]
pub(super) struct Edges {
    known: Vec<Known>,
    found: Vec<Found>,
    /// The earlier operations of findings, by stream and number: those that later ones should wait for.
    earlier: Vec<(u32, u32)>,
}

impl Edges {
    /// Reads the reports of a checked run.
    pub(super) fn read(trial: &Trial) -> Self {
        let mut edges = Edges::default();
        for line in &trial.report {
            match line.splitn(6, '\t').collect::<Vec<_>>()[..] {
                ["delayed", stream, number, who, op, place] => {
                    let (Ok(stream), Ok(number), Ok(op)) = (stream.parse(), number.parse(), op.parse()) else {
                        continue;
                    };
                    edges.known.push(Known { stream, number, who: who.to_owned(), op, place: place.to_owned() });
                }
                ["earlier", stream, number] => {
                    edges.earlier.extend(stream.parse().ok().zip(number.parse().ok()));
                }
                // The first report of a finding is made when it is found.
                ["finding", _, _, found] => {
                    let Ok(found) = serde_json::from_str::<Found>(found) else { continue };
                    if !edges.found.iter().any(|known| known.key() == found.key()) {
                        edges.found.push(found);
                    }
                }
                _ => {}
            }
        }
        edges
    }

    /// Returns the operations, by stream and number, whose delay alone may show a missing edge. Those that were delayed
    /// come first.
    pub(super) fn suspects(&self) -> Vec<(u32, u32)> {
        let is_delayed = |point: &(u32, u32)| self.known.iter().any(|known| (known.stream, known.number) == *point);
        let (mut first, others): (Vec<_>, Vec<_>) = self.earlier.iter().copied().partition(is_delayed);
        first.extend(others);
        first
    }

    /// Returns the place of a delayed operation.
    pub(super) fn place(&self, delay: Delay) -> Option<&str> {
        self.of(delay).map(|known| known.place.as_str()).filter(|place| !place.is_empty())
    }

    fn of(&self, delay: Delay) -> Option<&Known> {
        self.known.iter().find(|known| (known.stream, known.number) == (delay.stream, delay.number))
    }

    /// Prints the missing edges of a delayed operation.
    pub(super) fn show(&self, delay: Delay, err: &mut dyn Write) -> io::Result<()> {
        let Some(known) = self.of(delay) else {
            return writeln!(err, "millpond: shake: the checker did not come to that operation");
        };
        let is_it = |side: &Shown| side.who == known.who && side.op == Some(known.op);
        let is_from = |side: &Shown| side.who == known.who && side.op.is_some_and(|op| op >= known.op);
        let earlier = |is: &dyn Fn(&Shown) -> bool| -> Vec<&Found> {
            self.found.iter().filter(|found| found.earlier.iter().chain(&found.others).any(is)).collect()
        };
        let later = self.found.iter().filter(|found| found.later.iter().any(is_from)).collect::<Vec<_>>();
        let cases = [
            (earlier(&is_it), "nothing orders it with these later operations on the same memory"),
            (earlier(&is_from), "nothing orders what follows on its stream with these later operations on its memory"),
            (later, "it brings operations of other streams and of its own together that nothing orders"),
        ];
        let Some((shown, sentence)) = cases.into_iter().find(|case| !case.0.is_empty()) else {
            return writeln!(
                err,
                "millpond: shake: the checker knows of no operations of the device that use the same memory and are \
                 not ordered. The host may use that memory too early, or a kernel may reach it by an address that is \
                 not among its arguments"
            );
        };
        writeln!(err, "millpond: shake: {sentence}, nearest first:")?;
        for found in shown.iter().take(SHOWN_MAX) {
            writeln!(err, "  [{}] {}", found.kind, found.sentence)?;
            let word = |side: &Shown| if is_it(side) { "delayed" } else { "earlier" };
            let sides = found.earlier.iter().map(|side| (word(side), side));
            for (word, side) in sides.chain(found.later.iter().map(|side| ("later", side))) {
                writeln!(err, "    {word:<8} {}", described(side))?;
            }
            // Which streams of the program the numbers mean.
            let mut streams = found.notes.iter().filter(|note| note.contains(" is the "));
            streams.try_for_each(|note| writeln!(err, "    = note: {note}"))?;
            writeln!(err, "    = help: {}", found.help)?;
            found.calls.iter().try_for_each(|calls| writeln!(err, "    = help: {calls}"))?;
        }
        match shown.len().saturating_sub(SHOWN_MAX) {
            0 => {}
            more => writeln!(err, "  ... and {more} more, which come later")?,
        }
        let has_kernel = shown.iter().take(SHOWN_MAX).any(|found| found.sides().any(|side| side.kernel.is_some()));
        match has_kernel {
            true => writeln!(err, "  = note: a kernel counts as a write of all memory whose address it gets"),
            false => Ok(()),
        }
    }
}

/// Returns an operation as a line.
fn described(side: &Shown) -> String {
    let op = side.op.map(|op| format!(", op {op}")).unwrap_or_default();
    let function = side.function.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let kernel = side.kernel.as_ref().map(|name| format!(", kernel {name}")).unwrap_or_default();
    format!("{:<7} {:<18} {}{function}{kernel}", side.verb, format!("{}{op}", side.who), side.spot())
}
