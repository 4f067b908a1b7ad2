//! Where calls stand in programs of other languages: a library for those says it for each operation of a trace.

use std::sync::OnceLock;

use millpond_core::op::Place;

use crate::names::shown::{hide_rust, shown};

/// A line of a program that calls the library through another language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The source file, or whatever is known of the place: a function, an object.
    pub file: String,
    /// The line, counted from 1; 0 where it is not known.
    pub line: u32,
}

static FIND: OnceLock<fn() -> Option<Caller>> = OnceLock::new();

/// Traces of this process name the lines that `find` gives, which is asked on the thread that makes a call, instead of
/// those of Rust, which no text names any more. The first one stays.
///
/// `find` runs while locks of the library are held: it must neither call the library nor wait for a thread that may.
/// Where it gives `None` or panics, no line is written.
pub fn name_callers_with(find: fn() -> Option<Caller>) {
    hide_rust();
    let _ = FIND.set(find);
}

/// Where something was done, behind what it was: ` at src/main.rs:7`.
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

/// Whether lines are those of another language, and the one of the call that is going on.
#[inline]
pub(crate) fn of_call() -> Option<Option<Caller>> {
    FIND.get().map(|find| ask(*find))
}

/// A panic of the program's would leave what a call has done out of the trace, and a capture half begun.
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
