//! Events: records, waits, synchronisations and queries.
//!
//! An event has a snapshot of its stream, which the next record replaces. A wait is for the latest record. If a record
//! replaces one that no stream waited for, and does not come after it, a wait covers less than it may seem. A finding
//! that lacks an order for this reason says so in a note. Knows streams; captured records and waits go to
//! `captures.rs`.

use super::checker::{Call, Checker, Created, Event, Lost, Refused, Replaced, Stands, Step};
use super::finding::{Finding, Spot};
use super::graph_state::Instance;
use super::timeline::{Learned, StreamIndex};
use crate::ids::{EventId, StreamId};
use crate::life::{Kind, Site, Use};
use crate::op::{Act, EventKind, Thing, What};
use crate::order::Knows;
use crate::order::default_streams::Standing;

impl Checker {
    /// Does the rare operations of events.
    pub(super) fn event_step(&mut self, what: &What, call: Call<'_>) -> Step {
        match *what {
            What::EventCreate { event, device, shared } => {
                let (process, place) = (self.time.process(call.op.host), call.op.place);
                let created = Some(Created { device, process, is_shared: shared, place });
                self.events.insert(event, Event { created, stands: Stands::Nothing });
                Ok(())
            }
            What::EventCopy { event, from } => {
                // A wait for either event is a wait for this record, so it counts as waited for.
                let copy = self.events.get_mut(&from).map(|from| {
                    from.waited();
                    from.clone()
                });
                self.events.insert(event, copy.unwrap_or_default());
                Ok(())
            }
            What::EventDestroy { event } => {
                self.events.remove(&event);
                Ok(())
            }
            What::EventSynchronize { event } => self.synchronize_event(call, event, "synchronized", true),
            What::EventQuery { event, is_over } => self.synchronize_event(call, event, "queried", is_over),
            _ => Ok(()),
        }
    }

    /// Records an event on a stream.
    pub(super) fn record(
        &mut self,
        call: Call<'_>,
        event: EventId,
        stream: StreamId,
        external: bool,
        kind: EventKind,
    ) -> Step {
        let stream_index = self.enter(call, stream)?;
        let mut site = self.site(call, stream_index, Act::Read);
        self.check_event_process(call, event, site)?;
        self.check_event_device(call, event, stream_index)?;
        if self.graphs.is_captured(stream) {
            if external {
                return self.captured_event(call, stream_index, event, true);
            }
            let mut captured = self.captured_record(call, stream_index)?;
            if kind == EventKind::Progress {
                // A stream that waits for it joins the capture, and comes after none of its nodes.
                captured.tails.clear();
            }
            self.events.entry(event).or_default().stands = Stands::Captured(captured);
            self.time.asked.tell(|effects| effects.recorded.push(event));
            self.time.at_mut(stream_index).note("recorded", call.op.place);
            return Ok(());
        }
        if external {
            return Err(self.external_outside(call, site, "recorded"));
        }
        match kind {
            EventKind::Asked => {
                site.op -= 1;
                self.time.streams.leave(stream_index);
            }
            EventKind::Completion | EventKind::Progress => self.time.done(stream_index, "recorded", call.op.place),
        }
        let entry = self.events.entry(event).or_default();
        if kind == EventKind::Progress {
            entry.stands = Stands::Progress(site);
            return Ok(());
        }
        entry.record(self.time.at(stream_index).chain.snapshot(), site);
        self.time.asked.tell(|effects| effects.recorded.push(event));
        Ok(())
    }

    /// Makes later work of a stream wait for an event.
    pub(super) fn wait(&mut self, call: Call<'_>, event: EventId, stream: StreamId, external: bool) -> Step {
        let is_empty = !matches!(
            self.events.get(&event).map(|event| &event.stands),
            Some(Stands::Recorded(_) | Stands::Captured(_))
        );
        // A wait for nothing is not an operation: the stream learns nothing from it.
        let stream_index = if is_empty { self.look(call, stream)? } else { self.enter(call, stream)? };
        let site = self.site(call, stream_index, Act::Read);
        self.check_event_process(call, event, site)?;
        let is_captured = self.graphs.is_captured(stream);
        if external {
            return match is_captured {
                true => self.captured_event(call, stream_index, event, false),
                false => Err(self.external_outside(call, site, "waited for")),
            };
        }
        let progress = match self.events.get_mut(&event).map(|event| &mut event.stands) {
            Some(Stands::Captured(captured)) => {
                let captured = captured.clone();
                self.captured_wait(call, stream_index, &captured)?;
                self.time.asked.tell(|effects| effects.awaited.push((event, None)));
                return Ok(());
            }
            _ if is_captured => return self.captured_wait_outside(call, stream_index, event),
            Some(Stands::Recorded(recorded)) => {
                recorded.is_waited = true;
                let (point, by, lost) = (recorded.snapshot.point(), recorded.site, recorded.lost.take());
                self.time.asked.tell(|effects| effects.awaited.push((event, Some(point))));
                let is_news = self.time.wait(stream_index, &recorded.snapshot);
                if is_news {
                    let what = recorded.snapshot.clone();
                    let learned = Learned { what, verb: "waited for", recorded: Some(by), site };
                    self.time.at_mut(stream_index).kept.learned.push(learned);
                    self.note_needed(call.op.place);
                }
                self.time.done(stream_index, "waited for", call.op.place);
                let stream = self.time.at(stream_index);
                // The stream does not come after the record that was replaced.
                if let Some(lost) = lost.filter(|lost| !stream.chain.covers(lost.snapshot.point())) {
                    self.lost.push(Replaced { lost: *lost, by, wait: site, waited_at: stream.chain.last() });
                }
                // Other streams come after an operation of the legacy default stream, so the wait is not redundant
                // there.
                if !is_news && stream.role.standing() != Standing::Barrier {
                    self.advise_on_wait(call, Kind::RedundantWait, Some(by), site);
                }
                return Ok(());
            }
            Some(Stands::Progress(site)) => Some(*site),
            Some(Stands::Nothing) | None => None,
        };
        self.time.at_mut(stream_index).note("waited for", call.op.place);
        self.advise_on_wait(call, Kind::EmptyWait, progress, site);
        Ok(())
    }

    /// Returns a note if an order is missing because an event was recorded again: the later party comes after a wait
    /// for the event, but that wait was for the second record, and only the first one covers an earlier use.
    pub(super) fn lost_between(&self, call: Call<'_>, earlier: &[Use], later: StreamId) -> Option<String> {
        let stream = self.time.stream(later);
        let base = self.time.base_of(call.op.host);
        let is_known = |point| match stream {
            Some(stream) => stream.chain.covers(point),
            None => base.is_some_and(|base| base.covers(point)),
        };
        let is_meant = |lost: &Lost| earlier.iter().any(|end| lost.snapshot.covers(end.point));
        let is_why = |it: &&Replaced| is_meant(&it.lost) && is_known(it.waited_at);
        let Replaced { lost, by, wait, .. } = self.lost.iter().filter(is_why).last()?;
        let spot = |site: Site| Spot::new(site.place, call.names);
        Some(format!(
            "an event was recorded on {} ({}), and again on {} ({}): the wait of {} ({}) is for the second record only",
            self.title(call, lost.site.stream),
            spot(lost.site),
            self.title(call, by.stream),
            spot(*by),
            self.title(call, wait.stream),
            spot(*wait),
        ))
    }

    fn synchronize_event(&mut self, call: Call<'_>, event: EventId, verb: &'static str, is_over: bool) -> Step {
        let site = self.host_site(call, Act::Read);
        self.check_event_process(call, event, site)?;
        match self.events.get_mut(&event).map(|event| &mut event.stands) {
            Some(Stands::Captured(captured)) => {
                let checked = self.graphs.captures.check_event(captured);
                return checked.map_err(|error| self.capture_refused(call, error, StreamId::HOST));
            }
            Some(Stands::Recorded(recorded)) if is_over => {
                recorded.is_waited = true;
                let (what, recorded) = (recorded.snapshot.clone(), Some(recorded.site));
                self.time.asked.tell(|effects| effects.awaited.push((event, Some(what.point()))));
                self.time.learn(call.op.host, Learned { what, verb, recorded, site });
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that the calling process may use an event.
    pub(super) fn check_event_process(&self, call: Call<'_>, event: EventId, site: Site) -> Step {
        let process = self.time.process(call.op.host);
        let Some(created) = self.events.get(&event).filter(|it| !it.is_for(process)).and_then(|it| it.created) else {
            return Ok(());
        };
        let (event, owner) = (call.names.title(Thing::Event(event)), created.process);
        let sentence = format!("{event} is of {owner} and is used by {process}");
        let mut finding = Finding::new(Kind::NotShareable, sentence, "create it for use between processes");
        finding.later = Some(self.side(call, site, "used"));
        Err(Box::new(finding))
    }

    /// Checks that a stream records only events of its own device. It may wait for events of other devices.
    fn check_event_device(&self, call: Call<'_>, event: EventId, stream_index: StreamIndex) -> Step {
        let own = self.time.at(stream_index).kept.device;
        match self.events.get(&event).and_then(|event| Some((event, event.created?))) {
            Some((kept, created)) if created.device != own => {
                Err(self.of_other_device(call, event, kept, created, stream_index))
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn of_other_device(
        &self,
        call: Call<'_>,
        event: EventId,
        kept: &Event,
        created: Created,
        stream_index: StreamIndex,
    ) -> Refused {
        let (own, device) = (self.time.at(stream_index).kept.device, created.device);
        let (name, stream) =
            (call.names.title(Thing::Event(event)), self.title(call, self.time.at(stream_index).kept.id));
        let site = Site { place: created.place, ..self.host_site(call, Act::Read) };
        let created = self.side(call, site, "created");
        let at = created.spot.in_brackets();
        let help = match kept.stands {
            Stands::Nothing => format!("create {name} on {own}{at}, or record it on a stream of {device}"),
            _ => format!(
                "create another event on {own} and record that on {stream}: {name} can be recorded on streams of \
                 {device} only, while any stream may wait for it"
            ),
        };
        let sentence = format!("{name} of {device} is recorded on {stream}, which is of {own}");
        let mut finding = Finding::new(Kind::WrongDevice, sentence, help);
        finding.earlier = Some(created);
        finding.later = Some(self.side(call, self.site(call, stream_index, Act::Read), "recorded"));
        Box::new(finding)
    }

    /// As [`check_event_device`](Self::check_event_device), for all events that a launch records.
    pub(super) fn check_records(&self, call: Call<'_>, stream_index: StreamIndex, instance: &Instance) -> Step {
        let mut records = instance.exec.summary().records.iter();
        records.try_for_each(|(_, key)| self.check_event_device(call, EventId(key.0 as u32), stream_index))
    }

    fn external_outside(&self, call: Call<'_>, site: Site, verb: &str) -> Box<Finding> {
        let stream = self.title(call, site.stream);
        let sentence = format!("an external event is {verb} on {stream}, which is not being captured");
        let help = "leave the external flag out: it is for captures";
        let mut finding = Finding::new(Kind::ExternalOutsideCapture, sentence, help);
        finding.later = Some(self.side(call, site, verb));
        Box::new(finding)
    }

    #[cold]
    fn advise_on_wait(&mut self, call: Call<'_>, kind: Kind, recorded: Option<Site>, site: Site) {
        if !self.settings.advice {
            return;
        }
        let who = self.title(call, site.stream);
        let (sentence, help) = match (kind, recorded) {
            (Kind::RedundantWait, _) => (
                format!("{who} waits for a record that it comes after already"),
                "leave this wait out, and the record if nothing else waits for it",
            ),
            (_, Some(_)) => (
                format!("{who} waits for an event that does not stand for the end of work: it orders nothing"),
                "record a plain event after the work",
            ),
            (_, None) => (
                format!("{who} waits for an event that was never recorded: it waits for nothing"),
                "record the event before, or leave the wait out",
            ),
        };
        let mut finding = Finding::new(kind, sentence, help);
        finding.earlier = recorded.map(|site| self.side(call, site, "recorded"));
        finding.later = Some(self.side(call, site, "waited"));
        match (kind, recorded) {
            (Kind::EmptyWait, Some(_)) => self.advise(finding),
            _ => self.advise_against(call.op.place, finding),
        }
    }
}
