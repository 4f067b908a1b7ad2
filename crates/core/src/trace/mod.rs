//! Recorded programs as data: what was allocated and freed, in order, with numbers that are dense.
//!
//! A [`Program`] can only be made by a [`Recorder`], which refuses what no program can have done. So whoever
//! serves a program need not check it again. Knows no file format: those who read files turn them into calls of
//! the recorder, and put a line number to its refusals.
//!
//! Invariants:
//! * **dense-ids**: allocation `n` is the program's `n`th, counted from 0; streams are counted in the order of
//!   their first use.
//! * **one-life**: an id is allocated once and freed at most once, after its allocation.
//! * **live-sum**: the bytes live at once never pass [`BYTES_MAX`], so sums of sizes cannot overflow.

pub mod ops;
mod recorder;

pub use recorder::{Fault, Keys, Recorder};

/// The most bytes that one allocation, and all live ones together, may have: 128 TiB, which is as much as the
/// addresses of a process reach.
pub const BYTES_MAX: u64 = 1 << 47;

/// The most events of a program. It bounds the memory that reading one takes (24 bytes an event).
pub const EVENTS_MAX: usize = 1 << 25;

/// One step of a recorded program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// Memory is allocated on a stream.
    Alloc {
        /// Which allocation it is.
        id: u32,
        /// How many bytes were asked for; never 0.
        bytes: u64,
        /// The stream.
        stream: u32,
    },
    /// Memory is freed on a stream, which need not be the one it was allocated on.
    Free {
        /// Which allocation.
        id: u32,
        /// The stream.
        stream: u32,
    },
}

/// What is still allocated when a program ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Leftover {
    /// Which allocation.
    pub id: u32,
    /// How many bytes it has.
    pub bytes: u64,
    /// The stream it was allocated on.
    pub stream: u32,
}

/// A recorded program.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    name: String,
    events: Vec<Event>,
    allocations: u32,
    streams: u32,
    peak_bytes: u64,
    leftovers: Vec<Leftover>,
    seconds: Option<f64>,
}

impl Program {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its steps, in order; at least one.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How many allocations it makes: their ids are `0..allocations`.
    pub fn allocations(&self) -> u32 {
        self.allocations
    }

    /// How many streams it uses: they are `0..streams`.
    pub fn streams(&self) -> u32 {
        self.streams
    }

    /// The most bytes that were live at once, as asked for.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// What is still live when it ends, in order of allocation.
    pub fn leftovers(&self) -> &[Leftover] {
        &self.leftovers
    }

    /// How long the recorded run took, where that is known.
    pub fn seconds(&self) -> Option<f64> {
        self.seconds
    }

    /// The same program with the time that the recorded run took.
    pub fn with_seconds(self, seconds: Option<f64>) -> Self {
        Self { seconds, ..self }
    }

    /// Derives every invariant of this module anew from the events. For tests and fuzzing.
    ///
    /// # Panics
    /// Where one does not hold.
    pub fn audit(&self) {
        let mut live: Vec<Option<Leftover>> = Vec::new();
        let (mut bytes_live, mut peak_bytes, mut streams) = (0_u64, 0, 0);
        for event in &self.events {
            let stream = match *event {
                Event::Alloc { id, bytes, stream } => {
                    assert_eq!(id as usize, live.len(), "dense-ids: allocations are counted up");
                    assert!(bytes > 0, "an allocation has bytes");
                    bytes_live += bytes;
                    live.push(Some(Leftover { id, bytes, stream }));
                    stream
                }
                Event::Free { id, stream } => {
                    let freed = live.get_mut(id as usize).and_then(Option::take);
                    bytes_live -= freed.expect("one-life: what is freed is live").bytes;
                    stream
                }
            };
            assert!(stream <= streams, "dense-ids: streams are counted in the order of their first use");
            streams = streams.max(stream + 1);
            assert!(bytes_live <= BYTES_MAX, "live-sum");
            peak_bytes = peak_bytes.max(bytes_live);
        }
        assert_eq!((self.allocations as usize, self.streams, self.peak_bytes), (live.len(), streams, peak_bytes));
        assert!(live.into_iter().flatten().eq(self.leftovers.iter().copied()), "leftovers are what stays live");
        assert!(!self.events.is_empty(), "a program has a step");
    }
}
