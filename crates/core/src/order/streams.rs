//! The streams of a program, and what the default streams put between them.
//!
//! A *home* is what one process has of one device: the legacy default stream belongs to it. An operation on the legacy
//! stream comes after everything in all blocking streams of its home, and their later work after it; non-blocking
//! streams are exempt; the default stream of a thread is a blocking one; the work of a destroyed stream still counts.
//! Both sides are settled lazily: a blocking stream notes itself with its first operation after the legacy stream's
//! last, and that takes the notes.
//!
//! Single-owner and pure. The live library follows the same rules behind each stream's own lock (`default_streams.rs`
//! there). Knows no host thread and no event: what a host knows comes with each call.

use std::sync::Arc;

use super::{Base, Chain, Host, Slots, Snapshot};
use crate::op::StreamRole;

/// Where a stream is while it lives.
pub type Seat = usize;

/// A home, by its number.
pub type HomeNumber = usize;

/// One stream that lives, with what its owner keeps of it.
#[derive(Debug)]
#[repr(C)] // What each operation needs lies together.
pub struct Stream<T> {
    /// Its order.
    pub chain: Chain,
    /// The operation of the legacy stream that it already comes after.
    followed: u64,
    /// Its home.
    pub home: HomeNumber,
    /// How it stands to the legacy stream.
    pub role: StreamRole,
    /// Whether it has work that the legacy stream does not come after yet.
    is_noted: bool,
    /// What its owner keeps of it.
    pub kept: T,
}

#[derive(Debug)]
struct Home {
    /// Counts the operations of the legacy stream.
    version: u64,
    /// The legacy stream after its last operation.
    last: Option<Snapshot>,
    noted: Vec<Seat>,
    /// The ends of such streams that are destroyed.
    noted_ends: Vec<Snapshot>,
    /// A party that knows every destroyed stream's work.
    ended: Host,
}

/// All streams of a program: see the module.
#[derive(Debug)]
pub struct Streams<T> {
    homes: Vec<Home>,
    streams: Vec<Option<Stream<T>>>,
    vacant: Vec<Seat>,
    /// The numbers of chains; other parties may have some, too.
    pub slots: Slots,
}

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Streams { homes: Vec::new(), streams: Vec::new(), vacant: Vec::new(), slots: Slots::default() }
    }
}

impl<T> Streams<T> {
    /// A new home. `party` is a number that no host has.
    pub fn open_home(&mut self, party: u32) -> HomeNumber {
        let ended = Host::new(party);
        self.homes.push(Home { version: 0, last: None, noted: Vec::new(), noted_ends: Vec::new(), ended });
        self.homes.len() - 1
    }

    /// Makes a stream; `base` is what the host knows that makes it.
    pub fn create(&mut self, home: HomeNumber, role: StreamRole, base: Arc<Base>, kept: T) -> Seat {
        let (slot, seq) = self.slots.open(|point| base.covers(point));
        let chain = Chain::new(slot, seq, base);
        let seat = self.vacant.pop().unwrap_or_else(|| {
            self.streams.push(None);
            self.streams.len() - 1
        });
        self.streams[seat] = Some(Stream { chain, role, home, kept, followed: 0, is_noted: false });
        seat
    }

    /// Ends a stream; its work stays in the order.
    pub fn destroy(&mut self, seat: Seat) -> Option<Stream<T>> {
        let stream = self.streams.get_mut(seat)?.take()?;
        self.vacant.push(seat);
        let end = stream.chain.snapshot();
        let home = &mut self.homes[stream.home];
        if stream.is_noted {
            home.noted.retain(|noted| *noted != seat);
            home.noted_ends.push(end.clone());
        }
        home.ended.learn(&end);
        self.slots.close(end.point());
        Some(stream)
    }

    /// The stream of a seat, if one lives there.
    #[inline]
    pub fn get(&self, seat: Seat) -> Option<&Stream<T>> {
        self.streams.get(seat)?.as_ref()
    }

    /// As [`get`](Self::get), to change it.
    #[inline]
    pub fn get_mut(&mut self, seat: Seat) -> Option<&mut Stream<T>> {
        self.streams.get_mut(seat)?.as_mut()
    }

    /// Those that live.
    pub fn iter(&self) -> impl Iterator<Item = &Stream<T>> {
        self.streams.iter().flatten()
    }

    /// What every operation of a stream does first: the stream knows what the host knows that submits it, and the rules
    /// of the default streams apply. Nothing where no stream lives there.
    #[inline]
    pub fn enter(&mut self, seat: Seat, base: &Arc<Base>) {
        let Some(Some(stream)) = self.streams.get_mut(seat) else { return };
        stream.chain.hear(base);
        match stream.role {
            StreamRole::NonBlocking => {}
            StreamRole::Legacy => self.enter_legacy(seat),
            StreamRole::Blocking | StreamRole::PerThread => {
                let home = &mut self.homes[stream.home];
                if stream.followed != home.version {
                    stream.followed = home.version;
                    if let Some(last) = &home.last {
                        stream.chain.wait(last);
                    }
                }
                if !stream.is_noted {
                    stream.is_noted = true;
                    home.noted.push(seat);
                }
            }
        }
    }

    /// An operation of the legacy stream comes after every blocking stream with new work.
    #[cold]
    fn enter_legacy(&mut self, seat: Seat) {
        let Some(home) = self.streams[seat].as_ref().map(|legacy| legacy.home) else { return };
        let home = &mut self.homes[home];
        home.version += 1;
        let mut before = std::mem::take(&mut home.noted_ends);
        for noted in std::mem::take(&mut home.noted) {
            if let Some(stream) = &mut self.streams[noted] {
                stream.is_noted = false;
                before.push(stream.chain.snapshot());
            }
        }
        if let Some(legacy) = &mut self.streams[seat] {
            for end in &before {
                legacy.chain.wait(end);
            }
        }
    }

    /// What every operation of a stream does last: blocking streams come after the legacy stream's.
    #[inline]
    pub fn leave(&mut self, seat: Seat) {
        if let Some(Some(stream)) = self.streams.get(seat)
            && stream.role == StreamRole::Legacy
        {
            self.homes[stream.home].last = Some(stream.chain.snapshot());
        }
    }

    /// What has completed once a stream has: its own work, and what the default streams put before its end.
    pub fn ends(&self, seat: Seat) -> Vec<Snapshot> {
        let Some(stream) = self.get(seat) else { return Vec::new() };
        let home = &self.homes[stream.home];
        let mut ends = match stream.role {
            StreamRole::NonBlocking => Vec::new(),
            StreamRole::Blocking | StreamRole::PerThread => home.last.iter().cloned().collect(),
            StreamRole::Legacy => {
                let noted = home.noted.iter().filter_map(|seat| self.get(*seat));
                noted.map(|stream| stream.chain.snapshot()).chain(home.noted_ends.iter().cloned()).collect()
            }
        };
        ends.push(stream.chain.snapshot());
        ends
    }

    /// What every destroyed stream of a home did.
    pub fn ended(&self, home: HomeNumber) -> &Arc<Base> {
        self.homes[home].ended.base()
    }
}
