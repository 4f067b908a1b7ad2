//! Programs to check, read from files: litmus programs and operation traces. The content decides the kind, not the
//! name.

use std::path::Path;

use millpond_litmus::Program;
use serde::de::IgnoredAny;

use crate::operation_trace::Trace;
use crate::recorded::{Place, Refusal};
use crate::source::{self, Kind, Opened};

/// An opened program.
#[derive(Debug)]
pub enum Source {
    /// A litmus program, with its text.
    Litmus {
        /// The text in the file.
        text: String,
        /// The parsed program.
        program: Box<Program>,
    },
    /// A trace, which is read while it is checked.
    Trace(Box<Trace>),
}

/// Opens a program, gzipped or not.
///
/// # Errors
/// The file is not a program. The refusal has the line and the reason.
pub fn open(path: &Path) -> Result<Source, Refusal> {
    let opened = Opened::open(path)?;
    let kind = opened.kind();
    if let (Kind::Recording | Kind::Table, Some(refusal)) = (kind, opened.refuse("check")) {
        return Err(refusal);
    }
    if opened.is_empty() {
        let refusal = Refusal::new(Place::Whole, "the file is empty: there is nothing to check");
        return Err(refusal.help("write a litmus program, or record a trace with `millpond record`"));
    }
    let source = opened.unzipped();
    if kind == Kind::Trace {
        return Ok(Source::Trace(Box::new(Trace::new(source))));
    }
    let text = source::text(source)?;
    if kind == Kind::Other && is_json(&text) {
        let refusal = Refusal::new(Place::Whole, "JSON: neither a litmus program nor an operation trace");
        return Err(
            refusal.help(concat!("`millpond record -- PROGRAM` makes a trace; litmus programs: ", page!("litmus")))
        );
    }
    let program = Program::parse(&text).map_err(|refusal| match kind {
        Kind::Litmus => Refusal::from(refusal),
        _ => Refusal::from(refusal).or("it is not an operation trace, and was read as a litmus program"),
    })?;
    Ok(Source::Litmus { text, program: Box::new(program) })
}

/// Returns `true` if the text begins with a JSON object or list.
fn is_json(text: &str) -> bool {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    text.starts_with(['{', '[']) && matches!(values.next(), Some(Ok(_)))
}
