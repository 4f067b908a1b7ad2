//! Lines of CSV, with `csv-core`: splits a line into its fields, quoted or not, and quotes a field for a line.
//!
//! A record is one line: a quoted field contains no line break.

use std::borrow::Cow;

use csv_core::{ReadRecordResult, Reader, Writer};

/// The fields of a line. The buffers are reused for the next line.
pub(crate) struct Fields {
    reader: Reader,
    text: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
}

impl Fields {
    pub(crate) fn new() -> Self {
        Self { reader: Reader::new(), text: Vec::new(), ends: Vec::new(), count: 0 }
    }

    /// Parses a line, without its line break.
    ///
    /// # Errors
    /// A quote is not closed on the line, or the line contains a line break.
    pub(crate) fn read(&mut self, line: &str) -> Result<(), &'static str> {
        const OPEN: &str = "a quote is not closed on this line";
        self.count = 0;
        self.reader.reset();
        // No field is longer than the line. There are at most as many fields as bytes in the line, plus one.
        self.text.resize(line.len() + 1, 0);
        self.ends.resize(line.len() + 2, 0);
        let (_, read, written, ended) = self.reader.read_record(line.as_bytes(), &mut self.text, &mut self.ends);
        if read < line.len() {
            return Err("a line ends within this one");
        }
        let end = self.reader.read_record(b"\n", &mut self.text[written..], &mut self.ends[ended..]);
        match end {
            (ReadRecordResult::Record, _, _, last) => self.count = ended + last,
            _ => return Err(OPEN),
        }
        Ok(())
    }

    /// Returns the number of fields.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns a field without blanks around it; empty if there is no such field.
    pub(crate) fn get(&self, at: usize) -> &str {
        if at >= self.count {
            return "";
        }
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        // Text is cut only at commas and quotes, so it stays UTF-8.
        str::from_utf8(&self.text[from..self.ends[at]]).unwrap_or_default().trim()
    }

    /// Returns all fields.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.count).map(|at| self.get(at))
    }
}

/// Returns a field as it is written in a line: in quotes if needed.
pub(crate) fn field(text: &str) -> Cow<'_, str> {
    let (mut writer, mut out) = (Writer::new(), vec![0; 2 * text.len() + 2]);
    let (_, _, written) = writer.field(text.as_bytes(), &mut out);
    let (_, end) = writer.finish(&mut out[written..]);
    out.truncate(written + end);
    match String::from_utf8(out) {
        Ok(quoted) if quoted != text => Cow::Owned(quoted),
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut fields = Fields::new();
        for all in [&["a", "b c", "", "4"][..], &["x,y", "say \"so\"", "\u{e9}"], &["one"], &["", ""]] {
            let line = all.iter().map(|it| field(it)).collect::<Vec<_>>().join(",");
            fields.read(&line).unwrap();
            assert_eq!(fields.iter().collect::<Vec<_>>(), all, "{line}");
            assert_eq!((fields.len(), fields.get(9)), (all.len(), ""));
        }
        assert_eq!((field("a b"), field("a,b")), (Cow::Borrowed("a b"), Cow::Owned("\"a,b\"".to_owned())));
    }

    #[test]
    fn a_line_is_a_record() {
        let mut fields = Fields::new();
        assert_eq!(fields.read("\"a,b"), Err("a quote is not closed on this line"));
        assert_eq!(fields.len(), 0);
        fields.read(" a , \"b\" ,c").expect("the line before leaves nothing behind");
        assert_eq!(fields.iter().collect::<Vec<_>>(), ["a", "\"b\"", "c"]);
        assert_eq!(fields.read("a\rb"), Err("a line ends within this one"));
    }
}
