//! Events, external events and synchronisation. Beside the checker, notes which kernels come before what.

use std::sync::Arc;

use millpond_core::ids::EventId;
use millpond_core::op::{Access, EventKind, What};

use super::{EventAt, Line, Thread, Tie, device_id, pick, place};
use crate::ground::{Before, Done};
use crate::kind::Kind;
use crate::model::Kernel;
use crate::op::Op;

impl Thread<'_> {
    /// Notes what a stream's next operation learns from the legacy default stream.
    pub(super) fn before(&mut self, on: usize) {
        let Some(line) = self.streams[on].clone() else { return };
        let others =
            self.streams.iter().flatten().chain(&self.closed).filter(|it| it.device == line.device && it.id != line.id);
        let mut learned = Before::default();
        for other in others {
            let is_met = match line.tie {
                Tie::Free => false,
                Tie::Blocking => other.tie == Tie::Legacy,
                Tie::Legacy => other.tie == Tie::Blocking,
            };
            if is_met {
                learned.join(&other.before);
            }
        }
        self.learned = learned;
    }

    /// Notes that an operation of a stream was done.
    pub(super) fn after(&mut self, on: usize, done: Option<&Done>) {
        let line = self.ops.len() as u32;
        self.after_kernel(on, done.map(|done| (done, Kernel { line, launch: None })));
    }

    /// Notes that an operation of a stream was done, with its kernel if it has one.
    pub(super) fn after_kernel(&mut self, on: usize, kernel: Option<(&Done, Kernel)>) {
        let learned = std::mem::take(&mut self.learned);
        if let Some(line) = &mut self.streams[on] {
            line.before.join(&learned);
            kernel.into_iter().for_each(|(done, _)| line.before.add(done));
        }
        self.kernels.extend(kernel.map(|(done, kernel)| (Arc::clone(done), kernel)));
    }

    /// Checks the kernels of a stream that the host has waited for.
    pub(super) fn check_over(&self, on: usize, call: &str) {
        if let Some(line) = self.streams[on].as_ref().filter(|_| self.stage.runs_kernels()) {
            line.before.check_over(call);
        }
    }

    /// Orders a stream after everything that these accesses must come after: by events, or else by the host.
    pub(super) fn order(&mut self, on: usize, accesses: &[Access]) {
        let Some(line) = self.streams[on].clone() else { return };
        for _ in 0..4 {
            let Some(missing) = self.misses(line.id, accesses) else { return };
            let mut is_any = false;
            for stream in missing {
                if let Some(event) = self.stubs.get(&stream).copied() {
                    is_any |= self.perform(What::EventWait { event, stream: line.id, external: false });
                } else if let Some(other) =
                    self.streams.iter().position(|it| it.as_ref().is_some_and(|it| it.id == stream))
                    && let Some(event) = self.event_of(other)
                {
                    is_any |= self.wait_for(on, &event);
                }
            }
            if !is_any {
                let device =
                    accesses.iter().find_map(|it| self.bufs.iter().flatten().find(|buf| buf.memory == it.memory));
                return self.synchronize(device.map_or(line.device, |buf| buf.device));
            }
        }
    }

    /// Records an event at the current end of a stream.
    pub(super) fn event_of(&mut self, on: usize) -> Option<EventAt> {
        let line = self.streams[on].clone()?;
        self.before(on);
        let id = EventId(self.stage.number());
        let what = What::EventRecord { event: id, stream: line.id, external: false, kind: EventKind::Completion };
        if !self.perform(what) {
            return None;
        }
        self.after(on, None);
        let before = self.streams[on].as_ref()?.before.clone();
        Some(EventAt { id, before })
    }

    /// Lets a stream wait for an event.
    pub(super) fn wait_for(&mut self, on: usize, event: &EventAt) -> bool {
        let Some(line) = self.streams[on].clone() else { return false };
        self.before(on);
        let is_done = self.perform(What::EventWait { event: event.id, stream: line.id, external: false });
        if is_done {
            self.after(on, None);
            self.streams[on].iter_mut().for_each(|line| line.before.join(&event.before));
        }
        is_done
    }

    pub(super) fn record(&mut self, op: Op) {
        let Some(on) = pick(&self.streams, op.a) else { return };
        if let Some(event) = self.event_of(on) {
            let at = place(&self.events, op.b);
            self.events[at] = Some(event);
        }
    }

    pub(super) fn wait(&mut self, op: Op) {
        let Some(on) = pick(&self.streams, op.a) else { return };
        // An old event, or one that is recorded now.
        let event = match op.c & 1 {
            0 => pick(&self.events, op.b).and_then(|at| self.events[at].clone()),
            _ => pick(&self.streams, op.b).and_then(|other| self.event_of(other)),
        };
        if let Some(event) = event {
            self.wait_for(on, &event);
        }
    }

    pub(super) fn record_external(&mut self, op: Op) {
        let is_first = |line: &Option<Line>| line.as_ref().is_some_and(|it| it.device == 0);
        let Some(on) = pick(&self.streams, op.a).filter(|on| is_first(&self.streams[*on])) else { return };
        let at = place(&self.externals, op.b);
        if op.c & 3 == 0 || self.externals[at].is_none() {
            self.externals[at] = Some(EventAt { id: EventId(self.stage.number()), before: Before::default() });
        }
        if let Some(id) = self.externals[at].as_ref().map(|it| it.id) {
            self.record_at(id, on);
        }
    }

    /// Records an external event on a stream.
    pub(super) fn record_at(&mut self, event: EventId, on: usize) {
        let Some(line) = self.streams[on].clone() else { return };
        self.before(on);
        self.name_external(event, line.id);
        if !self.perform(What::EventRecord { event, stream: line.id, external: false, kind: EventKind::Completion }) {
            return;
        }
        self.after(on, None);
        let before = self.streams[on].as_ref().map(|it| it.before.clone()).unwrap_or_default();
        self.externals.iter_mut().flatten().filter(|it| it.id == event).for_each(|it| it.before = before.clone());
    }

    /// Tells the runner that an event is external.
    fn name_external(&mut self, event: EventId, stream: millpond_core::ids::StreamId) {
        let what = What::EventRecord { event, stream, external: true, kind: EventKind::Completion };
        let host = millpond_core::ids::HostId(0);
        self.run.prepare(&[millpond_core::op::Op { host, place: millpond_core::op::Place::Unknown, what }]);
    }

    pub(super) fn wait_external(&mut self, op: Op) {
        let (Some(on), Some(at)) = (pick(&self.streams, op.a), pick(&self.externals, op.b)) else { return };
        if let Some(event) = self.externals[at].clone() {
            self.wait_for(on, &event);
        }
    }

    pub(super) fn ask_event(&mut self, op: Op) {
        let Some(event) = pick(&self.events, op.b).and_then(|at| self.events[at].clone()) else { return };
        let is_over = match op.kind {
            Kind::SyncEvent => self.perform(What::EventSynchronize { event: event.id }),
            _ => {
                let Some(over) = self.run.event_of(event.id).map(|it| it.is_over()) else { return };
                let over = self.is_fine("event.is_over()", over) == Some(true);
                if over {
                    self.tell(What::EventQuery { event: event.id, is_over: true });
                }
                over
            }
        };
        if is_over && self.stage.runs_kernels() {
            event.before.check_over("an event that has completed");
        }
    }

    pub(super) fn ask_stream(&mut self, op: Op) {
        let Some(on) = pick(&self.streams, op.a) else { return };
        let Some(line) = self.streams[on].clone() else { return };
        self.before(on);
        let stream = line.id;
        let is_idle = match op.kind {
            Kind::SyncStream => self.perform(What::StreamSynchronize { stream }),
            // A query of the legacy stream is an operation of it, which orders work.
            _ if line.tie == Tie::Legacy => return,
            _ => {
                let Some(idle) = self.run.stream_of(stream).map(|it| it.is_idle()) else { return };
                if idle.is_err() && self.stage.setting.has(Kind::Fail) {
                    // It is not known whether the query recorded something.
                    self.lose_track();
                }
                let idle = self.is_fine("is_idle()", idle) == Some(true);
                self.tell(What::StreamQuery { stream, is_idle: idle });
                idle
            }
        };
        if is_idle {
            self.after(on, None);
            self.check_over(on, "the end of a stream");
        }
    }

    /// Waits for all work of a device. If there are several threads, waits for all devices, because it is not known
    /// which devices used memory that another thread gave.
    pub(super) fn synchronize(&mut self, at: usize) {
        match self.stage.is_exact() {
            true => self.synchronize_device(at),
            false => (0..self.stage.devices.len()).for_each(|at| self.synchronize_device(at)),
        }
    }

    fn synchronize_device(&mut self, at: usize) {
        if self.stage.device(at).is_none() {
            return;
        }
        let mut all = Before::default();
        self.streams.iter().flatten().filter(|it| it.device == at).for_each(|it| all.join(&it.before));
        if self.perform(What::SynchronizeDevice { device: device_id(at) }) && self.stage.runs_kernels() {
            all.check_over("Device::synchronize");
        }
    }
}
