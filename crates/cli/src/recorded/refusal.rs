//! Why a file is refused: where, what is wrong there, and what to do about it.

use std::fmt;
use std::io;
use std::path::Path;

use millpond_core::trace::Fault;
use millpond_core::units::Bytes;

/// Where in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nowhere in particular.
    Whole,
    /// A line, counted from 1.
    Line(u64),
    /// A byte, counted from 0, of the file's bytes once unzipped.
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

/// A refused file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    file: Option<String>,
    place: Place,
    reason: String,
    help: Option<String>,
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
    /// A refusal without help.
    pub fn new(place: Place, reason: impl Into<String>) -> Self {
        Self { file: None, place, reason: reason.into(), help: None }
    }

    /// The same with what to do.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same with the file's name.
    pub fn in_file(mut self, path: &Path) -> Self {
        self.file = Some(path.display().to_string());
        self
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// A file that cannot be opened.
    pub(crate) fn from_open(path: &Path, error: &io::Error) -> Self {
        let refusal = Self::new(Place::Whole, format!("cannot be opened: {}", cause(error)));
        match error.kind() {
            io::ErrorKind::NotFound => refusal.help(match near(path) {
                Some(other) => format!("did you mean `{other}`?"),
                None => "look at the path: it is taken from the folder you are in".to_owned(),
            }),
            io::ErrorKind::PermissionDenied => refusal.help("give yourself the right to read it"),
            _ => refusal,
        }
    }

    /// A file that cannot be written.
    pub(crate) fn from_write(path: &Path, error: &io::Error) -> Self {
        Self::new(Place::Whole, format!("cannot be written: {}", cause(error))).in_file(path)
    }

    /// A file whose bytes end or break at `place`.
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

    /// A step that no program can have done. `key` tells how the format writes its keys and `unit` what the
    /// recorder's places count, such as `line`.
    pub(crate) fn from_fault(place: Place, fault: &Fault, key: impl Fn(u64) -> String, unit: &str) -> Self {
        let (reason, help) = match *fault {
            Fault::StillLive { key: k, since } => (
                format!("{} is allocated while it is still live since {unit} {since}", key(k)),
                "a free is missing between the two: was part of the recording lost?",
            ),
            Fault::UsedBefore { key: k, first } => (
                format!("{} is allocated a second time, first on {unit} {first}", key(k)),
                "ids are unique in a file: count them up from 0",
            ),
            Fault::Unknown { key: k } => (
                format!("{} is freed but was never allocated", key(k)),
                "its allocation is missing: was the beginning of the recording lost?",
            ),
            Fault::FreedBefore { key: k, at } => (
                format!("{} is freed a second time, first on {unit} {at}", key(k)),
                "the recorded program freed twice, or an allocation between the two is missing",
            ),
            Fault::NoBytes => {
                ("an allocation of 0 bytes".to_owned(), "leave allocations without bytes out, and their frees")
            }
            Fault::TooLarge { bytes } => (
                format!("an allocation of {bytes} bytes, more than any address space has"),
                "sizes are in bytes: was another column taken for the size?",
            ),
            Fault::TooMuchLive { bytes } => (
                format!("{} live at once, more than any address space has", Bytes(bytes)),
                "sizes are in bytes: was another column taken for the size?",
            ),
            Fault::TooLong => (fault.to_string(), "cut the recording into shorter ones"),
            Fault::Empty => (
                "a recording without any allocation".to_owned(),
                "was recording switched on before the program allocated?",
            ),
        };
        Self::new(place, reason).help(help)
    }
}

/// The file in the same folder whose name is most like this one's, if any is like it.
fn near(path: &Path) -> Option<String> {
    /// Files looked at; a folder with more has many that are alike.
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

/// The system's reason without its number.
fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}
