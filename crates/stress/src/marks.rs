//! External events, and which of them a graph records and waits for.

use std::sync::{Arc, Mutex};

use millpond::Device;
use millpond::graph::ExternalEvent;

use crate::finding::lock;
use millpond_reach::Past;

/// An external event at hand. Clones name the same one.
#[derive(Clone, Debug)]
pub(crate) struct External {
    /// The library's.
    pub(crate) event: ExternalEvent,
    /// Its device.
    pub(crate) device: usize,
    pub(crate) holds: Arc<Mutex<Holds>>,
}

/// What was recorded last.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// What comes before it for sure; none where it was never recorded.
    pub(crate) past: Option<Past>,
    /// Whether there may be more.
    pub(crate) is_vague: bool,
}

impl External {
    /// One that was never recorded.
    pub(crate) fn new(device: &Device, at: usize) -> Self {
        Self { event: device.external_event(), device: at, holds: Arc::default() }
    }

    /// It was recorded.
    pub(crate) fn hold(&self, past: Past, is_vague: bool) {
        *lock(&self.holds) = Holds { past: Some(past), is_vague };
    }
}

/// The event nodes of a graph. No event is both recorded and waited for by one, unless a child does the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// What is recorded, and whether that is after all other nodes.
    pub(crate) records: Vec<(External, bool)>,
    /// What is waited for.
    pub(crate) waits: Vec<External>,
}

impl Marks {
    pub(crate) fn records(&self, event: &External) -> bool {
        self.records.iter().any(|(it, _)| Arc::ptr_eq(&it.holds, &event.holds))
    }

    pub(crate) fn waits(&self, event: &External) -> bool {
        self.waits.iter().any(|it| Arc::ptr_eq(&it.holds, &event.holds))
    }

    /// Those of a child are among them.
    pub(crate) fn join(&mut self, child: &Marks) {
        self.records.extend(child.records.iter().map(|(it, _)| (it.clone(), false)));
        self.waits.extend(child.waits.iter().cloned());
    }

    /// A launch came after `knows`, and everything of it comes before `end`.
    pub(crate) fn launched(&self, knows: &Past, end: &Past) {
        for (event, is_last) in &self.records {
            // Two nodes may record the same event: which is later is not known.
            let is_one = self.records.iter().filter(|(it, _)| Arc::ptr_eq(&it.holds, &event.holds)).count() == 1;
            match *is_last && is_one {
                true => event.hold(end.clone(), false),
                false => event.hold(knows.clone(), true),
            }
        }
    }

    /// A launch was made in part.
    pub(crate) fn unsure(&self) {
        self.records.iter().for_each(|(event, _)| event.hold(Past::default(), true));
    }
}
