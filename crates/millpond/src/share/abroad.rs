//! Chains of other processes in this device's order.
//!
//! A chain is known everywhere by the random number of its device and its slot there. Here each gets a slot of its own,
//! never one that a chain of this device had, and keeps its positions. Points of this device that come back are its own
//! again, if they can be true.
//!
//! Knows points and slots; no sockets, no memory. Its lock is a leaf but for the list of slots.

use std::sync::{Arc, Mutex};

use millpond_core::check::{Place, Site, Use};
use millpond_core::ids::{Point, Seq, Slot, StreamId};
use millpond_core::order::Snapshot;
use millpond_core::share::{ForeignPoint, ForeignUse, POINTS_MAX};
use rustc_hash::FxHashMap;

use crate::context::{Context, lock};
use crate::progress::Progress;

/// No chain gets this far: a stranger's number must not make positions run over.
const SEQ_MAX: Seq = 1 << 60;

/// The chains of others, both ways.
#[derive(Debug, Default)]
pub(crate) struct Abroad {
    chains: Mutex<Chains>,
}

#[derive(Debug, Default)]
struct Chains {
    /// The slot here and the last position heard of.
    here: FxHashMap<(u128, u32), (Slot, Seq)>,
    names: FxHashMap<Slot, (u128, u32)>,
}

impl Context {
    /// What another process calls a point of this order.
    pub(super) fn point_abroad(&self, number: u128, point: Point) -> ForeignPoint {
        let (device, slot) =
            lock(&self.share.abroad.chains).names.get(&point.slot).copied().unwrap_or((number, point.slot.0));
        ForeignPoint { device, slot, seq: point.seq }
    }

    /// A use as other processes see it.
    pub(super) fn use_abroad(&self, number: u128, known: &Use) -> ForeignUse {
        let point = self.point_abroad(number, known.point);
        let Site { act, stream, op, .. } = known.site;
        ForeignUse { point, act, stream: stream.0, op: op.min(point.seq) }
    }

    /// What this order calls a point of another; none where it cannot be true.
    pub(super) fn point_here(&self, number: u128, point: ForeignPoint) -> Option<Point> {
        if point.seq > SEQ_MAX {
            return None;
        }
        let mut chains = lock(&self.share.abroad.chains);
        if point.device == number {
            let slot = Slot(point.slot);
            let progress = self.chains.find(slot).filter(|_| !chains.names.contains_key(&slot))?;
            return (point.seq <= progress.last(slot).seq).then_some(Point { slot, seq: point.seq });
        }
        let key = (point.device, point.slot);
        if let Some((slot, last)) = chains.here.get_mut(&key) {
            *last = point.seq.max(*last);
            return Some(Point { slot: *slot, seq: point.seq });
        }
        if chains.here.keys().filter(|known| known.0 == point.device).count() >= POINTS_MAX {
            return None;
        }
        // A fresh slot: what had another before need not come before this chain.
        let mut slots = lock(&self.slots);
        let (slot, _) = slots.open(|_| false);
        self.chains.insert(slot, Arc::new(Progress::of_launches(0)));
        drop(slots);
        chains.here.insert(key, (slot, point.seq));
        chains.names.insert(slot, key);
        Some(Point { slot, seq: point.seq })
    }

    /// A use by another process.
    pub(super) fn use_here(&self, number: u128, process: u32, known: &ForeignUse) -> Option<Use> {
        let point = self.point_here(number, known.point)?;
        let site = Site {
            act: known.act,
            stream: StreamId(known.stream),
            op: known.op.min(point.seq),
            place: Place::Process(process),
        };
        Some(Use { point, site })
    }

    /// A process is gone, and with it its device and all work: whatever it did is over.
    pub(super) fn forget_abroad(&self, device: u128) {
        let mut chains = lock(&self.share.abroad.chains);
        let ended: Vec<Point> =
            chains.here.extract_if(|key, _| key.0 == device).map(|(_, (slot, seq))| Point { slot, seq }).collect();
        for point in &ended {
            chains.names.remove(&point.slot);
        }
        drop(chains);
        for point in ended {
            if let Some(progress) = self.chains.find(point.slot) {
                progress.complete(point.seq);
            }
            self.hosts.learn([&Snapshot::foreign(point, [])]);
            lock(&self.slots).close(point);
        }
    }
}

/// Whether another process did it.
pub(super) fn is_abroad(known: &Use) -> bool {
    matches!(known.site.place, Place::Process(_))
}
