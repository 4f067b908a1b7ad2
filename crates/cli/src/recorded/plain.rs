//! Plain lines: `a <id> <bytes> [<stream>]` allocates, `f <id> [<stream>]` frees.
//!
//! The common denominator of allocation datasets. Numbers are decimal. An id may be reused after its free. If the
//! stream is left out, it is stream 0 for an allocation and the allocation's own stream for a free. `#` begins a
//! comment line.

use std::io::BufRead;

use super::input::{Lines, shown};
use super::program::{At, Keys, Recorder};
use super::{Format, Place, Recorded, Refusal};

const SHAPE: &str = "a line is `a <id> <bytes> [<stream>]` or `f <id> [<stream>]`, with decimal numbers";

/// Returns `true` if a file with this beginning has this format. Its first line that is not a comment decides; if there
/// is none yet, the answer is `true`.
pub(crate) fn is_first(head: &[u8]) -> bool {
    let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_start);
    lines
        .find(|line| !matches!(line, [] | [b'#', ..]))
        .is_none_or(|line| matches!(line, [b'a' | b'f', b' ' | b'\t', ..]))
}

/// Reads all lines of a source.
///
/// # Errors
/// A line is not valid. The refusal has its number.
pub fn read(name: &str, source: impl BufRead) -> Result<Recorded, Refusal> {
    let mut lines = Lines::new(source);
    let mut recorder = Recorder::new(Keys::Recycled, |id| format!("id {id}"), "line");
    while let Some((line, text)) = lines.next_line()? {
        if !text.starts_with('#') {
            step(&mut recorder, line, text)?;
        }
    }
    Ok(Recorded::new(Format::Plain, recorder.finish(name, Place::Line(lines.last_line()))?))
}

/// Parses one line and records it.
fn step(recorder: &mut Recorder, line: u64, text: &str) -> Result<(), Refusal> {
    let refuse = |reason: String| Refusal::new(Place::Line(line), reason).help(SHAPE);
    let number = |what: &str, word: Option<&str>| -> Result<u64, Refusal> {
        let word = word.ok_or_else(|| refuse(format!("the line has no {what}")))?;
        word.parse().map_err(|_| refuse(format!("`{}` is not a number of {what}", shown(word))))
    };
    let mut words = text.split_ascii_whitespace();
    let kind = words.next().unwrap_or("");
    let done = match kind {
        "a" => {
            let (key, bytes) = (number("id", words.next())?, number("bytes", words.next())?);
            let stream = words.next().map(|word| number("stream", Some(word))).transpose()?.unwrap_or(0);
            recorder.alloc(key, bytes, stream, At::line(line))
        }
        "f" => {
            let key = number("id", words.next())?;
            let stream = words.next().map(|word| number("stream", Some(word))).transpose()?;
            recorder.free(key, stream, At::line(line))
        }
        other => return Err(refuse(format!("`{}` is neither `a` nor `f`", shown(other)))),
    };
    if let Some(word) = words.next() {
        return Err(refuse(format!("`{}` is one word too many", shown(word))));
    }
    done
}
