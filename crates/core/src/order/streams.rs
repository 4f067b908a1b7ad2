//! The streams of a program and the implicit order of the default streams, by the rule in `default_streams.rs`.
//!
//! Single-owner and pure. The live library does the same behind each stream's own lock (`default_streams.rs` there).
//! Knows no host thread and no event: each call passes what the host knows.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use super::default_streams::{Ties, after, before};
use super::{Base, Chain, ChainIndices, Host, Snapshot};
use crate::ids::{ChainIndex, Point};
use crate::op::StreamRole;

/// The index of a live stream in [`Streams`].
pub type StreamIndex = usize;

/// The number of a home.
pub type HomeNumber = usize;

/// A live stream, with its owner's data.
#[derive(Debug)]
#[repr(C)] // Keeps together what each operation needs.
pub struct Stream<T> {
    /// Its chain in the order.
    pub chain: Chain,
    /// The last operation of the legacy default stream that it already comes after.
    followed: u64,
    /// Its home.
    pub home: HomeNumber,
    /// Its role, which gives its relation to the legacy default stream.
    pub role: StreamRole,
    /// `true` while it has work that the legacy default stream does not come after yet.
    is_noted: bool,
    /// The owner's data.
    pub kept: T,
}

#[derive(Debug)]
struct Home {
    /// The number of operations of the legacy default stream.
    version: u64,
    /// The legacy default stream after its last operation.
    last: Option<Snapshot>,
    noted: Vec<StreamIndex>,
    /// The ends of noted streams that were destroyed, by chain index. A later chain with the same index comes after
    /// them.
    noted_ends: BTreeMap<ChainIndex, Snapshot>,
    /// A party that knows the work of every destroyed stream.
    ended: Host,
}

/// All streams of a program. See the module.
#[derive(Debug)]
pub struct Streams<T> {
    homes: Vec<Home>,
    streams: Vec<Option<Stream<T>>>,
    vacant: Vec<StreamIndex>,
    /// The indices of chains. Other parties may have some, too.
    pub chain_indices: ChainIndices,
}

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Streams { homes: Vec::new(), streams: Vec::new(), vacant: Vec::new(), chain_indices: ChainIndices::default() }
    }
}

impl<T> Streams<T> {
    /// Opens a new home. `party` is a number that no host has.
    pub fn open_home(&mut self, party: u64) -> HomeNumber {
        let ended = Host::new(party);
        self.homes.push(Home { version: 0, last: None, noted: Vec::new(), noted_ends: BTreeMap::new(), ended });
        self.homes.len() - 1
    }

    /// Creates a stream. `base` is what the creating host knows.
    pub fn create(&mut self, home: HomeNumber, role: StreamRole, base: Arc<Base>, kept: T) -> StreamIndex {
        let (chain, seq) = self.chain_indices.open(|point| base.covers(point));
        let chain = Chain::new(chain, seq, base);
        let stream_index = self.vacant.pop().unwrap_or_else(|| {
            self.streams.push(None);
            self.streams.len() - 1
        });
        self.streams[stream_index] = Some(Stream { chain, role, home, kept, followed: 0, is_noted: false });
        stream_index
    }

    /// Destroys a stream. Its work stays in the order.
    pub fn destroy(&mut self, stream_index: StreamIndex) -> Option<Stream<T>> {
        let stream = self.streams.get_mut(stream_index)?.take()?;
        self.vacant.push(stream_index);
        let end = stream.chain.snapshot();
        let home = &mut self.homes[stream.home];
        if stream.is_noted {
            home.noted.retain(|noted| *noted != stream_index);
            home.noted_ends.insert(end.point().chain, end.clone());
        }
        home.ended.learn(&end);
        self.chain_indices.close(end.point());
        Some(stream)
    }

    /// Returns the stream with an index, if it is live.
    #[inline]
    pub fn get(&self, stream_index: StreamIndex) -> Option<&Stream<T>> {
        self.streams.get(stream_index)?.as_ref()
    }

    /// As [`get`](Self::get), for a change.
    #[inline]
    pub fn get_mut(&mut self, stream_index: StreamIndex) -> Option<&mut Stream<T>> {
        self.streams.get_mut(stream_index)?.as_mut()
    }

    /// Returns the live streams.
    pub fn iter(&self) -> impl Iterator<Item = &Stream<T>> {
        self.streams.iter().flatten()
    }

    /// Runs before every operation of a stream: the stream learns what the submitting host knows, and the rule of the
    /// default streams applies. `on_wait` gets the point of each new wait. Does nothing if no stream is live at the
    /// index.
    #[inline]
    pub fn enter(&mut self, stream_index: StreamIndex, base: &Arc<Base>, on_wait: impl FnMut(Point)) {
        let Some(Some(stream)) = self.streams.get_mut(stream_index) else { return };
        stream.chain.learn_base(base);
        let Ok(()) = before(stream.role.standing(), &mut Entering { streams: self, stream_index, on_wait });
    }

    /// Runs after every operation of a stream: if it is the legacy default stream, blocking streams come after this
    /// operation.
    #[inline]
    pub fn leave(&mut self, stream_index: StreamIndex) {
        let Some(Some(stream)) = self.streams.get(stream_index) else { return };
        after(stream.role.standing(), &mut Entering { streams: self, stream_index, on_wait: |_| () });
    }

    /// Returns what has completed once a stream has: its own work, and what its next operation would come after.
    pub fn ends(&self, stream_index: StreamIndex) -> Vec<Snapshot> {
        let Some(stream) = self.get(stream_index) else { return Vec::new() };
        let mut ends = Ends { streams: self, home: &self.homes[stream.home], ends: Vec::new() };
        let Ok(()) = before(stream.role.standing(), &mut ends);
        ends.ends.push(stream.chain.snapshot());
        ends.ends
    }

    /// Returns the work of all destroyed streams of a home.
    pub fn ended(&self, home: HomeNumber) -> &Arc<Base> {
        self.homes[home].ended.base()
    }
}

/// A stream that is about to get an operation. A stream with that index is live.
struct Entering<'s, T, F> {
    streams: &'s mut Streams<T>,
    stream_index: StreamIndex,
    on_wait: F,
}

impl<T, F> Entering<'_, T, F> {
    #[inline]
    fn parts(&mut self) -> Option<(&mut Stream<T>, &mut Home)> {
        let stream = self.streams.streams.get_mut(self.stream_index)?.as_mut()?;
        let home = &mut self.streams.homes[stream.home];
        Some((stream, home))
    }
}

impl<T, F: FnMut(Point)> Ties for Entering<'_, T, F> {
    type Refused = Infallible;

    #[inline]
    fn follow(&mut self) -> Result<(), Infallible> {
        if let Some((stream, home)) = self.parts()
            && stream.followed != home.version
        {
            stream.followed = home.version;
            if let Some(last) = &home.last
                && stream.chain.wait(last)
            {
                let point = last.point();
                (self.on_wait)(point);
            }
        }
        Ok(())
    }

    #[inline]
    fn note(&mut self) {
        let stream_index = self.stream_index;
        if let Some((stream, home)) = self.parts()
            && !stream.is_noted
        {
            stream.is_noted = true;
            home.noted.push(stream_index);
        }
    }

    #[cold]
    fn gather(&mut self) -> Result<(), Infallible> {
        let Some((_, home)) = self.parts() else { return Ok(()) };
        let (ends, noted) = (std::mem::take(&mut home.noted_ends), std::mem::take(&mut home.noted));
        let mut before: Vec<_> = ends.into_values().collect();
        for noted in noted {
            if let Some(stream) = &mut self.streams.streams[noted] {
                before.push(stream.chain.snapshot());
                stream.is_noted = false;
            }
        }
        for end in &before {
            if let Some((legacy, _)) = self.parts()
                && legacy.chain.wait(end)
            {
                (self.on_wait)(end.point());
            }
        }
        Ok(())
    }

    fn publish(&mut self) {
        if let Some((stream, home)) = self.parts() {
            home.version += 1;
            home.last = Some(stream.chain.snapshot());
        }
    }
}

/// A stream that is only asked what its next operation would come after.
struct Ends<'s, T> {
    streams: &'s Streams<T>,
    home: &'s Home,
    ends: Vec<Snapshot>,
}

impl<T> Ties for Ends<'_, T> {
    type Refused = Infallible;

    fn follow(&mut self) -> Result<(), Infallible> {
        self.ends.extend(self.home.last.iter().cloned());
        Ok(())
    }

    fn note(&mut self) {}

    fn gather(&mut self) -> Result<(), Infallible> {
        let noted = self.home.noted.iter().filter_map(|stream_index| self.streams.get(*stream_index));
        let live = noted.map(|stream| stream.chain.snapshot());
        self.ends.extend(live.chain(self.home.noted_ends.values().cloned()));
        Ok(())
    }

    fn publish(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that never uses the legacy default stream and waits for each of its streams.
    #[test]
    fn ends_of_streams_that_come_and_go_are_kept_once_a_number() {
        let (mut streams, mut host) = (Streams::default(), Host::new(0));
        let home = streams.open_home(1);
        for _ in 0..1000 {
            let stream_index = streams.create(home, StreamRole::Blocking, Arc::clone(host.base()), ());
            streams.enter(stream_index, host.base(), |_| ());
            let _ = streams.get_mut(stream_index).unwrap().chain.submit();
            streams.leave(stream_index);
            for end in streams.ends(stream_index) {
                host.learn(&end);
            }
            let end = streams.destroy(stream_index).unwrap().chain.snapshot();
            assert!(host.base().covers(end.point()), "so that its number serves again");
        }
        assert_eq!(streams.homes[home].noted_ends.len(), 1);
        let (legacy, base) = (streams.create(home, StreamRole::Legacy, Arc::clone(host.base()), ()), host.base());
        streams.enter(legacy, base, |_| ());
        assert!(streams.homes[home].noted_ends.is_empty());
    }
}
