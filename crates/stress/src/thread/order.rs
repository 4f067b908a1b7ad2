//! What orders things: events, external events, synchronisation.

use millpond::{Error, Event};
use millpond_driver::{CallKind, DriverError};

use crate::finding::lock;
use crate::kind::Kind;
use crate::life::Expect;
use crate::marks::External;
use crate::op::Op;
use crate::thread::{Thread, pick, place};
use crate::world::Held;
use millpond_reach::Past;

/// Whether a question about a stream, which is a record and a question about that, got as far as the second. A record
/// on the legacy default stream orders the others.
fn was_recorded(error: &Error) -> bool {
    let Error::Driver(error) = error else { return false };
    let asks = [CallKind::BlockOn.name(), CallKind::IsOver.name()];
    matches!(&**error, DriverError::Failed { call, .. } if asks.contains(call))
}

impl Thread<'_> {
    /// The present end of a stream, as an event.
    pub(crate) fn event_of(&mut self, held: &Held) -> Option<(Event, Past)> {
        let knows = self.before_next(&held.line);
        self.say(format_args!("let event = s{}.record()?;", held.line.chain));
        let event = held.stream.record();
        self.judge(&format!("record on s{}", held.line.chain), Expect::Accepted, event.as_ref().err());
        if event.is_ok() {
            self.publish(&held.line);
        }
        event.ok().map(|event| (event, knows))
    }

    /// A stream waits for an event.
    pub(crate) fn wait_for(&mut self, held: &Held, event: &Event, past: &Past) {
        self.before_next(&held.line);
        self.say(format_args!("s{}.wait(&event)?; // after {past:?}", held.line.chain));
        let waited = held.stream.wait(event);
        self.judge(&format!("wait on s{}", held.line.chain), Expect::Accepted, waited.as_ref().err());
        if waited.is_ok() {
            lock(&held.line.past).join(past);
            self.publish(&held.line);
        }
    }

    pub(crate) fn record(&mut self, op: Op) {
        let Some(held) = self.stream(op.a) else { return };
        if let Some((event, past)) = self.event_of(&held) {
            let at = place(&self.events, op.b);
            self.events[at] = Some((event, past, held.line.device));
        }
    }

    pub(crate) fn wait(&mut self, op: Op) {
        let Some(held) = self.stream(op.a) else { return };
        // An old event, or one that is recorded now.
        if op.c & 1 == 0 {
            if let Some((event, past, _)) = pick(&self.events, op.b).and_then(|at| self.events[at].clone()) {
                self.wait_for(&held, &event, &past);
            }
        } else if let Some(other) = self.stream(op.b)
            && let Some((event, past)) = self.event_of(&other)
        {
            self.wait_for(&held, &event, &past);
        }
    }

    pub(crate) fn record_external(&mut self, op: Op) {
        let Some(held) = self.stream(op.a) else { return };
        let at = place(&self.externals, op.b);
        let Some(device) = self.device(held.line.device) else { return };
        let external = match self.externals[at].take() {
            Some(external) if external.device == held.line.device && op.c & 3 != 0 => external,
            _ => External::new(&device, held.line.device),
        };
        let knows = self.before_next(&held.line);
        self.say(format_args!("s{}.record_external(&x{at})?;", held.line.chain));
        let recorded = held.stream.record_external(&external.event);
        self.judge("record_external", Expect::Accepted, recorded.as_ref().err());
        if recorded.is_ok() {
            self.publish(&held.line);
            external.hold(knows, false);
        }
        self.externals[at] = Some(external);
    }

    pub(crate) fn wait_external(&mut self, op: Op) {
        let (Some(held), Some(at)) = (self.stream(op.a), pick(&self.externals, op.b)) else { return };
        let Some(external) = self.externals[at].clone() else { return };
        self.before_next(&held.line);
        self.say(format_args!("s{}.wait_external(&x{at})?;", held.line.chain));
        let waited = held.stream.wait_external(&external.event);
        self.judge("wait_external", Expect::Accepted, waited.as_ref().err());
        // A wait for an event that was never recorded is nothing.
        if let Some(past) = self.held_by(&external).filter(|_| waited.is_ok()) {
            lock(&held.line.past).join(&past);
            self.publish(&held.line);
        }
    }

    pub(crate) fn ask_event(&mut self, op: Op) {
        let Some((event, past, device)) = pick(&self.events, op.b).and_then(|at| self.events[at].clone()) else {
            return;
        };
        if op.kind == Kind::SyncEvent {
            self.say(format_args!("event.synchronize()?; // after {past:?}"));
            let waited = event.synchronize();
            self.judge("Event::synchronize", Expect::Accepted, waited.as_ref().err());
            if waited.is_ok() {
                self.learn(device, &past, "Event::synchronize");
            }
            return;
        }
        self.say(format_args!("event.is_over()?; // after {past:?}"));
        let over = event.is_over();
        self.judge("Event::is_over", Expect::Accepted, over.as_ref().err());
        if over == Ok(true) {
            self.learn(device, &past, "Event::is_over");
        }
    }

    pub(crate) fn ask_stream(&mut self, op: Op) {
        let Some(held) = self.stream(op.a) else { return };
        let (past, chain) = (self.before_next(&held.line), held.line.chain);
        if op.kind == Kind::SyncStream {
            self.say(format_args!("s{chain}.synchronize()?;"));
            let waited = held.stream.synchronize();
            self.judge("Stream::synchronize", Expect::Accepted, waited.as_ref().err());
            if waited.as_ref().err().is_none_or(was_recorded) {
                self.publish(&held.line);
            }
            if waited.is_ok() {
                self.learn(held.line.device, &past, "Stream::synchronize");
            }
        } else {
            self.say(format_args!("s{chain}.is_idle()?;"));
            let idle = held.stream.is_idle();
            self.judge("Stream::is_idle", Expect::Accepted, idle.as_ref().err());
            if idle.as_ref().err().is_none_or(was_recorded) {
                self.publish(&held.line);
            }
            if idle == Ok(true) {
                self.learn(held.line.device, &past, "Stream::is_idle");
            }
        }
    }

    pub(crate) fn synchronize_device(&mut self, op: Op) {
        self.synchronize(op.a as usize % self.world.devices.len());
    }

    /// Waits for all work of a device.
    pub(crate) fn synchronize(&mut self, at: usize) {
        let Some(device) = self.device(at) else { return };
        let mut past = Past::default();
        self.world.oracle.lines_of(at).iter().for_each(|line| past.join(&line.now()));
        self.say(format_args!("device{at}.synchronize()?;"));
        let waited = device.synchronize();
        self.judge("Device::synchronize", Expect::Accepted, waited.as_ref().err());
        if waited.is_ok() {
            self.learn(at, &past, "Device::synchronize");
        }
    }
}
