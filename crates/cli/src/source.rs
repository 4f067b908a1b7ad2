//! Input files of all subcommands: opened once (so that pipes work), unzipped, and recognised by their content.
//!
//! `-` is standard input. A byte order mark before text is skipped. A file for another subcommand is refused with that
//! subcommand's name.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use millpond_core::trace::ops::MAGIC;
use millpond_litmus::Program;

use crate::recorded::csv::Fields;
use crate::recorded::gunzip::{GZIP, Gunzip};
use crate::recorded::input::{self, Counted, Source};
use crate::recorded::{self, Place, Recorded, Refusal};

/// The longest litmus program, in bytes.
const TEXT_MAX: u64 = 1 << 20;

/// The kind of a file, as far as its beginning shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// An operation trace.
    Trace,
    /// A litmus program.
    Litmus,
    /// A recording of allocations and frees.
    Recording,
    /// A table of lifetimes.
    Table,
    /// None of these, or an empty file.
    Other,
}

/// An open file, with its content unzipped.
pub(crate) struct Opened {
    source: Source<Box<dyn Read>>,
    /// The beginning of the content.
    head: Vec<u8>,
    /// For a gzipped file: the number of compressed bytes read so far.
    packed: Option<Rc<Cell<u64>>>,
    is_called_litmus: bool,
}

impl Opened {
    /// Opens a file; `-` is standard input. Refuses a directory, a file whose beginning cannot be unzipped, and a file
    /// that is gzipped twice.
    pub(crate) fn open(path: &Path) -> Result<Self, Refusal> {
        let source: Box<dyn Read> = match path.as_os_str() == "-" {
            true => Box::new(io::stdin()),
            false => Box::new(input::open(path)?),
        };
        let is_called_litmus = path.extension().is_some_and(|it| it == "litmus");
        let (head, source) = input::prefix(source)?;
        if !head.starts_with(GZIP) {
            return Ok(Self { source, head, packed: None, is_called_litmus });
        }
        let (source, packed) = Counted::new(source);
        let unzipped: Box<dyn Read> = Box::new(Gunzip::new(BufReader::new(source)));
        let (head, source) = input::prefix(unzipped)?;
        match head.starts_with(GZIP) {
            true => Err(recorded::gzipped_twice()),
            false => Ok(Self { source, head, packed: Some(packed), is_called_litmus }),
        }
    }

    /// Returns the kind of the content.
    pub(crate) fn kind(&self) -> Kind {
        match &self.head[..] {
            head if head.len() >= MAGIC.len() && head.starts_with(&MAGIC) => Kind::Trace,
            head if !head.is_empty() && MAGIC.starts_with(head) => Kind::Trace,
            _ if self.is_called_litmus => Kind::Litmus,
            head if is_table(head) => Kind::Table,
            head if is_litmus(head) => Kind::Litmus,
            head if recorded::is_recording(head) && !is_silent(head) => Kind::Recording,
            _ => Kind::Other,
        }
    }

    /// Returns the refusal for a subcommand that reads other kinds, if the kind is known.
    pub(crate) fn refuse(&self, subcommand: &str) -> Option<Refusal> {
        let (what, meant) = match self.kind() {
            Kind::Trace => (
                "an operation trace",
                "`millpond check` judges it, `millpond view` draws it, `millpond replay` serves its memory",
            ),
            Kind::Litmus => ("a litmus program", "`millpond check` judges it, `millpond view` draws it"),
            Kind::Recording => (
                "a recording of allocations and frees, in which nothing is known of their order",
                "`millpond replay` serves it, `millpond view` draws it",
            ),
            Kind::Table if subcommand == "view" => ("a table of lifetimes", "`millpond plan --svg FILE` draws it"),
            Kind::Table => ("a table of lifetimes", "`millpond plan` places it"),
            Kind::Other => return None,
        };
        Some(Refusal::new(Place::Whole, format!("{what}: not for `millpond {subcommand}`")).help(meant))
    }

    /// Returns `true` if the file has no content.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// Returns the content.
    pub(crate) fn unzipped(self) -> Box<dyn BufRead> {
        Box::new(self.source)
    }

    /// Returns the recordings in the file. `name` is their name unless they have one.
    pub(crate) fn recordings(self, name: &str) -> Result<Vec<Recorded>, Refusal> {
        recorded::read_unzipped(name, self.source, self.packed.as_deref())
    }
}

/// Reads a file, or standard input for `-`. A snapshot or a trace of several devices gives one program for each device
/// with events.
///
/// # Errors
/// The file cannot be read or is not a valid recording. The refusal names the file.
pub fn read_file(path: &Path) -> Result<Vec<Recorded>, Refusal> {
    let found = Opened::open(path).and_then(|opened| match opened.kind() {
        Kind::Recording | Kind::Trace | Kind::Other => opened.recordings(&input::shown(&recorded::file_stem(path))),
        _ => Err(opened.refuse("replay").expect("its kind is known")),
    });
    found.map_err(|refusal| refusal.in_file(path))
}

/// Reads the text of a file that can only be a litmus program.
///
/// # Errors
/// It is not text (with the line that is not), or it is too long.
pub(crate) fn text(source: impl Read) -> Result<String, Refusal> {
    let mut bytes = Vec::new();
    let read = source.take(TEXT_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| Refusal::from_read(Place::Whole, &error))?;
    let help = concat!("litmus programs: ", page!("litmus"), ", operation traces: ", page!("formats"));
    if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
        return Err(Refusal::new(line_of(&bytes, at), "a zero byte: neither a litmus program nor an operation trace")
            .help(help));
    }
    if bytes.len() as u64 > TEXT_MAX {
        return Err(Refusal::new(Place::Whole, "text of more than 1 MiB: too long for a litmus program").help(help));
    }
    String::from_utf8(bytes).map_err(|error| {
        let (at, bytes) = (error.utf8_error().valid_up_to(), error.into_bytes());
        let what = format!("byte {:#04x} is not UTF-8: neither a litmus program nor an operation trace", bytes[at]);
        Refusal::new(line_of(&bytes, at), what).help(help)
    })
}

/// Returns the line of a byte.
fn line_of(bytes: &[u8], at: usize) -> Place {
    Place::Line(1 + bytes[..at].iter().filter(|&&byte| byte == b'\n').count() as u64)
}

/// Returns `true` if the first line names the columns of a table of lifetimes.
fn is_table(head: &[u8]) -> bool {
    let line = head.trim_ascii_start().split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line.trim_ascii_end()).to_ascii_lowercase();
    let mut fields = Fields::new();
    fields.read(&line).is_ok() && ["lower", "upper", "size"].iter().all(|column| fields.iter().any(|it| it == *column))
}

/// Returns `true` if there are only comments, which can begin both litmus programs and plain recordings.
fn is_silent(head: &[u8]) -> bool {
    head.split(|&byte| byte == b'\n').all(|line| matches!(line.trim_ascii_start(), [] | [b'#', ..]))
}

/// Returns `true` if the complete lines are a litmus program or the beginning of one.
fn is_litmus(head: &[u8]) -> bool {
    let is_whole = (head.len() as u64) < input::PREFIX;
    let end = if is_whole { head.len() } else { head.iter().rposition(|&byte| byte == b'\n').unwrap_or(0) };
    let Ok(text) = std::str::from_utf8(&head[..end]) else { return false };
    let is_statement = |line: &str| !line.split('#').next().unwrap_or_default().trim().is_empty();
    let first = text.lines().position(is_statement);
    first.is_some_and(|first| match Program::parse(text) {
        Ok(program) => !program.ops().is_empty(),
        // After a valid first statement a later one may be wrong, or the end of the program may be missing.
        Err(refusal) => refusal.line as usize > first + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_tell_what_is_in_a_file() {
        assert!(is_table(b"id,lower,upper,size\n0,1,2,3\n") && is_table(b"Size, Upper,Lower\n"));
        assert!(is_table(b"\"id\",\"lower\",\"upper\",\"size\"\r\n\"a\",1,2,3\r\n"));
        assert!(!is_table(b"Thread,Time,Action,Pointer,Size,Stream\n"));
        assert!(is_litmus(b"# words\nstream s\nfree s x\n") && is_litmus(b"stream s\nrepeat 3\n"));
        assert!(!is_litmus(b"# words\n") && !is_litmus(b"hello\nstream s\n") && !is_litmus(b"\xff"));
    }
}
