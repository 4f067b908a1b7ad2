//! Streams that take part in the capture of another stream, because they waited for an event that was recorded in it.
//!
//! Only if `FAKECUDA_FORKS` says so. Otherwise such a call invalidates the capture, because Millpond's driver must not
//! make any. The operations of all streams of a capture follow one another in its graph.

use std::collections::HashMap;
use std::thread::ThreadId;

use millpond_driver::cuda::abi::Event;

use crate::settings;

/// A stream; for a thread's default stream, with the thread.
pub(crate) type Key = (usize, Option<ThreadId>);

/// Streams and events that take part in a capture, by the stream that began it.
#[derive(Debug, Default)]
pub(crate) struct Forks {
    streams: HashMap<Key, Key>,
    events: HashMap<usize, Key>,
}

impl Forks {
    /// Returns the stream that began the capture which a stream takes part in, or the stream itself.
    pub(crate) fn origin(&self, stream: Key) -> Key {
        self.streams.get(&stream).copied().unwrap_or(stream)
    }

    /// Returns `true` if a stream takes part in a capture that another one began.
    pub(crate) fn is_guest(&self, stream: Key) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Records an event, in a capture or outside. Returns `true` if the event belongs to a capture now.
    pub(crate) fn record(&mut self, event: Event, origin: Option<Key>) -> bool {
        match origin.filter(|_| settings::are_forks_allowed()) {
            Some(origin) => drop(self.events.insert(event.0, origin)),
            None => drop(self.events.remove(&event.0)),
        }
        self.events.contains_key(&event.0)
    }

    /// Makes a stream wait for an event. Returns `true` if the event belongs to a capture, in which the stream now
    /// takes part.
    pub(crate) fn wait(&mut self, event: Event, stream: Key) -> bool {
        let Some(origin) = self.events.get(&event.0).copied() else { return false };
        if origin != stream {
            self.streams.insert(stream, origin);
        }
        true
    }

    /// Removes a stream.
    pub(crate) fn leave(&mut self, stream: Key) {
        self.streams.remove(&stream);
    }

    /// Ends a capture.
    pub(crate) fn end(&mut self, origin: Key) {
        self.streams.retain(|_, it| *it != origin);
        self.events.retain(|_, it| *it != origin);
    }
}
