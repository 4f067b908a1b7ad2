//! The program's names for its streams, for messages.
//!
//! Names are looked up only when something is refused. They are kept for a while after their stream is closed,
//! because its work may be part of a later violation. There is one table for all devices of the process, so that a
//! message can name streams of another device without a handle of it.

use std::collections::{BTreeMap, VecDeque};

use millpond_core::check::{Act, Place, Side, Site};
use millpond_core::ids::StreamId;
use millpond_core::op::{Names, Quoted};
use millpond_driver::locks::{Mutex, lock};
use millpond_driver::process;

use crate::names::shown::shown;
use crate::sync::ranks;

/// The number of closed streams whose names are kept.
const CLOSED_KEPT: usize = 1024;

/// A stream of the process: its device's number, and its own number.
type Key = (u32, u32);

struct Called {
    names: BTreeMap<Key, Box<str>>,
    /// The closed ones of them, the oldest first.
    closed: VecDeque<Key>,
}

static CALLED: Mutex<ranks::Table, Called> = Mutex::new(Called { names: BTreeMap::new(), closed: VecDeque::new() });

impl Called {
    fn close(&mut self, key: Key) {
        if !self.names.contains_key(&key) {
            return;
        }
        self.closed.push_back(key);
        if self.closed.len() > CLOSED_KEPT {
            self.closed.pop_front().map(|oldest| self.names.remove(&oldest));
        }
    }

    fn forget(&mut self, key: Key) {
        if self.names.remove(&key).is_some() {
            self.closed.retain(|closed| *closed != key);
        }
    }
}

/// Returns the title of a stream in messages of a device: its name if it has one, otherwise its number.
#[cold]
pub(crate) fn title(device: u32, stream: StreamId) -> String {
    // Devices without a number are not distinguished.
    if stream == StreamId::HOST || stream.device() == Some(StreamId::FAR_DEVICE) {
        return stream.to_string();
    }
    let own = stream.on_its_device();
    let key = (stream.device().unwrap_or(device), own.0);
    let name = if process::is_forked() { None } else { lock(&CALLED).names.get(&key).cloned() };
    let title = name.map_or_else(|| own.to_string(), |name| format!("stream {}", Quoted(&name)));
    match stream.device() {
        // Devices are counted from 0 in messages.
        Some(device) => format!("{title} of device {}", device - 1),
        None => title,
    }
}

/// Returns an operation of a device in the form that messages show.
#[cold]
pub(crate) fn side(device: u32, site: Site) -> Side {
    let who = match site.place {
        // Numbers of another process are that process's own.
        Place::Process(_) => site.stream.to_string(),
        _ => title(device, site.stream),
    };
    let side = Side::new(Site { place: shown(site.place), ..site }, who, &Names::default());
    if is_drop(site) { Side { verb: "dropped".to_owned(), ..side } } else { side }
}

/// Returns the site of a dropped buffer's free: not an operation, and at no known place.
pub(crate) fn dropped(stream: StreamId) -> Site {
    Site { act: Act::Free, stream, op: 0, place: Place::Unknown }
}

/// Returns `true` if the site is that of a dropped buffer's free.
pub(crate) fn is_drop(site: Site) -> bool {
    site == dropped(site.stream)
}

/// Gives a stream of a device a name.
pub(crate) fn set(device: u32, stream: StreamId, name: &str) {
    lock(&CALLED).names.insert((device, stream.0), name.into());
}

/// Returns the name that a stream of a device was given.
pub(crate) fn get(device: u32, stream: StreamId) -> Option<String> {
    lock(&CALLED).names.get(&(device, stream.0)).map(|name| name.to_string())
}

/// Forgets a name, because another stream has the number now.
pub(crate) fn forget(device: u32, stream: StreamId) {
    lock(&CALLED).forget((device, stream.0));
}

/// Records that a stream of a device is closed.
pub(crate) fn close(device: u32, stream: StreamId) {
    lock(&CALLED).close((device, stream.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_closed_streams_are_bounded() {
        let mut called = Called { names: BTreeMap::new(), closed: VecDeque::new() };
        for stream in 0..2 * CLOSED_KEPT as u32 {
            called.names.insert((0, stream), "short".into());
            called.close((0, stream));
            called.close((1, stream));
        }
        assert_eq!((called.names.len(), called.closed.len()), (CLOSED_KEPT, CLOSED_KEPT));
        let newest = (0, 2 * CLOSED_KEPT as u32 - 1);
        assert!(called.names.contains_key(&newest), "the newest are kept");
        called.forget(newest);
        assert!(!called.names.contains_key(&newest) && !called.closed.contains(&newest));
    }
}
