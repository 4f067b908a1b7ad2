//! Millpond's own recordings: one JSON object that describes the run, then one JSON array for each event.
//!
//! ```text
//! {"name": "gpt2_train", "peak_reserved": 17150509056, "seconds": 12.169}
//! ["a", 0, 154389504, 0, 2]      allocation 0: bytes, stream, microseconds
//! ["f", 0, 0, 31415]             it is freed: stream, microseconds
//! ```
//!
//! Ids are unique in a file, sizes are at least 1, and the microseconds may be left out. Unknown keys of the object
//! are ignored.

use std::borrow::Cow;
use std::fmt;
use std::io::BufRead;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};

use super::input::{Lines, shown};
use super::program::{At, Keys, Recorder};
use super::{Format, Place, Recorded, Refusal};

const HEADER: &str = "the first line describes the run, for example {\"name\": \"training\", \"seconds\": 1.5}";
const SHAPE: &str = "an event is [\"a\", id, bytes, stream, microseconds] or [\"f\", id, stream, microseconds]";

/// Returns `true` if a file with this beginning has this format: it starts with an object that describes a run or is
/// empty, or with an object that an event follows.
pub(crate) fn is_first(head: &[u8]) -> bool {
    let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let is_event = |line: &[u8]| line.strip_prefix(b"[").is_some_and(|rest| rest.trim_ascii_start().starts_with(b"\""));
    match (lines.next(), lines.next()) {
        (Some(line @ [b'{', ..]), second) => {
            let keys: [&[u8]; 3] = [b"\"name\"", b"\"seconds\"", b"\"peak_reserved\""];
            let says = |key: &&[u8]| line.windows(key.len()).any(|it| it == *key);
            line == b"{}" || second.is_some_and(is_event) || keys.iter().any(says)
        }
        (Some(line), _) => is_event(line),
        (None, _) => false,
    }
}

/// The first line.
#[derive(Deserialize)]
struct Header {
    name: Option<String>,
    seconds: Option<f64>,
    peak_reserved: Option<u64>,
}

/// Any other line.
enum Row {
    Alloc { id: u64, bytes: u64, stream: u64 },
    Free { id: u64, stream: u64 },
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = Row;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event (an array)")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut row: A) -> Result<Row, A::Error> {
        let kind: Cow<'_, str> = row.next_element()?.ok_or_else(|| A::Error::custom("an empty event"))?;
        let mut number = |what: &str| -> Result<u64, A::Error> {
            match row.next_element::<u64>() {
                Ok(Some(number)) => Ok(number),
                Ok(None) => Err(A::Error::custom(format!("the {what} is missing"))),
                Err(error) => Err(A::Error::custom(format!("{what}: {error}"))),
            }
        };
        let event = match kind.as_ref() {
            "a" => Row::Alloc { id: number("id")?, bytes: number("bytes")?, stream: number("stream")? },
            "f" => Row::Free { id: number("id")?, stream: number("stream")? },
            other => return Err(A::Error::custom(format!("event `{}` is neither `a` nor `f`", shown(other)))),
        };
        row.next_element::<f64>()?;
        Ok(event)
    }
}

/// Reads a recording.
///
/// # Errors
/// A line is not valid. The refusal has its number.
pub fn read(name: &str, source: impl BufRead) -> Result<Recorded, Refusal> {
    let mut lines = Lines::new(source);
    let header = match lines.next_line()? {
        Some((line, text)) => header(line, text)?,
        None => return Err(Refusal::new(Place::Line(1), "the file is empty").help(HEADER)),
    };
    let mut recorder = Recorder::new(Keys::Unique, |id| format!("id {id}"), "line");
    while let Some((line, text)) = lines.next_line()? {
        let row = serde_json::from_str(text).map_err(|error| wrong(line, &error, SHAPE))?;
        match row {
            Row::Alloc { id, bytes, stream } => recorder.alloc(id, bytes, stream, At::line(line))?,
            Row::Free { id, stream } => recorder.free(id, Some(stream), At::line(line))?,
        }
    }
    let name = header.name.map_or_else(|| name.to_owned(), |name| shown(&name));
    let mut recorded = Recorded::new(Format::JsonLines, recorder.finish(name, Place::Line(lines.last_line()))?);
    recorded.program.seconds = header.seconds;
    recorded.recorded_reserved_bytes = header.peak_reserved;
    Ok(recorded)
}

/// Parses the first line.
fn header(line: u64, text: &str) -> Result<Header, Refusal> {
    if !text.starts_with('{') {
        return Err(Refusal::new(Place::Line(line), "the line that describes the run is missing").help(HEADER));
    }
    let header: Header = serde_json::from_str(text).map_err(|error| wrong(line, &error, HEADER))?;
    match header.seconds {
        Some(seconds) if seconds < 0.0 => {
            Err(Refusal::new(Place::Line(line), format!("a run of {seconds} seconds")).help(HEADER))
        }
        _ => Ok(header),
    }
}

/// Describes a line that is not the expected JSON. The parser counts lines within its input, so its line is always 1;
/// only its column is useful.
fn wrong(line: u64, error: &serde_json::Error, help: &str) -> Refusal {
    let text = error.to_string();
    let reason = match text.find(" at line ") {
        Some(end) => &text[..end],
        None => &text,
    };
    // The parser quotes its input, escaped but in full length.
    const QUOTED: usize = 200;
    let reason = match reason.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", &reason[..end]),
        None => reason.to_owned(),
    };
    let column = if error.column() > 0 { format!(" (column {})", error.column()) } else { String::new() };
    Refusal::new(Place::Line(line), format!("{reason}{column}")).help(help)
}
