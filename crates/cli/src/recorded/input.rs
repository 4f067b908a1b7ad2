//! Bytes and lines from an untrusted source: bounded in size, with positions for error messages.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::Path;
use std::rc::Rc;

use crate::refusal::{Place, Refusal, cause};

/// The longest line in bytes, 1 MiB: a thousand times as much as any format needs.
pub const LINE_MAX: usize = 1 << 20;

/// The largest number of bytes of blank lines, 16 MiB. A small gzipped file can have any number of blank lines.
pub const BLANK_MAX: usize = 1 << 24;

/// The largest number of bytes of a file that must be held in memory whole, 512 MiB.
pub const WHOLE_MAX: u64 = 1 << 29;

/// The number of bytes at a file's beginning that decide its format.
pub(crate) const PREFIX: u64 = 4096;

/// A source whose beginning has been read and put back.
pub(crate) type Source<R> = BufReader<Chain<Cursor<Vec<u8>>, R>>;

/// The byte order mark that some programs write before UTF-8 text.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Opens a file. Refuses a directory.
pub(crate) fn open(path: &Path) -> Result<File, Refusal> {
    if path.is_dir() {
        let help = "name the files in it one by one, for example with a pattern of the shell";
        return Err(Refusal::new(Place::Whole, "a directory, not a file").help(help));
    }
    File::open(path).map_err(|error| {
        let refusal = Refusal::new(Place::Whole, format!("cannot be opened: {}", cause(&error)));
        match error.kind() {
            io::ErrorKind::NotFound => refusal.help(match near(path) {
                Some(other) => format!("did you mean `{other}`?"),
                None => "look at the path: it is taken from the folder you are in".to_owned(),
            }),
            io::ErrorKind::PermissionDenied => refusal.help("give yourself the right to read it"),
            _ => refusal,
        }
    })
}

/// Returns the file in the same folder whose name is most similar, if any is similar enough.
fn near(path: &Path) -> Option<String> {
    /// The number of files that are compared. A folder with more of them has many similar names.
    const LOOKED_AT: usize = 1000;
    let name = path.file_name()?.to_string_lossy().into_owned();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?.flatten().take(LOOKED_AT);
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let alike = names.map(|other| (strsim::jaro_winkler(&name, &other), other));
    let (likeness, best) = alike.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let shown = folder.map_or_else(|| best.clone(), |folder| folder.join(&best).display().to_string());
    (likeness > 0.85).then_some(shown)
}

/// Returns the first bytes of a source, up to 4 KiB, and the source with these bytes put back. A byte order mark is
/// removed. Reads until it has all of these bytes, so that the choice of a format does not depend on how the source
/// splits its data.
pub(crate) fn prefix<R: Read>(mut source: R) -> Result<(Vec<u8>, Source<R>), Refusal> {
    let mut head = Vec::new();
    let read = source.by_ref().take(PREFIX).read_to_end(&mut head);
    read.map_err(|error| Refusal::from_read(Place::Byte(head.len() as u64), &error))?;
    if head.starts_with(BYTE_ORDER_MARK) {
        head.drain(..BYTE_ORDER_MARK.len());
    }
    Ok((head.clone(), BufReader::with_capacity(1 << 16, Cursor::new(head).chain(source))))
}

/// The largest ratio of a gzipped snapshot's content to its size. Gzip itself reaches a thousand, for pure repetition.
/// Content of up to `PACKED_ALWAYS` bytes is allowed at any ratio.
const PACKED_MAX: u64 = 200;
const PACKED_ALWAYS: u64 = 32 << 20;

/// A source that counts the bytes read from it.
pub(crate) struct Counted<R> {
    source: R,
    read: Rc<Cell<u64>>,
}

impl<R> Counted<R> {
    /// Returns the source and its count.
    pub(crate) fn new(source: R) -> (Self, Rc<Cell<u64>>) {
        let read = Rc::<Cell<u64>>::default();
        (Self { source, read: Rc::clone(&read) }, read)
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}

/// Reads all bytes of a source. `packed` is the number of bytes of a gzipped file that were read for them.
pub(crate) fn whole(source: &mut impl Read, packed: Option<&Cell<u64>>) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    while bytes.len() as u64 <= WHOLE_MAX {
        let piece = source.by_ref().take(PACKED_ALWAYS / 8).read_to_end(&mut bytes);
        if piece.map_err(|error| Refusal::from_read(Place::Byte(bytes.len() as u64), &error))? == 0 {
            break;
        }
        let most = packed.map_or(u64::MAX, |packed| PACKED_ALWAYS.max(packed.get().saturating_mul(PACKED_MAX)));
        if bytes.len() as u64 > most {
            let reason = format!("a gzipped snapshot of more than {PACKED_MAX} times the size of its file");
            return Err(Refusal::new(Place::Byte(most), reason).help("no snapshot is that empty: record it again"));
        }
    }
    if bytes.len() as u64 > WHOLE_MAX {
        let help = "record fewer events: _record_memory_history(max_entries=1000000)";
        return Err(Refusal::new(Place::Byte(WHOLE_MAX), "more than 512 MiB of snapshot").help(help));
    }
    Ok(bytes)
}

/// The lines of a source, counted from 1.
pub(crate) struct Lines<R> {
    source: R,
    buffer: Vec<u8>,
    line: u64,
    /// The number of bytes of blank lines that were skipped.
    blank: usize,
}

impl<R: BufRead> Lines<R> {
    /// Starts at the beginning of a source.
    pub(crate) fn new(source: R) -> Self {
        Self { source, buffer: Vec::new(), line: 0, blank: 0 }
    }

    /// Returns the next line that is not blank, with its number, or `None` at the end.
    pub(crate) fn next_line(&mut self) -> Result<Option<(u64, &str)>, Refusal> {
        loop {
            self.buffer.clear();
            self.line += 1;
            let here = Place::Line(self.line);
            let mut bounded = self.source.by_ref().take(LINE_MAX as u64 + 1);
            bounded.read_until(b'\n', &mut self.buffer).map_err(|error| Refusal::from_read(here, &error))?;
            if self.buffer.is_empty() {
                return Ok(None);
            }
            if self.buffer.len() > LINE_MAX {
                let help = "a line holds one event: is this a recording?";
                return Err(Refusal::new(here, "longer than 1 MiB").help(help));
            }
            if !self.buffer.trim_ascii().is_empty() {
                break;
            }
            self.blank += self.buffer.len();
            if self.blank > BLANK_MAX {
                return Err(Refusal::new(here, "more than 16 MiB of blank lines").help("is this a recording?"));
            }
        }
        match std::str::from_utf8(self.buffer.trim_ascii()) {
            Ok(text) => Ok(Some((self.line, text))),
            Err(_) => Err(Refusal::new(Place::Line(self.line), "not text (no UTF-8)")
                .help("the file is damaged, or of another kind: copy or record it again")),
        }
    }

    /// Returns the number of lines, at least 1. Errors at the end of a file are reported there.
    pub(crate) fn last_line(&self) -> u64 {
        self.line.saturating_sub(1).max(1)
    }
}

/// Returns a word of a file in a form that is safe to print: short, and without control characters.
pub(crate) fn shown(word: &str) -> String {
    shown_up_to(40, word)
}

/// Returns a text of a file in a form that is safe to print, with at most `most` of its characters.
pub(crate) fn shown_up_to(most: usize, text: &str) -> String {
    let word = text;
    let mut text: String = word.chars().take(most).flat_map(char::escape_debug).collect();
    if word.chars().nth(most).is_some() {
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_and_blank_ones_left_out() {
        let mut lines = Lines::new(&b"one\n\n  \r\ntwo\r\nthree"[..]);
        assert_eq!(lines.next_line(), Ok(Some((1, "one"))));
        assert_eq!(lines.next_line(), Ok(Some((4, "two"))));
        assert_eq!(lines.next_line(), Ok(Some((5, "three"))));
        assert_eq!(lines.next_line(), Ok(None));
        assert_eq!(lines.last_line(), 5);
    }

    #[test]
    fn a_line_without_end_is_refused_at_its_bound() {
        let endless = io::repeat(b'x');
        let error = Lines::new(BufReader::new(endless)).next_line().unwrap_err();
        assert!(error.to_string().starts_with("line 1: longer than 1 MiB"), "{error}");
        let mut lines = Lines::new(&b"ok\n\xff\xfe\n"[..]);
        lines.next_line().unwrap();
        assert!(lines.next_line().unwrap_err().to_string().starts_with("line 2: not text"));
    }

    #[test]
    fn blank_lines_without_end_are_refused_at_their_bound() {
        for blank in [b'\n', b'\r', b' '] {
            let line = vec![blank; 1 << 19];
            let endless = BufReader::new((&line[..]).chain(io::repeat(b'\n')));
            let error = Lines::new(endless).next_line().unwrap_err();
            assert!(error.to_string().contains("more than 16 MiB of blank lines"), "{error}");
        }
    }

    #[test]
    fn words_are_shown_short_and_harmless() {
        assert_eq!(shown("a\x1b[31m"), "a\\u{1b}[31m");
        assert_eq!(shown(&"x".repeat(50)), format!("{}...", "x".repeat(40)));
    }
}
