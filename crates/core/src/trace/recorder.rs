//! Builds a program step by step and refuses the step that no program can have done.
//!
//! The recording names allocations by keys of its own (ids, addresses) and streams by numbers of its own
//! (handles); both become dense here. A *place* is where in the recording a step stands (a line, an index): the
//! recorder only hands it back in a [`Fault`].

use std::collections::HashMap;
use std::fmt;

use super::{BYTES_MAX, EVENTS_MAX, Event, Leftover, Program};

/// How a recording names its allocations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// By numbers of which each is used once.
    Unique,
    /// By numbers that may name another allocation after a free, such as addresses.
    Recycled,
}

/// Why a step is refused. The recorder is as before the step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The key names an allocation that is still live.
    StillLive {
        /// The key.
        key: u64,
        /// Where that was allocated.
        since: u64,
    },
    /// The key was used before, and keys are unique.
    UsedBefore {
        /// The key.
        key: u64,
        /// Where it was allocated first.
        first: u64,
    },
    /// The key was never allocated.
    Unknown {
        /// The key.
        key: u64,
    },
    /// The key's allocation was freed before.
    FreedBefore {
        /// The key.
        key: u64,
        /// Where.
        at: u64,
    },
    /// An allocation without bytes.
    NoBytes,
    /// More bytes than any address space has.
    TooLarge {
        /// How many, in this allocation.
        bytes: u64,
    },
    /// All that is live together has more bytes than any address space.
    TooMuchLive {
        /// How many bytes would be live.
        bytes: u64,
    },
    /// More than [`EVENTS_MAX`] steps.
    TooLong,
    /// No step at all.
    Empty,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::StillLive { key, since } => {
                write!(f, "{key} is allocated again while it is live (allocated at {since})")
            }
            Fault::UsedBefore { key, first } => write!(f, "{key} is allocated a second time (first at {first})"),
            Fault::Unknown { key } => write!(f, "{key} is freed but was never allocated"),
            Fault::FreedBefore { key, at } => write!(f, "{key} is freed a second time (first at {at})"),
            Fault::NoBytes => f.write_str("an allocation of 0 bytes"),
            Fault::TooLarge { bytes } => write!(f, "an allocation of {bytes} B; at most {BYTES_MAX} B are possible"),
            Fault::TooMuchLive { bytes } => write!(f, "{bytes} B live at once; at most {BYTES_MAX} B are possible"),
            Fault::TooLong => write!(f, "more than {EVENTS_MAX} allocations and frees"),
            Fault::Empty => f.write_str("no allocation and no free"),
        }
    }
}

/// What is known of a key.
#[derive(Clone, Copy, Debug)]
enum Life {
    Live { id: u32, since: u64 },
    Freed { since: u64, at: u64 },
}

/// Builds a [`Program`].
#[derive(Debug)]
pub struct Recorder {
    keys: Keys,
    lives: HashMap<u64, Life>,
    streams: HashMap<u64, u32>,
    /// Of each allocation by id: what is left of it, or none once it is freed.
    allocated: Vec<Option<Leftover>>,
    events: Vec<Event>,
    live_bytes: u64,
    peak_bytes: u64,
}

impl Recorder {
    /// A recorder of an empty program.
    pub fn new(keys: Keys) -> Self {
        Self {
            keys,
            lives: HashMap::new(),
            streams: HashMap::new(),
            allocated: Vec::new(),
            events: Vec::new(),
            live_bytes: 0,
            peak_bytes: 0,
        }
    }

    /// How many steps it has.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether it has no step yet.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether `key` names a live allocation.
    pub fn is_live(&self, key: u64) -> bool {
        matches!(self.lives.get(&key), Some(Life::Live { .. }))
    }

    /// Whether `key` was ever allocated.
    pub fn knows(&self, key: u64) -> bool {
        self.lives.contains_key(&key)
    }

    /// `key` is allocated with `bytes` on `stream`.
    ///
    /// # Errors
    /// Where the key is live, or used before and unique; where there are no bytes, or more than an address space
    /// has; where the program is too long.
    pub fn alloc(&mut self, key: u64, bytes: u64, stream: u64, place: u64) -> Result<(), Fault> {
        match self.lives.get(&key) {
            Some(&Life::Live { since, .. }) if self.keys == Keys::Recycled => {
                return Err(Fault::StillLive { key, since });
            }
            Some(&Life::Live { since, .. } | &Life::Freed { since, .. }) if self.keys == Keys::Unique => {
                return Err(Fault::UsedBefore { key, first: since });
            }
            _ => {}
        }
        let live_bytes = self.live_bytes.saturating_add(bytes);
        match bytes {
            0 => return Err(Fault::NoBytes),
            _ if bytes > BYTES_MAX => return Err(Fault::TooLarge { bytes }),
            _ if live_bytes > BYTES_MAX => return Err(Fault::TooMuchLive { bytes: live_bytes }),
            _ if self.events.len() >= EVENTS_MAX => return Err(Fault::TooLong),
            _ => {}
        }
        let id = self.allocated.len() as u32;
        let stream = self.stream(stream);
        self.lives.insert(key, Life::Live { id, since: place });
        self.allocated.push(Some(Leftover { id, bytes, stream }));
        self.events.push(Event::Alloc { id, bytes, stream });
        self.live_bytes = live_bytes;
        self.peak_bytes = self.peak_bytes.max(live_bytes);
        Ok(())
    }

    /// `key` is freed, on `stream` or, where the recording does not say, on the stream it was allocated on.
    ///
    /// # Errors
    /// Where the key names nothing that is live; where the program is too long.
    pub fn free(&mut self, key: u64, stream: Option<u64>, place: u64) -> Result<(), Fault> {
        let (id, since) = match self.lives.get(&key) {
            Some(&Life::Live { id, since }) => (id, since),
            Some(&Life::Freed { at, .. }) => return Err(Fault::FreedBefore { key, at }),
            None => return Err(Fault::Unknown { key }),
        };
        if self.events.len() >= EVENTS_MAX {
            return Err(Fault::TooLong);
        }
        let left = self.allocated[id as usize].take().expect("one-life: a live key's allocation is not freed");
        let stream = match stream {
            Some(stream) => self.stream(stream),
            None => left.stream,
        };
        self.lives.insert(key, Life::Freed { since, at: place });
        self.events.push(Event::Free { id, stream });
        self.live_bytes -= left.bytes;
        Ok(())
    }

    /// The program, once all steps are in.
    ///
    /// # Errors
    /// [`Fault::Empty`] where there was none.
    pub fn finish(self, name: impl Into<String>) -> Result<Program, Fault> {
        if self.events.is_empty() {
            return Err(Fault::Empty);
        }
        Ok(Program {
            name: name.into(),
            events: self.events,
            allocations: self.allocated.len() as u32,
            streams: self.streams.len() as u32,
            peak_bytes: self.peak_bytes,
            leftovers: self.allocated.into_iter().flatten().collect(),
            seconds: None,
        })
    }

    /// The dense number of a stream.
    fn stream(&mut self, stream: u64) -> u32 {
        let next = self.streams.len() as u32;
        *self.streams.entry(stream).or_insert(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_streams_become_dense() {
        let mut recorder = Recorder::new(Keys::Recycled);
        recorder.alloc(0x7f00, 512, 99, 1).unwrap();
        recorder.alloc(0x8000, 100, 7, 2).unwrap();
        recorder.free(0x7f00, Some(7), 3).unwrap();
        recorder.alloc(0x7f00, 1024, 99, 4).unwrap();
        recorder.free(0x8000, None, 5).unwrap();
        assert!(recorder.is_live(0x7f00) && !recorder.is_live(0x8000) && recorder.knows(0x8000));
        let program = recorder.finish("p").unwrap();
        program.audit();
        assert_eq!(
            program.events(),
            [
                Event::Alloc { id: 0, bytes: 512, stream: 0 },
                Event::Alloc { id: 1, bytes: 100, stream: 1 },
                Event::Free { id: 0, stream: 1 },
                Event::Alloc { id: 2, bytes: 1024, stream: 0 },
                Event::Free { id: 1, stream: 1 },
            ]
        );
        assert_eq!((program.allocations(), program.streams(), program.peak_bytes()), (3, 2, 1124));
        assert_eq!(program.leftovers(), [Leftover { id: 2, bytes: 1024, stream: 0 }]);
    }

    #[test]
    fn a_step_that_cannot_be_is_refused_and_changes_nothing() {
        let mut recorder = Recorder::new(Keys::Unique);
        assert_eq!(recorder.free(1, None, 1), Err(Fault::Unknown { key: 1 }));
        assert_eq!(recorder.alloc(1, 0, 0, 2), Err(Fault::NoBytes));
        assert_eq!(recorder.alloc(1, u64::MAX, 0, 3), Err(Fault::TooLarge { bytes: u64::MAX }));
        recorder.alloc(1, BYTES_MAX, 0, 4).unwrap();
        assert_eq!(recorder.alloc(2, 1, 0, 5), Err(Fault::TooMuchLive { bytes: BYTES_MAX + 1 }));
        assert_eq!(recorder.alloc(1, 1, 0, 6), Err(Fault::UsedBefore { key: 1, first: 4 }));
        recorder.free(1, None, 7).unwrap();
        assert_eq!(recorder.free(1, None, 8), Err(Fault::FreedBefore { key: 1, at: 7 }));
        assert_eq!(recorder.alloc(1, 1, 0, 9), Err(Fault::UsedBefore { key: 1, first: 4 }));
        assert_eq!(recorder.len(), 2);
        assert_eq!(Recorder::new(Keys::Unique).finish("p"), Err(Fault::Empty));
    }

    #[test]
    fn a_recycled_key_is_refused_while_it_is_live() {
        let mut recorder = Recorder::new(Keys::Recycled);
        recorder.alloc(1, 8, 0, 10).unwrap();
        assert_eq!(recorder.alloc(1, 8, 0, 11), Err(Fault::StillLive { key: 1, since: 10 }));
        recorder.free(1, None, 12).unwrap();
        recorder.alloc(1, 8, 0, 13).unwrap();
    }
}
