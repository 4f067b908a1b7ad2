//! The places of calls in programs of other languages. A library for such a language supplies them for each operation
//! of a trace.

use std::sync::OnceLock;

use millpond_core::op::Place;

use crate::names::shown::{hide_rust, shown};

/// A line of a program that calls the library through another language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The source file, or whatever is known of the place: a function, an object file.
    pub file: String,
    /// The line, counted from 1; 0 if it is not known.
    pub line: u32,
}

static FIND: OnceLock<fn() -> Option<Caller>> = OnceLock::new();

/// Makes traces of this process show the lines that `find` returns instead of lines of Rust source, which no text
/// shows any more. `find` is called on the thread that makes a call. The first function set stays.
///
/// `find` runs while locks of the library are held: it must neither call the library nor wait for a thread that may.
/// If it returns `None` or panics, no line is written.
pub fn name_callers_with(find: fn() -> Option<Caller>) {
    hide_rust();
    let _ = FIND.set(find);
}

/// Returns the place of an operation, to follow its description: ` at src/main.rs:7`.
#[cold]
pub(crate) fn at(place: Place) -> String {
    match shown(place) {
        Place::Process(_) => format!(" {place}"),
        place => match place.to_string() {
            text if text.is_empty() => text,
            text => format!(" at {text}"),
        },
    }
}

/// Returns `Some` if places are in another language, with the caller of the current call if it is known.
#[inline]
pub(crate) fn of_call() -> Option<Option<Caller>> {
    FIND.get().map(|find| ask(*find))
}

/// Without this, a panic of the program's function would leave the call out of the trace, and a capture half begun.
fn ask(find: fn() -> Option<Caller>) -> Option<Caller> {
    std::panic::catch_unwind(find).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_panics_names_no_line() {
        let line = || Some(Caller { file: "main.py".to_owned(), line: 7 });
        assert_eq!(ask(line), line());
        assert_eq!(ask(|| panic!("no line")), None);
    }
}
