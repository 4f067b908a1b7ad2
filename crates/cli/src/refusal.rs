//! The reason why a file is refused: the place, the problem and the remedy.

use std::fmt;
use std::io;
use std::path::Path;

use millpond_litmus::Refusal as Unparsed;

/// A position in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The whole file.
    Whole,
    /// A line, counted from 1.
    Line(u64),
    /// A byte of the unzipped content, counted from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Whole => Ok(()),
            Place::Line(line) => write!(f, "line {line}"),
            Place::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// The refusal of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    file: Option<String>,
    place: Place,
    pub(crate) reason: String,
    pub(crate) help: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        if self.place != Place::Whole {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.reason)?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// Makes a refusal without help.
    pub fn new(place: Place, reason: impl Into<String>) -> Self {
        Self { file: None, place, reason: reason.into(), help: None }
    }

    /// Adds the help.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds a note to the help about something else that may have been meant.
    #[cfg(feature = "command")]
    pub(crate) fn or(mut self, note: &str) -> Self {
        self.help = Some(self.help.map_or_else(|| note.to_owned(), |help| format!("{help}; {note}")));
        self
    }

    /// Adds the file's name.
    pub fn in_file(mut self, path: &Path) -> Self {
        self.file = Some(shown_path(path));
        self
    }

    /// Refuses a trace without an operation: there is nothing to `act`.
    #[cfg(feature = "command")]
    pub(crate) fn no_operation(act: &str) -> Self {
        Self::new(Place::Whole, format!("no operation is in it: there is nothing to {act}"))
            .help("a program that opens no device, or was stopped before it had written anything, leaves such a trace")
    }

    /// Refuses a litmus program without a statement: there is nothing to `act`.
    pub(crate) fn no_statement(act: &str) -> Self {
        Self::new(Place::Whole, format!("no statement is in it: there is nothing to {act}")).help(concat!(
            "a litmus program begins with a stream, such as `stream s`; all statements: ",
            page!("litmus")
        ))
    }

    /// Refuses a recording that names no GPU, when one GPU's program is requested.
    #[cfg(feature = "command")]
    pub(crate) fn no_gpus() -> Self {
        Self::new(Place::Whole, "it does not say of which GPU it is").help("leave --gpu out")
    }

    /// Returns the place.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Refuses a file that cannot be read on at `place`.
    pub(crate) fn from_read(place: Place, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::new(place, "the gzip data ends in the middle")
                .help("the file was cut short: copy or record it again"),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                Self::new(place, format!("the gzip data is broken ({error})"))
                    .help("`gzip -t` tells whether the copy is damaged; copy or record it again")
            }
            _ => Self::new(place, format!("cannot be read: {}", cause(error))),
        }
    }
}

impl From<Unparsed> for Refusal {
    fn from(Unparsed { line, what, help }: Unparsed) -> Self {
        Self::new(Place::Line(line.into()), what).help(help)
    }
}

/// Returns the system's reason without its number.
pub(crate) fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}
/// Returns a file's name in a form that is safe to print: it cannot move the terminal's cursor or break the line.
pub(crate) fn shown_path(path: &Path) -> String {
    let name = path.display().to_string();
    let mut shown = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_control() { shown.extend(c.escape_debug()) } else { shown.push(c) }
    }
    shown
}
