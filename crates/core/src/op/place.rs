//! The place of an operation in the program's source, and the program's names for things.
//!
//! Names are numbers into a table, so that an operation with names is still a few words to copy. Depends on no
//! operation. Invariant **interned**: equal texts of one table have equal names.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Memory, Quoted};
use crate::ids::{EventId, ExecId, GraphId, PoolId};

/// The number of a text in a table of [`Names`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(pub u32);

/// A thing that may have a name that no operation gives it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Thing {
    /// An event.
    Event(EventId),
    /// A memory pool.
    Pool(PoolId),
    /// A graph.
    Graph(GraphId),
    /// An instantiated graph.
    Exec(ExecId),
    /// An allocation, even if no operation allocates it.
    Memory(Memory),
}

/// The texts that a program's operations refer to: names of allocations and nodes, and source files. Also the names
/// of things that operations have only numbers for.
#[derive(Clone, Debug, Default)]
pub struct Names {
    texts: Vec<Arc<str>>,
    numbers: FxHashMap<Arc<str>, Name>,
    things: FxHashMap<Thing, Name>,
}

impl Names {
    /// Makes an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the name of a text, adding the text if it is new. Equal texts get the same name.
    pub fn intern(&mut self, text: &str) -> Name {
        if let Some(name) = self.numbers.get(text) {
            return *name;
        }
        let (name, text) = (Name(self.texts.len() as u32), Arc::<str>::from(text));
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, name);
        name
    }

    /// Returns the name of a text if the text is in the table.
    pub fn find(&self, text: &str) -> Option<Name> {
        self.numbers.get(text).copied()
    }

    /// Returns the text of a name, or `None` if the name belongs to another table.
    pub fn text(&self, name: Name) -> Option<&Arc<str>> {
        self.texts.get(name.0 as usize)
    }

    /// Gives a thing a name. The first name stays.
    pub fn call(&mut self, thing: Thing, name: Name) {
        self.things.entry(thing).or_insert(name);
    }

    /// Returns a thing's title: `` event `done` ``, or `` `a` `` for memory; `event 3` if it has no name.
    pub fn title(&self, thing: Thing) -> String {
        let (noun, number) = match thing {
            Thing::Event(id) => ("event ", id.to_string()),
            Thing::Pool(id) => ("pool ", id.to_string()),
            Thing::Graph(id) => ("graph ", id.to_string()),
            Thing::Exec(id) => ("instance ", id.to_string()),
            Thing::Memory(memory) => ("", memory.id.to_string()),
        };
        match self.things.get(&thing).and_then(|name| self.text(*name)) {
            Some(name) => format!("{noun}{}", Quoted(name)),
            None => number,
        }
    }

    /// Returns the number of texts.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns `true` if there are no texts.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

/// The place of an operation in the program's source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Place {
    /// Not known.
    #[default]
    Unknown,
    /// The line of the caller.
    Source(&'static Location<'static>),
    /// A line of the file that describes the program.
    Line(u32),
    /// A line of a source file, as a recorded program has it.
    File {
        /// The file, a name of the program's table.
        file: Name,
        /// The line, counted from 1.
        line: u32,
    },
    /// A line of the file that describes the program, within a round of a loop.
    Round {
        /// The line, counted from 1.
        line: u32,
        /// The round and its loop, a text of the program's table.
        round: Name,
    },
    /// Another process, by its number. The streams of the operation belong to that process.
    Process(u32),
}

impl Place {
    /// Returns the line if it is known. Line 0 of a file means somewhere in it.
    pub fn line(&self) -> Option<u32> {
        match *self {
            Place::Unknown | Place::Process(_) | Place::File { line: 0, .. } => None,
            Place::Source(location) => Some(location.line()),
            Place::Line(line) | Place::File { line, .. } | Place::Round { line, .. } => Some(line),
        }
    }

    /// Returns the round of the loop that contains it, if there is one: `` round 2 of the `repeat` at line 7 ``.
    pub fn round<'a>(&self, names: &'a Names) -> Option<&'a str> {
        match *self {
            Place::Round { round, .. } => names.text(round).map(|text| &**text),
            _ => None,
        }
    }

    /// Returns the same line without the round.
    pub fn in_any_round(self) -> Place {
        match self {
            Place::Round { line, .. } => Place::Line(line),
            place => place,
        }
    }

    /// Returns the file if the place has one.
    pub fn file<'a>(&'a self, names: &'a Names) -> Option<&'a str> {
        match *self {
            Place::Source(location) => Some(location.file()),
            Place::File { file, .. } => names.text(file).map(|text| &**text),
            Place::Unknown | Place::Line(_) | Place::Round { .. } | Place::Process(_) => None,
        }
    }

    /// Returns the place in words, with the file's name: `examples/tour.rs:49`, `line 3`; empty if nothing is known.
    pub fn describe(&self, names: &Names) -> String {
        match (self, self.file(names)) {
            (Place::File { line: 0, .. }, Some(file)) => file.to_owned(),
            (Place::File { line, .. }, Some(file)) => format!("{file}:{line}"),
            _ => self.to_string(),
        }
    }
}

/// Without the table of names, a recorded place shows only its line.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Unknown => Ok(()),
            Place::Source(location) => write!(f, "{}:{}", location.file(), location.line()),
            Place::Line(line) | Place::File { line, .. } | Place::Round { line, .. } => write!(f, "line {line}"),
            Place::Process(process) => write!(f, "in process {process}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_equal_names() {
        let mut names = Names::new();
        let (a, b) = (names.intern("src/a.rs"), names.intern("x"));
        assert_eq!((names.intern("src/a.rs"), names.len()), (a, 2));
        assert_ne!(a, b);
        assert_eq!(names.text(a).map(|text| &**text), Some("src/a.rs"));
        assert_eq!(names.text(Name(2)), None);
    }

    #[test]
    fn a_place_is_described_by_its_file() {
        let mut names = Names::new();
        let place = Place::File { file: names.intern("src/a.rs"), line: 7 };
        assert_eq!(place.describe(&names), "src/a.rs:7");
        assert_eq!(place.describe(&Names::new()), "line 7");
        assert_eq!((Place::Line(3).describe(&names), Place::Unknown.describe(&names)), ("line 3".into(), "".into()));
    }
}
