//! What the sim device knows: the ledger of memory, open streams, live marks, and work that has not run yet.
//!
//! Pure data; it never runs a task. All streams' work waits in one queue, in the order of its submission: running
//! that queue from its front is one legal schedule, for a stream's work is in order in it and a mark is always
//! before what waits for it. So a mark is simply the number of the last item of its stream.
//!
//! Invariants:
//! * `one-queue`: items are numbered from 1 in the order of submission and run in that order;
//! * `one-runner`: at most one thread runs an item of the queue at a time.

use std::collections::{BTreeMap, VecDeque};
use std::thread::ThreadId;
use std::time::Duration;

use super::{Call, Violation, WorkCall};
use crate::errors::{failed, unknown};
use crate::ledger::Ledger;
use crate::{CallKind, RawMark, RawStream, RawTime, Result, Task};

/// One item of work, or a wait, that has not run.
pub(super) struct Pending {
    pub(super) number: u64,
    /// What it touches; none for a wait.
    pub(super) work: Option<WorkCall>,
    pub(super) task: Option<Task>,
}

/// Everything behind the sim device's lock.
pub(super) struct State {
    pub(super) ledger: Ledger<()>,
    /// Open streams; the value is the number of the last item, 0 where there is none.
    streams: BTreeMap<u64, u64>,
    /// Live marks; the value is the number of the last item before the mark.
    marks: BTreeMap<u64, u64>,
    /// Times that are kept; the value is the number of the last item before it, which is also the clock's microsecond.
    times: BTreeMap<u64, u64>,
    pub(super) pending: VecDeque<Pending>,
    submitted: u64,
    pub(super) executed: u64,
    /// INVARIANT: one-runner.
    pub(super) runner: Option<ThreadId>,
    next_address: u64,
    next_handle: u64,
    pub(super) calls: Vec<Call>,
    pub(super) violations: Vec<Violation>,
}

impl State {
    pub(super) fn new(granularity: u64, total_bytes: u64, first_address: u64) -> Self {
        Self {
            ledger: Ledger::new(granularity, total_bytes),
            streams: BTreeMap::new(),
            marks: BTreeMap::new(),
            times: BTreeMap::new(),
            pending: VecDeque::new(),
            submitted: 0,
            executed: 0,
            runner: None,
            next_address: first_address,
            next_handle: 1,
            calls: Vec::new(),
            violations: Vec::new(),
        }
    }

    pub(super) fn violate(&mut self, kind: CallKind, what: impl Into<String>) {
        self.violations.push(Violation { kind, what: what.into() });
    }

    /// Fake addresses, never given twice, with a gap of one granule between ranges.
    pub(super) fn reserve(&mut self, bytes: u64, granularity: u64) -> Result<u64> {
        self.ledger.check_size("reserve", bytes)?;
        let next = bytes.checked_add(granularity).and_then(|step| self.next_address.checked_add(step));
        let next = next.ok_or_else(|| failed("reserve", "no addresses left"))?;
        let at = std::mem::replace(&mut self.next_address, next);
        self.ledger.add_range(at, bytes);
        Ok(at)
    }

    pub(super) fn unmap(&mut self, at: u64, bytes: u64) -> Result<()> {
        self.ledger.check_unmap(at, bytes)?;
        let in_use = self
            .pending
            .iter()
            .filter_map(|item| item.work)
            .find(|work| work.touched().any(|(start, size)| start < at + bytes && at < start.saturating_add(size)));
        if let Some(work) = in_use {
            self.violate(CallKind::Unmap, format!("{work:?} is not over and touches {bytes} B at {at:#x}"));
        }
        if let Some(leftover) = self.ledger.remove_mapping(at) {
            self.ledger.settle(leftover.bytes);
        }
        Ok(())
    }

    /// The caller's promise of `free_host`, as far as it can be seen: no work in flight uses the memory.
    pub(super) fn check_host_free(&mut self, at: u64, bytes: u64) {
        let mut in_flight = self.pending.iter().filter_map(|item| item.work);
        let uses =
            |work: &WorkCall| work.on_host().is_some_and(|(start, size)| start < at + bytes && at < start + size);
        if let Some(work) = in_flight.find(uses) {
            self.violate(CallKind::FreeHost, format!("{work:?} is in flight and uses {bytes} B at {at:#x}"));
        }
    }

    pub(super) fn open_stream(&mut self) -> RawStream {
        let stream = self.fresh_handle();
        self.streams.insert(stream, 0);
        RawStream(stream)
    }

    pub(super) fn close_stream(&mut self, stream: RawStream) -> Result<()> {
        let known = self.streams.remove(&stream.0);
        known.map(drop).ok_or_else(|| unknown("close_stream", "stream", stream.0))
    }

    /// Appends an item to a stream. Where `at_once`, it counts as run.
    pub(super) fn append(
        &mut self,
        kind: CallKind,
        stream: RawStream,
        work: Option<WorkCall>,
        at_once: bool,
    ) -> Result<()> {
        let last = self.streams.get_mut(&stream.0).ok_or_else(|| unknown(kind.name(), "stream", stream.0))?;
        self.submitted += 1;
        *last = self.submitted;
        if at_once {
            self.executed = self.submitted;
        } else {
            self.pending.push_back(Pending { number: self.submitted, work, task: None });
        }
        if let Some(work) = work {
            self.check_work(work);
        }
        Ok(())
    }

    pub(super) fn mark(&mut self, stream: RawStream) -> Result<RawMark> {
        let last = *self.streams.get(&stream.0).ok_or_else(|| unknown("mark", "stream", stream.0))?;
        let mark = self.fresh_handle();
        self.marks.insert(mark, last);
        Ok(RawMark(mark))
    }

    /// Whether every item has run.
    pub(super) fn is_idle(&self) -> bool {
        self.executed == self.submitted
    }

    /// The number of the last item before a mark.
    pub(super) fn find_mark(&self, call: &'static str, mark: RawMark) -> Result<u64> {
        let number = self.marks.get(&mark.0).copied();
        number.ok_or_else(|| unknown(call, "mark", mark.0))
    }

    pub(super) fn forget(&mut self, mark: RawMark) {
        self.marks.remove(&mark.0);
    }

    pub(super) fn record_time(&mut self, stream: RawStream) -> Result<RawTime> {
        let last = *self.streams.get(&stream.0).ok_or_else(|| unknown("record_time", "stream", stream.0))?;
        let time = self.fresh_handle();
        self.times.insert(time, last);
        Ok(RawTime(time))
    }

    /// Every item takes a microsecond, one after the other (one-queue).
    pub(super) fn elapsed(&self, from: RawTime, to: RawTime) -> Result<Duration> {
        const CALL: &str = "elapsed";
        let find = |time: RawTime| {
            let number = self.times.get(&time.0).copied();
            let number = number.ok_or_else(|| unknown(CALL, "time", time.0))?;
            if number <= self.executed { Ok(number) } else { Err(failed(CALL, "the work before it has not completed")) }
        };
        let (from, to) = (find(from)?, find(to)?);
        Ok(Duration::from_micros(to.saturating_sub(from)))
    }

    pub(super) fn forget_time(&mut self, time: RawTime) {
        self.times.remove(&time.0);
    }

    /// What should be gone at the end of a program and is not.
    pub(super) fn leaks(&self) -> Vec<String> {
        let mut leaks = Vec::new();
        leaks.extend(self.ledger.mappings().map(|(at, bytes, _)| format!("{bytes} B are mapped at {at:#x}")));
        leaks.extend(self.ledger.live_chunks().map(|(chunk, bytes)| format!("chunk {} of {bytes} B lives", chunk.0)));
        leaks.extend(self.ledger.ranges().map(|(at, bytes)| format!("{bytes} B are reserved at {at:#x}")));
        leaks.extend(self.streams.keys().map(|stream| format!("stream {stream} is open")));
        leaks.extend(self.marks.keys().map(|mark| format!("mark {mark} is not forgotten")));
        leaks.extend(self.times.keys().map(|time| format!("time {time} is not forgotten")));
        leaks.extend(self.pending.iter().map(|item| format!("{:?} has not run", item.work)));
        leaks
    }

    /// The caller's promise of `submit`, as far as it can be seen: what work touches is mapped.
    fn check_work(&mut self, work: WorkCall) {
        if let Some((at, bytes)) = work.touched().find(|&(at, bytes)| !self.ledger.is_mapped(at, bytes)) {
            self.violate(CallKind::Submit, format!("{work:?}: {bytes} B at {at:#x} are not all mapped"));
        }
        if let WorkCall::Protect { at, bytes, .. } = work
            && !(at | bytes).is_multiple_of(4096)
        {
            self.violate(CallKind::Submit, format!("{work:?}: not in multiples of 4096"));
        }
    }

    fn fresh_handle(&mut self) -> u64 {
        let handle = self.next_handle;
        self.next_handle += 1;
        handle
    }
}
