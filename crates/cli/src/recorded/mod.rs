//! Recorded allocation programs, read from files of other programs.
//!
//! The content of a file decides its format, never the name. Files come from outside: nothing in them is trusted or
//! run. An invalid file is refused with the place, the reason and a remedy ([`Refusal`]). The memory used is
//! proportional to the input and bounded: lines by [`LINE_MAX`](input::LINE_MAX), pickles by
//! [`WHOLE_MAX`](input::WHOLE_MAX), programs by [`EVENTS_MAX`](program::EVENTS_MAX).
//!
//! | module | reads |
//! |---|---|
//! | [`json_lines`] | Millpond's own recordings: JSON lines |
//! | [`snapshot`] | PyTorch memory snapshots, with [`pickle`], `history` and `around` |
//! | [`rmm`] | the CSV logs of RAPIDS Memory Manager |
//! | [`plain`] | `a <id> <bytes>` and `f <id>` |
//! | [`operations`] | operation traces |
//!
//! Each may be gzipped (`gunzip`); `csv` splits lines of CSV into fields. `program` has what the formats share: it
//! leaves out steps of which the recording has only a part, and refuses impossible ones.

mod around;
pub(crate) mod csv;
pub(crate) mod gunzip;
mod history;
pub mod input;
pub mod json_lines;
pub mod operations;
pub mod pickle;
pub mod plain;
pub mod program;
pub mod rmm;
pub mod snapshot;

use std::cell::Cell;
use std::fmt;
use std::io::{BufReader, Read};
use std::path::Path;

pub use around::Around;
use gunzip::{GZIP, Gunzip};
pub use history::History;

pub use crate::refusal::{Place, Refusal};
pub use program::{Event, Program, Skipped};

/// A format of recordings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Millpond's own JSON lines.
    JsonLines,
    /// A PyTorch memory snapshot.
    Snapshot,
    /// A log of RAPIDS Memory Manager.
    Rmm,
    /// Lines of `a <id> <bytes>` and `f <id>`.
    Plain,
    /// An operation trace.
    Operations,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::JsonLines => "Millpond recording",
            Format::Snapshot => "PyTorch memory snapshot",
            Format::Rmm => "RMM log",
            Format::Plain => "plain lines",
            Format::Operations => "operation trace",
        })
    }
}

/// A program together with the data about its recording.
#[derive(Clone, PartialEq, Debug)]
pub struct Recorded {
    /// The program.
    pub program: Program,
    /// The format it was read from.
    pub format: Format,
    /// The device it ran on, if the file distinguishes several.
    pub gpu: Option<u32>,
    /// Steps of the recording that are not in the program.
    pub skipped: Skipped,
    /// The peak of the bytes that the recorded run's own allocator had reserved, if the file has it.
    pub recorded_reserved_bytes: Option<u64>,
    /// The data of a snapshot beyond the program.
    pub history: Option<History>,
}

impl Recorded {
    /// Makes a recording of which only the program is known.
    fn new(format: Format, (program, skipped): (Program, Skipped)) -> Self {
        Recorded { program, format, gpu: None, skipped, recorded_reserved_bytes: None, history: None }
    }
}

/// Reads a recording from any source of bytes, gzipped or not. `name` is the program's name unless the recording has
/// one.
///
/// # Errors
/// It is not a valid recording.
pub fn read(name: &str, source: impl Read) -> Result<Vec<Recorded>, Refusal> {
    let (head, source) = input::prefix(source)?;
    if !head.starts_with(GZIP) {
        return read_unzipped(name, source, None);
    }
    let (source, packed) = input::Counted::new(source);
    read_unzipped(name, Gunzip::new(BufReader::new(source)), Some(&packed))
}

/// Reads a recording that is not compressed, or no longer.
pub(crate) fn read_unzipped(
    name: &str,
    source: impl Read,
    packed: Option<&Cell<u64>>,
) -> Result<Vec<Recorded>, Refusal> {
    let (head, mut source) = input::prefix(source)?;
    match sniff(&head)? {
        Format::Snapshot => snapshot::read(name, &input::whole(&mut source, packed)?),
        Format::JsonLines => Ok(vec![json_lines::read(name, source)?]),
        Format::Rmm => Ok(vec![rmm::read(name, source)?]),
        Format::Plain => Ok(vec![plain::read(name, source)?]),
        Format::Operations => operations::read(name, source),
    }
}

/// Returns `true` if a file with this beginning is a recording.
pub(crate) fn is_recording(head: &[u8]) -> bool {
    sniff(head).is_ok()
}

/// Returns the refusal of a file that is gzipped twice. No reader unzips twice.
pub(crate) fn gzipped_twice() -> Refusal {
    Refusal::new(Place::Whole, "gzipped twice").help("run `gunzip` on the file once")
}

/// Returns the format of a file with this beginning.
fn sniff(head: &[u8]) -> Result<Format, Refusal> {
    let refuse = |reason: &str, help: &str| Err(Refusal::new(Place::Whole, reason).help(help));
    const FORMATS: &str = "a recording is JSON lines of Millpond, a PyTorch memory snapshot, an RMM log, an operation \
        trace, or lines of `a <id> <bytes>` and `f <id>`; each may be gzipped (a litmus program is for `check` and \
        `view`)";
    if operations::is_first(head) {
        return Ok(Format::Operations);
    }
    let text = head.trim_ascii_start();
    match text {
        [] => return refuse("the file is empty", "record the program again, or look whether the copy was cut short"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            return refuse("text in UTF-16", "write it as UTF-8: `iconv -f UTF-16 -t UTF-8`");
        }
        [0x80, 2..=5, ..] => return Ok(Format::Snapshot),
        [0x80, protocol, ..] => {
            return refuse(&format!("a pickle of protocol {protocol}; 2 to 5 are known"), FORMATS);
        }
        [b'P', b'K', 3, 4, ..] => {
            return refuse(
                "a zip archive (torch.save writes these)",
                "write the snapshot with torch.cuda.memory._dump_snapshot(), or unpack the archive",
            );
        }
        [0x1f, 0x8b, ..] => return Err(gzipped_twice()),
        text if json_lines::is_first(text) => return Ok(Format::JsonLines),
        [b'{', ..] | [b'[', b'{', ..] => return refuse("JSON, and not Millpond's JSON lines", FORMATS),
        _ => {}
    }
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or(text);
    if rmm::is_first_line(line) {
        Ok(Format::Rmm)
    } else if plain::is_first(text) {
        Ok(Format::Plain)
    } else {
        refuse("none of the known formats", FORMATS)
    }
}

/// Returns a file's name without folders and extensions.
pub(crate) fn file_stem(path: &Path) -> String {
    if path.as_os_str() == "-" {
        return "standard input".to_owned();
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let mut stem = name.as_ref();
    for ending in [".gz", ".jsonl", ".json", ".pickle", ".pkl", ".csv", ".txt", ".trace", ".litmus"] {
        stem = stem.strip_suffix(ending).unwrap_or(stem);
    }
    if stem.is_empty() { name.into_owned() } else { stem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_known_by_content() {
        assert_eq!(sniff(b"\x80\x04\x95"), Ok(Format::Snapshot));
        assert_eq!(sniff(b"\n{\"name\": 1}"), Ok(Format::JsonLines));
        assert_eq!(sniff(b"Thread,Time,Action,Pointer,Size,Stream\n"), Ok(Format::Rmm));
        assert_eq!(sniff(b"17,14:21:19.998533,allocate,0x30a000000,256,0x2"), Ok(Format::Rmm));
        assert_eq!(sniff(b"a 0 512\nf 0"), Ok(Format::Plain));
        for wrong in [&b""[..], b"  \n ", b"\x80\x07", b"PK\x03\x04", b"\x7fELF", b"hello\n", b"\x1f\x8b\x08"] {
            assert!(sniff(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_lose_folders_and_endings() {
        assert_eq!(file_stem(Path::new("a/b/gpt2.jsonl.gz")), "gpt2");
        assert_eq!(file_stem(Path::new("snapshot.pickle")), "snapshot");
        assert_eq!(file_stem(Path::new(".gz")), ".gz");
    }
}
