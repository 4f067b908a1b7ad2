//! Recorded programs as data: allocations and frees in order, with dense ids.
//!
//! A [`Program`] is made by a `Recorder`, which refuses what no program can have done. A server of the program
//! therefore needs no checks of its own. This module knows no file format.
//!
//! Invariants:
//! * **dense-ids**: allocation `n` is the program's `n`th, counted from 0; streams are counted in the order of
//!   their first use.
//! * **one-life**: an id is allocated once and freed at most once, after its allocation.
//! * **live-sum**: the bytes live at once never pass [`BYTES_MAX`], so sums of sizes cannot overflow.

use std::collections::{HashMap, HashSet};

use millpond_core::units::Bytes;

use crate::refusal::{Place, Refusal};

/// The largest size of one allocation, and of all live ones together: 128 TiB, the size of a process's address space.
pub const BYTES_MAX: u64 = 1 << 47;

/// The largest number of events of a program. It bounds the memory that reading one takes (24 bytes an event).
pub const EVENTS_MAX: usize = 1 << 25;

/// One step of a recorded program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// Memory is allocated on a stream.
    Alloc {
        /// The allocation.
        id: u32,
        /// The requested bytes; never 0.
        bytes: u64,
        /// The stream.
        stream: u32,
    },
    /// Memory is freed on a stream, which may differ from the stream that allocated it.
    Free {
        /// The allocation.
        id: u32,
        /// The stream.
        stream: u32,
    },
}

/// An allocation that is still live when a program ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Leftover {
    /// The allocation.
    pub id: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// The stream it was allocated on.
    pub stream: u32,
}

/// A recorded program.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Program {
    /// The name.
    pub name: String,
    /// The steps, in order. There is at least one.
    pub events: Vec<Event>,
    /// The number of allocations. Their ids are `0..allocations`.
    pub allocations: u32,
    /// The number of streams. They are `0..streams`.
    pub streams: u32,
    /// The peak of the live bytes, as requested.
    pub peak_bytes: u64,
    /// The allocations that are live when the program ends, in order of allocation.
    pub leftovers: Vec<Leftover>,
    /// The duration of the recorded run, if it is known.
    pub seconds: Option<f64>,
}

/// Steps of a recording that are not in the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Skipped {
    /// Frees of memory that was allocated before the recording began.
    pub earlier_frees: u64,
    /// Allocations of 0 bytes; their frees are left out, too.
    pub empty_allocs: u64,
    /// Allocations that failed.
    pub failed_allocs: u64,
    /// Frees that were requested but not completed when the recording ended. Their memory counts as live.
    pub pending_frees: u64,
    /// Entries of unknown kinds.
    pub unknown_entries: u64,
    /// Allocations that no device pool would serve: those of captured graphs and of the host.
    pub other_memory: u64,
    /// `true` if the end of an operation trace is missing.
    pub is_cut: bool,
}

impl Skipped {
    /// Describes what was left out, as in `12 frees of ...`, and whether the end is missing. Empty if nothing was.
    pub fn sentences(&self) -> Vec<String> {
        let counted = [
            (self.earlier_frees, "free", "of memory from before the recording left out"),
            (self.empty_allocs, "allocation", "of 0 bytes left out"),
            (self.failed_allocs, "failed allocation", "left out"),
            (self.pending_frees, "free", "not completed at the end: the memory stays live"),
            (self.unknown_entries, "record", "of unknown kinds left out"),
            (self.other_memory, "allocation", "of captures and of the host left out"),
        ];
        let sentence = |(count, what, rest): &(u64, &str, &str)| {
            let many = if *count == 1 { "" } else { "s" };
            format!("{count} {what}{many} {rest}")
        };
        let counted = counted.iter().filter(|(count, ..)| *count > 0).map(sentence);
        let cut =
            self.is_cut.then(|| "the program was stopped while it was traced: what it had flushed is served".into());
        counted.chain(cut).collect()
    }
}

/// The way in which a recording names its allocations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keys {
    /// By numbers that are each used once.
    Unique,
    /// By numbers that may name another allocation after a free, such as addresses.
    Recycled,
}

/// The position of a step in a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) place: Place,
    /// The step's number among the recording's lines, entries or operations.
    pub(crate) number: u64,
}

impl At {
    /// Makes the position of a line, counted from 1.
    pub(crate) fn line(number: u64) -> Self {
        At { place: Place::Line(number), number }
    }
}

/// The state of a key.
#[derive(Clone, Copy, Debug)]
enum Life {
    Live { id: u32, since: u64 },
    Freed { since: u64, at: u64 },
}

/// Builds a [`Program`] step by step. Refuses a step that no program can have done, and is then unchanged.
///
/// The recording names allocations by its own keys (ids, addresses) and streams by its own numbers (handles). The
/// recorder makes both dense.
#[derive(Debug)]
pub(crate) struct Recorder {
    keys: Keys,
    /// Formats a key.
    called: fn(u64) -> String,
    /// The noun for the recording's steps.
    unit: String,
    lives: HashMap<u64, Life>,
    /// Keys of live allocations of 0 bytes.
    empty: HashSet<u64>,
    streams: HashMap<u64, u32>,
    /// The allocations by id; `None` after the free.
    allocated: Vec<Option<Leftover>>,
    events: Vec<Event>,
    live_bytes: u64,
    peak_bytes: u64,
    pub(crate) skipped: Skipped,
}

impl Recorder {
    /// Creates a recorder of an empty program. `called` formats a key, and `unit` is the noun for the recording's
    /// steps.
    pub(crate) fn new(keys: Keys, called: fn(u64) -> String, unit: impl Into<String>) -> Self {
        Self {
            keys,
            called,
            unit: unit.into(),
            lives: HashMap::new(),
            empty: HashSet::new(),
            streams: HashMap::new(),
            allocated: Vec::new(),
            events: Vec::new(),
            live_bytes: 0,
            peak_bytes: 0,
            skipped: Skipped::default(),
        }
    }

    /// Returns the number of steps.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns `true` if `key` names a live allocation of the program.
    pub(crate) fn is_live(&self, key: u64) -> bool {
        matches!(self.lives.get(&key), Some(Life::Live { .. }))
    }

    /// Records that `key` is allocated with `bytes` on `stream`. An allocation of 0 bytes is left out if keys are
    /// reused, and refused if they are not.
    pub(crate) fn alloc(&mut self, key: u64, bytes: u64, stream: u64, at: At) -> Result<(), Refusal> {
        if bytes == 0 && self.keys == Keys::Recycled {
            self.skipped.empty_allocs += 1;
            self.empty.insert(key);
            return Ok(());
        }
        let (name, unit) = (self.called, &self.unit);
        let refuse = |reason: String, help: &str| Err(Refusal::new(at.place, reason).help(help));
        match (self.keys, self.lives.get(&key)) {
            (Keys::Recycled, Some(Life::Live { since, .. })) => {
                return refuse(
                    format!("{} is allocated while it is still live since {unit} {since}", name(key)),
                    "a free is missing between the two: was part of the recording lost?",
                );
            }
            (Keys::Unique, Some(Life::Live { since, .. } | Life::Freed { since, .. })) => {
                return refuse(
                    format!("{} is allocated a second time, first on {unit} {since}", name(key)),
                    "ids are unique in a file: count them up from 0",
                );
            }
            _ => {}
        }
        let live_bytes = self.live_bytes.saturating_add(bytes);
        const SIZES: &str = "sizes are in bytes: was another column taken for the size?";
        match bytes {
            0 => {
                return refuse(
                    "an allocation of 0 bytes".to_owned(),
                    "leave allocations without bytes out, and their frees",
                );
            }
            _ if bytes > BYTES_MAX => {
                return refuse(format!("an allocation of {bytes} bytes, more than any address space has"), SIZES);
            }
            _ if live_bytes > BYTES_MAX => {
                return refuse(format!("{} live at once, more than any address space has", Bytes(live_bytes)), SIZES);
            }
            _ => self.check_length(at)?,
        }
        let id = self.allocated.len() as u32;
        let stream = self.stream(stream);
        self.lives.insert(key, Life::Live { id, since: at.number });
        self.empty.remove(&key);
        self.allocated.push(Some(Leftover { id, bytes, stream }));
        self.events.push(Event::Alloc { id, bytes, stream });
        self.live_bytes = live_bytes;
        self.peak_bytes = self.peak_bytes.max(live_bytes);
        Ok(())
    }

    /// Records that `key` is freed: on `stream`, or on the stream that allocated it if the recording has no stream.
    pub(crate) fn free(&mut self, key: u64, stream: Option<u64>, at: At) -> Result<(), Refusal> {
        let refuse = |reason: String, help: &str| Err(Refusal::new(at.place, reason).help(help));
        let (id, since) = match self.lives.get(&key) {
            Some(&Life::Live { id, since }) => (id, since),
            _ if self.empty.remove(&key) => return Ok(()),
            Some(&Life::Freed { at: first, .. }) => {
                return refuse(
                    format!("{} is freed a second time, first on {} {first}", (self.called)(key), self.unit),
                    "the recorded program freed twice, or an allocation between the two is missing",
                );
            }
            None => {
                return refuse(
                    format!("{} is freed but was never allocated", (self.called)(key)),
                    "its allocation is missing: was the beginning of the recording lost?",
                );
            }
        };
        self.check_length(at)?;
        let left = self.allocated[id as usize].take().expect("one-life: a live key's allocation is not freed");
        let stream = match stream {
            Some(stream) => self.stream(stream),
            None => left.stream,
        };
        self.lives.insert(key, Life::Freed { since, at: at.number });
        self.events.push(Event::Free { id, stream });
        self.live_bytes -= left.bytes;
        Ok(())
    }

    /// Records a free in a recording that may have begun in the middle. A free of unknown memory is left out.
    pub(crate) fn free_if_seen(&mut self, key: u64, stream: Option<u64>, at: At) -> Result<(), Refusal> {
        if !self.lives.contains_key(&key) && !self.empty.contains(&key) {
            self.skipped.earlier_frees += 1;
            return Ok(());
        }
        self.free(key, stream, at)
    }

    /// Returns the program, once all steps are in. `end` is the end of the recording.
    pub(crate) fn finish(self, name: impl Into<String>, end: Place) -> Result<(Program, Skipped), Refusal> {
        if self.events.is_empty() {
            let help = "was recording switched on before the program allocated?";
            return Err(Refusal::new(end, "a recording without any allocation").help(help));
        }
        let program = Program {
            name: name.into(),
            events: self.events,
            allocations: self.allocated.len() as u32,
            streams: self.streams.len() as u32,
            peak_bytes: self.peak_bytes,
            leftovers: self.allocated.into_iter().flatten().collect(),
            seconds: None,
        };
        Ok((program, self.skipped))
    }

    fn check_length(&self, at: At) -> Result<(), Refusal> {
        if self.events.len() < EVENTS_MAX {
            return Ok(());
        }
        let reason = format!("more than {EVENTS_MAX} allocations and frees");
        Err(Refusal::new(at.place, reason).help("cut the recording into shorter ones"))
    }

    /// Returns the dense number of a stream.
    fn stream(&mut self, stream: u64) -> u32 {
        let next = self.streams.len() as u32;
        *self.streams.entry(stream).or_insert(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(keys: Keys) -> Recorder {
        Recorder::new(keys, |key| format!("id {key}"), "line")
    }

    #[test]
    fn keys_and_streams_become_dense() {
        let mut recorder = recorder(Keys::Recycled);
        recorder.alloc(0x7f00, 512, 99, At::line(1)).unwrap();
        recorder.alloc(0x8000, 100, 7, At::line(2)).unwrap();
        recorder.free(0x7f00, Some(7), At::line(3)).unwrap();
        recorder.alloc(0x7f00, 1024, 99, At::line(4)).unwrap();
        recorder.free(0x8000, None, At::line(5)).unwrap();
        assert!(recorder.is_live(0x7f00) && !recorder.is_live(0x8000));
        let (program, _) = recorder.finish("p", Place::Whole).unwrap();
        assert_eq!(
            program.events,
            [
                Event::Alloc { id: 0, bytes: 512, stream: 0 },
                Event::Alloc { id: 1, bytes: 100, stream: 1 },
                Event::Free { id: 0, stream: 1 },
                Event::Alloc { id: 2, bytes: 1024, stream: 0 },
                Event::Free { id: 1, stream: 1 },
            ]
        );
        assert_eq!((program.allocations, program.streams, program.peak_bytes), (3, 2, 1124));
        assert_eq!(program.leftovers, [Leftover { id: 2, bytes: 1024, stream: 0 }]);
    }

    #[test]
    fn a_step_that_cannot_be_is_refused_and_changes_nothing() {
        let mut recorder = recorder(Keys::Unique);
        let refused = |done: Result<(), Refusal>, part: &str| {
            let text = done.unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        };
        refused(recorder.free(1, None, At::line(1)), "line 1: id 1 is freed but was never allocated");
        refused(recorder.alloc(1, 0, 0, At::line(2)), "an allocation of 0 bytes");
        refused(recorder.alloc(1, u64::MAX, 0, At::line(3)), "an allocation of 18446744073709551615 bytes");
        recorder.alloc(1, BYTES_MAX, 0, At::line(4)).unwrap();
        refused(recorder.alloc(2, 1, 0, At::line(5)), "live at once, more than any address space has");
        refused(recorder.alloc(1, 1, 0, At::line(6)), "id 1 is allocated a second time, first on line 4");
        recorder.free(1, None, At::line(7)).unwrap();
        refused(recorder.free(1, None, At::line(8)), "id 1 is freed a second time, first on line 7");
        refused(recorder.alloc(1, 1, 0, At::line(9)), "id 1 is allocated a second time, first on line 4");
        assert_eq!(recorder.len(), 2);
        assert!(self::recorder(Keys::Unique).finish("p", Place::Whole).is_err(), "there is no step");
    }

    #[test]
    fn a_recycled_key_is_refused_while_it_is_live() {
        let mut recorder = recorder(Keys::Recycled);
        recorder.alloc(1, 8, 0, At::line(10)).unwrap();
        let again = recorder.alloc(1, 8, 0, At::line(11)).unwrap_err().to_string();
        assert!(again.contains("id 1 is allocated while it is still live since line 10"), "{again}");
        recorder.free(1, None, At::line(12)).unwrap();
        recorder.alloc(1, 8, 0, At::line(13)).unwrap();
    }
}
