//! Events and synchronisation.

use millpond::Event;
use millpond_reach::Past;

use super::life::Expect;
use super::world::Held;
use super::{Thread, pick};
use crate::finding::lock;
use crate::kind::Kind;
use crate::maker::place;
use crate::op::Op;

impl Thread<'_> {
    /// Records an event at the current end of a stream.
    pub(super) fn event_of(&mut self, held: &Held) -> Option<(Event, Past)> {
        let knows = self.before_next(&held.line);
        self.say(format_args!("let event = s{}.record()?;", held.line.chain));
        let event = held.stream.record();
        self.judge(&format!("record on s{}", held.line.chain), Expect::Accepted, event.as_ref().err());
        if event.is_ok() {
            self.publish(&held.line);
        }
        event.ok().map(|event| (event, knows))
    }

    /// Lets a stream wait for an event.
    pub(super) fn wait_for(&mut self, held: &Held, event: &Event, past: &Past) {
        self.before_next(&held.line);
        self.say(format_args!("s{}.wait(&event)?; // after {past:?}", held.line.chain));
        let waited = held.stream.wait(event);
        self.judge(&format!("wait on s{}", held.line.chain), Expect::Accepted, waited.as_ref().err());
        if waited.is_ok() {
            lock(&held.line.past).join(past);
            self.publish(&held.line);
        }
    }

    pub(super) fn record(&mut self, op: Op) {
        let Some(held) = self.stream(op.a) else { return };
        if let Some((event, past)) = self.event_of(&held) {
            let at = place(&self.events, op.b);
            self.events[at] = Some((event, past));
        }
    }

    pub(super) fn wait(&mut self, op: Op) {
        let Some(held) = self.stream(op.a) else { return };
        // An old event, or one that is recorded now.
        if op.c & 1 == 0 {
            if let Some((event, past)) = pick(&self.events, op.b).and_then(|at| self.events[at].clone()) {
                self.wait_for(&held, &event, &past);
            }
        } else if let Some(other) = self.stream(op.b)
            && let Some((event, past)) = self.event_of(&other)
        {
            self.wait_for(&held, &event, &past);
        }
    }

    pub(super) fn ask_event(&mut self, op: Op) {
        let Some((event, past)) = pick(&self.events, op.b).and_then(|at| self.events[at].clone()) else { return };
        if op.kind == Kind::SyncEvent {
            self.say(format_args!("event.synchronize()?; // after {past:?}"));
            let waited = event.synchronize();
            self.judge("Event::synchronize", Expect::Accepted, waited.as_ref().err());
            if waited.is_ok() {
                self.learn(&past, "Event::synchronize");
            }
            return;
        }
        self.say(format_args!("event.is_over()?; // after {past:?}"));
        let over = event.is_over();
        self.judge("Event::is_over", Expect::Accepted, over.as_ref().err());
        if over == Ok(true) {
            self.learn(&past, "Event::is_over");
        }
    }

    pub(super) fn ask_stream(&mut self, op: Op) {
        let Some(held) = self.stream(op.a) else { return };
        let (past, chain) = (self.before_next(&held.line), held.line.chain);
        if op.kind == Kind::SyncStream {
            self.say(format_args!("s{chain}.synchronize()?;"));
            let waited = held.stream.synchronize();
            self.judge("Stream::synchronize", Expect::Accepted, waited.as_ref().err());
            if waited.is_ok() {
                self.publish(&held.line);
                self.learn(&past, "Stream::synchronize");
            }
        } else {
            self.say(format_args!("s{chain}.is_idle()?;"));
            let idle = held.stream.is_idle();
            self.judge("Stream::is_idle", Expect::Accepted, idle.as_ref().err());
            self.publish(&held.line);
            if idle == Ok(true) {
                self.learn(&past, "Stream::is_idle");
            }
        }
    }

    /// Waits for all work of the device.
    pub(super) fn synchronize(&mut self) {
        let mut past = Past::default();
        self.world.oracle.lines().iter().for_each(|line| past.join(&line.now()));
        self.say(format_args!("device.synchronize()?;"));
        let waited = self.device().synchronize();
        self.judge("Device::synchronize", Expect::Accepted, waited.as_ref().err());
        if waited.is_ok() {
            self.learn(&past, "Device::synchronize");
        }
    }
}
