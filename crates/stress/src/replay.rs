//! A naive device: what the calls that reached the driver make of memory. It knows streams, events and waits.

use millpond_driver::{Call, CopyKind, WorkCall};
use rustc_hash::FxHashMap;

use millpond_reach::{Past, Point};

/// A use of physical memory.
#[derive(Clone, Copy, Debug)]
struct Fill {
    writes: bool,
    chunk: u64,
    start: u64,
    end: u64,
    at: u64,
    point: Point,
}

/// The naive device.
#[derive(Default)]
pub(crate) struct Replay {
    is_instant: bool,
    streams: FxHashMap<u64, (usize, Past)>,
    events: FxHashMap<u64, Past>,
    /// The operations that the host has seen to have completed.
    over: Past,
    /// The mapped ranges: first address, bytes, chunk.
    mapped: Vec<(u64, u64, u64)>,
    fills: Vec<Fill>,
}

impl Replay {
    pub(crate) fn read(calls: &[Call], is_instant: bool) -> Result<Self, String> {
        Self { is_instant, ..Self::default() }.go_on(calls)
    }

    pub(crate) fn go_on(mut self, calls: &[Call]) -> Result<Self, String> {
        calls.iter().try_for_each(|call| self.see(call))?;
        Ok(self)
    }

    fn see(&mut self, call: &Call) -> Result<(), String> {
        let next = self.streams.len();
        match call {
            Call::Submit { stream, work } => {
                let over = self.over.clone();
                let (chain, past) = self.streams.entry(stream.0).or_insert_with(|| (next, Past::default()));
                past.join(&over);
                let point = past.step(*chain);
                let (past, is_instant) = (past.clone(), self.is_instant);
                if is_instant {
                    self.over.join(&past);
                }
                let (written, read) = match *work {
                    WorkCall::Fill { at, bytes, .. } => (Some((at, bytes)), None),
                    WorkCall::Copy { to, from, bytes, kind } => (
                        (kind != CopyKind::DeviceToHost).then_some((to, bytes)),
                        (kind != CopyKind::HostToDevice).then_some((from, bytes)),
                    ),
                    WorkCall::Run | WorkCall::Protect { .. } => (None, None),
                };
                read.map_or(Ok(()), |range| self.touch(range, false, point, &past))?;
                written.map_or(Ok(()), |range| self.touch(range, true, point, &past))
            }
            Call::Record { stream, event } => {
                let past = self.streams.get(&stream.0).map_or_else(Past::default, |(_, past)| past.clone());
                self.events.insert(event.0, past);
                Ok(())
            }
            Call::Wait { stream, event } => {
                let (_, past) = self.streams.entry(stream.0).or_insert_with(|| (next, Past::default()));
                past.join(&self.events[&event.0]);
                Ok(())
            }
            Call::BlockOn { event } | Call::IsOver { event, over: true } => {
                let past = self.events[&event.0].clone();
                self.over.join(&past);
                Ok(())
            }
            Call::Map { chunk, at, bytes } => {
                self.mapped.push((*at, *bytes, chunk.0));
                Ok(())
            }
            Call::Unmap { at, bytes } => self.unmap(*at, *bytes),
            Call::Destroy { chunk } => {
                self.fills.retain(|it| it.chunk != chunk.0);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn touch(&mut self, (at, bytes): (u64, u64), writes: bool, point: Point, past: &Past) -> Result<(), String> {
        let mapped = self.mapped.clone();
        for (start, size, chunk) in mapped.iter().filter(|(start, size, _)| *start < at + bytes && at < start + size) {
            let (from, to) = (at.max(*start), (at + bytes).min(start + size));
            let new = Fill { writes, chunk: *chunk, start: from - start, end: to - start, at: from, point };
            let meets = |old: &&Fill| {
                (old.writes || writes) && old.chunk == new.chunk && old.start < new.end && new.start < old.end
            };
            if let Some(old) = self.fills.iter().filter(meets).find(|old| !past.covers(old.point)) {
                return Err(format!("the device uses one memory twice, unordered: {old:x?}, then {new:x?}"));
            }
            self.fills.push(new);
        }
        Ok(())
    }

    fn unmap(&mut self, at: u64, bytes: u64) -> Result<(), String> {
        let is_under = |old: &&Fill| old.at < at + bytes && at < old.at + (old.end - old.start);
        if let Some(old) = self.fills.iter().filter(is_under).find(|old| !self.over.covers(old.point)) {
            return Err(format!("{bytes:#x} B at {at:#x} are unmapped, and no thread has seen {old:x?} complete"));
        }
        self.mapped.retain(|(start, size, _)| !(*start < at + bytes && at < start + size));
        Ok(())
    }
}
