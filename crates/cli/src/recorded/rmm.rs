//! Logs of RAPIDS Memory Manager's `logging_resource_adaptor`: CSV with a header line.
//!
//! ```text
//! Thread,Time,Action,Pointer,Size,Stream
//! 2342727,15:47:02.841961,allocate,0x10012400000,1048576,0
//! 2342727,15:47:02.841977,free,0x10012400000,1048576,0
//! ```
//!
//! `Action` is `allocate`, `free` (some documents have `deallocate`) or `allocate failure`. `Pointer` is hexadecimal or
//! `(nil)`. `Stream` is a hexadecimal handle with or without `0x`. The order of the lines is the program's order, with
//! all threads in one log. RMM logs an allocation after it was made and a free before it is done, so an address is
//! never live twice. A log copied from a terminal may lack the header. A log that was switched on late has frees of
//! memory whose allocation it does not have.

use std::io::BufRead;

use super::csv::Fields;
use super::input::{Lines, shown};
use super::program::{At, Keys, Recorder};
use super::{Format, Place, Recorded, Refusal};

const SHAPE: &str = "a line is `Thread,Time,Action,Pointer,Size,Stream`, as RMM's logging_resource_adaptor writes it";

/// The columns, in RMM's order.
const COLUMNS: [&str; 6] = ["Thread", "Time", "Action", "Pointer", "Size", "Stream"];

/// The indexes of the columns that are used.
#[derive(Clone, Copy)]
struct Layout {
    action: usize,
    pointer: usize,
    size: usize,
    stream: usize,
    count: usize,
}

/// Returns `true` if a file that begins with this line has this format.
pub(crate) fn is_first_line(line: &[u8]) -> bool {
    let mut fields = Fields::new();
    let is_read = std::str::from_utf8(line).is_ok_and(|line| fields.read(line.trim_end()).is_ok());
    is_read && (is_header(&fields) || is_action(fields.get(2)))
}

fn is_header(fields: &Fields) -> bool {
    fields.iter().any(|word| word == "Action")
}

fn is_action(word: &str) -> bool {
    matches!(word, "allocate" | "free" | "deallocate" | "allocate failure")
}

/// Reads a log.
///
/// # Errors
/// A line is not valid. The refusal has its number.
pub fn read(name: &str, source: impl BufRead) -> Result<Recorded, Refusal> {
    let mut lines = Lines::new(source);
    let mut recorder = Recorder::new(Keys::Recycled, |pointer| format!("pointer {pointer:#x}"), "line");
    let mut layout = layout(1, &COLUMNS)?;
    let (mut first, mut fields) = (true, Fields::new());
    while let Some((line, text)) = lines.next_line()? {
        fields.read(text).map_err(|reason| Refusal::new(Place::Line(line), reason).help(SHAPE))?;
        if std::mem::take(&mut first) && is_header(&fields) {
            layout = self::layout(line, &fields.iter().collect::<Vec<_>>())?;
        } else {
            step(&mut recorder, layout, line, &fields)?;
        }
    }
    Ok(Recorded::new(Format::Rmm, recorder.finish(name, Place::Line(lines.last_line()))?))
}

/// Finds the columns in a header line.
fn layout(line: u64, header: &[&str]) -> Result<Layout, Refusal> {
    let column = |name: &str| {
        let refuse = |what: String| Refusal::new(Place::Line(line), what).help(SHAPE);
        let mut found = header.iter().enumerate().filter(|(_, word)| **word == name);
        match (found.next(), found.next()) {
            (Some((column, _)), None) => Ok(column),
            (None, _) => Err(refuse(format!("no column `{name}` in the header"))),
            (Some(_), Some(_)) => Err(refuse(format!("column `{name}` is in the header more than once"))),
        }
    };
    let count = header.len();
    let [_, _, action, pointer, size, stream] = COLUMNS.map(column);
    Ok(Layout { action: action?, pointer: pointer?, size: size?, stream: stream?, count })
}

/// Parses one line and records it.
fn step(recorder: &mut Recorder, layout: Layout, line: u64, fields: &Fields) -> Result<(), Refusal> {
    let refuse = |reason: String| Refusal::new(Place::Line(line), reason).help(SHAPE);
    let count = fields.len();
    if count != layout.count {
        return Err(refuse(format!("{count} columns where the header has {}", layout.count)));
    }
    let word = |column: usize| fields.get(column);
    let hexadecimal = |what: &str, word: &str| match word {
        "(nil)" | "nullptr" => Ok(0),
        _ => u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16)
            .map_err(|_| refuse(format!("`{}` is not a hexadecimal {what}", shown(word)))),
    };
    let action = word(layout.action);
    if action == "allocate failure" {
        recorder.skipped.failed_allocs += 1;
        return Ok(());
    }
    let key = hexadecimal("pointer", word(layout.pointer))?;
    let stream = hexadecimal("stream", word(layout.stream))?;
    let bytes = word(layout.size);
    let bytes: u64 = bytes.parse().map_err(|_| refuse(format!("`{}` is not a number of bytes", shown(bytes))))?;
    match action {
        "allocate" => recorder.alloc(key, bytes, stream, At::line(line)),
        // RMM allows the free of a null pointer, and logs it.
        "free" | "deallocate" if key == 0 => Ok(()),
        "free" | "deallocate" => recorder.free_if_seen(key, Some(stream), At::line(line)),
        other => {
            let reason = format!("action `{}`; known are allocate, free, allocate failure", shown(other));
            Err(refuse(reason))
        }
    }
}
