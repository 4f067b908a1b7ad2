//! Streams that take part in the capture of another, because they waited for an event that was recorded in it.
//!
//! Only where `FAKECUDA_FORKS` says so: else such a call spoils the capture, for a driver of Millpond's must make none.
//! All that the streams of a capture do comes one after the other in its graph.

use std::collections::HashMap;
use std::thread::ThreadId;

use millpond_driver::cuda::abi::Event;

use crate::settings;

/// A stream; of a thread's default stream, with the thread.
pub(crate) type Key = (usize, Option<ThreadId>);

/// Streams and events, by the stream that began the capture which they take part in.
#[derive(Debug, Default)]
pub(crate) struct Forks {
    streams: HashMap<Key, Key>,
    events: HashMap<usize, Key>,
}

impl Forks {
    /// The stream that began the capture which a stream takes part in, or itself.
    pub(crate) fn origin(&self, stream: Key) -> Key {
        self.streams.get(&stream).copied().unwrap_or(stream)
    }

    /// Whether a stream takes part in what another one began.
    pub(crate) fn is_guest(&self, stream: Key) -> bool {
        self.streams.contains_key(&stream)
    }

    /// An event is recorded, in a capture or outside; whether it takes part in one now.
    pub(crate) fn record(&mut self, event: Event, origin: Option<Key>) -> bool {
        match origin.filter(|_| settings::are_forks_allowed()) {
            Some(origin) => drop(self.events.insert(event.0, origin)),
            None => drop(self.events.remove(&event.0)),
        }
        self.events.contains_key(&event.0)
    }

    /// A stream waits for an event; whether that is of a capture, in which it takes part then.
    pub(crate) fn wait(&mut self, event: Event, stream: Key) -> bool {
        let Some(origin) = self.events.get(&event.0).copied() else { return false };
        if origin != stream {
            self.streams.insert(stream, origin);
        }
        true
    }

    /// A stream is gone.
    pub(crate) fn leave(&mut self, stream: Key) {
        self.streams.remove(&stream);
    }

    /// A capture has ended.
    pub(crate) fn end(&mut self, origin: Key) {
        self.streams.retain(|_, it| *it != origin);
        self.events.retain(|_, it| *it != origin);
    }
}
