//! The checker for a library: one operation at a time, with an answer that says what the device has to do.
//!
//! [`Checker::check`] is the same without an answer. The rules are not here but with the operations.

use super::answer::{Captured, Done, Reason, Refusal, StreamHandle, Wait};
use super::checker::{Call, Checker, Recorded, Stands, quiet};
use super::events::{record_end, wait_end};
use crate::ids::{DeviceId, EventId, HostId, NodeId, Point, StreamId};
use crate::life::Site;
use crate::op::{Act, EventKind, Names, Op, Place, What};
use crate::order::Snapshot;
use crate::order::default_streams::Standing;

impl Checker {
    /// Judges the next operation and does it, as [`check`](Self::check), and returns its effects. `names` is the table
    /// of names that the operations refer to.
    ///
    /// A launch that is not captured may be withdrawn until the next step of its stream: see [`retract`](Self::retract)
    /// and [`advance`](Self::advance). The launch of a graph begins and ends lifetimes only at that step or `advance`,
    /// whose answer has them.
    ///
    /// # Errors
    /// The reason for the refusal. The waits that the operation made stay made: the device has to make them, too.
    pub fn step(&mut self, op: &Op, names: &Names) -> Result<Done, Box<Refusal>> {
        self.time.answer.ask();
        if let Some(stream_index) = op.what.stream().and_then(|stream| self.time.stream_index(stream)) {
            self.confirm(stream_index, names);
        }
        let captured = op.what.stream().and_then(|stream| self.capture_of(stream));
        let judged = match self.launching(&op.what) {
            None => self.perform(Call { op, names }),
            held => {
                self.time.answer.again = held;
                Err(quiet())
            }
        };
        let mut done = self.time.answer.take();
        let again = self.time.answer.again.take();
        done.captured = done.captured.or(captured);
        self.say_where(&op.what, judged.is_ok(), &mut done);
        done.findings.append(&mut self.more);
        let Err(finding) = judged else { return Ok(done) };
        let reason = match again {
            Some(stream) => Reason::AskAgain(stream),
            None if finding.is_quiet() => Reason::Follows,
            None => Reason::Finding(finding),
        };
        Err(Box::new(Refusal { reason, done }))
    }

    /// As [`step`](Self::step), for a program whose operations no driver can refuse: a launch is done at once.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn step_done(&mut self, op: &Op, names: &Names) -> Result<Done, Box<Refusal>> {
        let mut done = self.step(op, names)?;
        if let (Some(stream), Some(point)) = (done.stream, done.point) {
            let mut launched = self.advance(stream, point.seq, names);
            done.point = launched.point.or(done.point);
            done.begun.append(&mut launched.begun);
            done.ended.append(&mut launched.ended);
            done.awaited.append(&mut launched.awaited);
            done.recorded.append(&mut launched.recorded);
            done.findings.append(&mut self.more);
        }
        Ok(done)
    }

    /// Returns the capture that a stream is in.
    fn capture_of(&self, stream: StreamId) -> Option<Captured> {
        let captures = Some(&self.graphs.captures).filter(|_| self.graphs.is_capturing())?;
        Some(Captured { graph: self.graphs.captured_on(stream)?.graph.id(), after: captures.tails(stream)?.to_vec() })
    }

    /// Returns everything that comes before the next operation of a stream, as far as the stream has learned it by its
    /// own operations so far. The owner of freed memory uses it to decide whether the stream may have the memory.
    /// Returns `None` if the stream is not live.
    pub fn snapshot(&self, stream: StreamId) -> Option<Snapshot> {
        self.time.stream(stream).map(|stream| stream.chain.snapshot())
    }

    /// Returns the stream of a handle, or `None` if it was destroyed.
    pub fn stream(&self, stream: StreamHandle) -> Option<StreamId> {
        self.time.get(stream.0).map(|stream| stream.kept.id)
    }

    /// Returns the device of a stream, or `None` if the stream was destroyed.
    pub fn device(&self, stream: StreamHandle) -> Option<DeviceId> {
        self.time.get(stream.0).map(|stream| stream.kept.device)
    }

    /// Adds the position of the operation's stream to the answer, and the node that the operation added by hand.
    fn say_where(&self, what: &What, is_done: bool, done: &mut Done) {
        if let Some(id) = what.stream()
            && let Some(stream_index) = self.time.stream_index(id)
        {
            let stream = self.time.at(stream_index);
            done.stream = Some(StreamHandle(stream_index));
            done.number = stream.kept.ops + u64::from(self.is_held(stream_index));
            done.point = Some(stream.chain.last()).filter(|_| !self.graphs.is_captured(id));
            if done.captured.is_none() {
                done.captured = self.capture_of(id);
            }
        }
        if let What::GraphNode { graph, .. } = what
            && let Some(made) = self.graphs.graphs.get(graph).filter(|_| is_done)
        {
            done.node = made.graph.len().checked_sub(1).map(|last| NodeId(last as u32));
        }
    }

    /// Records an event on a stream, as [`What::EventRecord`] does, for a caller that keeps the event's record itself.
    /// `before` is the record that this one replaces. The event belongs to the stream's device and to the thread's
    /// process. Appends new waits to `waits`.
    ///
    /// Returns `None` if the stream is captured or destroyed, if a capture may forbid the record, or if the launch of a
    /// graph on the stream may still be withdrawn. Such a record is judged by the step by name.
    pub fn record_end(
        &mut self,
        at: (HostId, Place),
        stream: StreamHandle,
        kind: EventKind,
        before: Option<Recorded>,
        waits: &mut Vec<Wait>,
    ) -> Option<Recorded> {
        let site = self.enter_by_handle(at, stream, waits)?;
        Some(record_end(&mut self.time, stream.0, site, kind, before))
    }

    /// Makes a stream wait for a record, as [`What::EventWait`] does, without advice. Appends new waits to `waits`. If
    /// the wait for the record is new, it is the last of them. Returns the stream's last point after the wait.
    ///
    /// Returns `None` as [`record_end`](Self::record_end) does.
    pub fn wait_end(
        &mut self,
        at: (HostId, Place),
        stream: StreamHandle,
        recorded: &mut Recorded,
        waits: &mut Vec<Wait>,
    ) -> Option<Point> {
        let site = self.enter_by_handle(at, stream, waits)?;
        self.time.answer.ask();
        if wait_end(&mut self.time, &mut self.lost, stream.0, site, recorded) {
            self.note_needed(at.1);
        }
        self.time.answer.take_waits(waits);
        Some(self.time.at(stream.0).chain.last())
    }

    /// Gives an event a record that was made by handle, for steps by the event's name.
    pub fn set_record(&mut self, event: EventId, recorded: Recorded) {
        self.events.entry(event).or_default().stands = Stands::Recorded(recorded);
    }

    /// Takes the record of an event, for steps by handle. The event then stands for nothing. Returns `None` if it has
    /// no record.
    pub fn take_record(&mut self, event: EventId) -> Option<Recorded> {
        let event = self.events.get_mut(&event)?;
        matches!(event.stands, Stands::Recorded(_)).then(|| event.take_record())?
    }

    /// Enters a stream and returns the site of its next operation. Returns `None` as [`record_end`](Self::record_end)
    /// does.
    #[inline]
    pub(super) fn enter_by_handle(
        &mut self,
        (host, place): (HostId, Place),
        stream: StreamHandle,
        waits: &mut Vec<Wait>,
    ) -> Option<Site> {
        let (id, standing) = self.time.get(stream.0).map(|stream| (stream.kept.id, stream.role.standing()))?;
        if self.graphs.is_capturing() && (standing == Standing::Barrier || self.graphs.is_captured(id)) {
            return None;
        }
        if self.is_held(stream.0) {
            return None;
        }
        self.time.confirm(stream.0);
        self.time.answer.ask();
        self.time.enter_seat(host, stream.0);
        self.time.answer.take_waits(waits);
        let op = self.time.at(stream.0).kept.ops + 1;
        Some(Site { act: Act::Read, stream: id, op, place })
    }
}
