//! What an event stands for, as the checker keeps it. What is done with it is in `events.rs`.

use crate::graph::CapturedEvent;
use crate::ids::{DeviceId, ProcessId};
use crate::life::Site;
use crate::op::Place;
use crate::order::Snapshot;

/// A record of an event: where its stream stood, and whether anybody waited for it.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub(super) snapshot: Snapshot,
    pub(super) site: Site,
    pub(super) is_waited: bool,
    pub(super) lost: Option<Box<Lost>>,
}

impl Recorded {
    /// A record, in place of the one that the event had before. That is lost, unless a stream waited for it, or this
    /// one comes after it or is of the same launch.
    pub(super) fn new(snapshot: Snapshot, site: Site, before: Option<Recorded>) -> Self {
        let lost = match before {
            Some(old) if old.is_waited => None,
            Some(old) if old.site == site || snapshot.covers(old.snapshot.point()) => old.lost,
            Some(old) => Some(Box::new(Lost { snapshot: old.snapshot, site: old.site })),
            None => None,
        };
        Recorded { snapshot, site, is_waited: false, lost }
    }

    /// All that comes before the record.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

/// A record that was replaced before anybody waited for it.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) snapshot: Snapshot,
    pub(super) site: Site,
}

/// What an event stands for now.
#[derive(Clone, Debug, Default)]
pub(super) enum Stands {
    /// Nothing: never recorded.
    #[default]
    Nothing,
    /// A position of a stream.
    Recorded(Recorded),
    /// A place in a capture.
    Captured(CapturedEvent),
    /// Something that orders nothing.
    Progress(Site),
}

/// How an event was created.
#[derive(Clone, Copy, Debug)]
pub(super) struct Created {
    pub(super) device: DeviceId,
    pub(super) process: ProcessId,
    /// Whether other processes may use it.
    pub(super) is_shared: bool,
    pub(super) place: Place,
}

/// An event of the program.
#[derive(Clone, Debug, Default)]
pub(super) struct Event {
    /// None where it was never created.
    pub(super) created: Option<Created>,
    pub(super) stands: Stands,
}

impl Event {
    /// Whether a process may use it.
    pub(super) fn is_for(&self, process: ProcessId) -> bool {
        self.created.is_none_or(|created| created.process == process || created.is_shared)
    }

    /// A stream or a launch waits for its record: that is not lost any more.
    pub(super) fn waited(&mut self) {
        if let Stands::Recorded(recorded) = &mut self.stands {
            recorded.is_waited = true;
        }
    }

    /// It stands for a record from now on.
    pub(super) fn record(&mut self, snapshot: Snapshot, site: Site) {
        let before = self.take_record();
        self.stands = Stands::Recorded(Recorded::new(snapshot, site, before));
    }

    /// It stands for nothing from now on: its record, if it stood for one.
    pub(super) fn take_record(&mut self) -> Option<Recorded> {
        match std::mem::take(&mut self.stands) {
            Stands::Recorded(recorded) => Some(recorded),
            _ => None,
        }
    }
}
