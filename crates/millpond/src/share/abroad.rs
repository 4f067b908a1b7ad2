//! Chains of other processes in this device's order.
//!
//! A *speaker* is a device of another process: the process as the system names it, and the number that the device gave
//! itself. Each chain of a speaker gets a slot of its own here, never one that a chain of this device had. What a
//! speaker says of its own chains is believed; nobody else can name them with effect but in an event, which its
//! importer chose to come after. What anybody says of this device's chains must be true of them already.
//!
//! A speaker is needed while it holds something, and while somebody else holds memory that it used: that one was told
//! of its uses, and has to be told that they are over ([`Context::over_abroad`]), which may be after the speaker's end.
//! When the last that needs it is gone, its chains are forgotten, and their slots serve other chains: whose positions
//! then go on counting, so that no point is ever mistaken for one of a chain before. What is said of a chain
//! counts from where it began on its own device: two devices that import from each other would add up each other's
//! positions otherwise.
//!
//! Knows points and slots; no sockets, no memory. Its lock is a leaf but for the list of slots.

use std::sync::{Arc, Mutex, Weak};

use millpond_core::check::{Place, Site, Use};
use millpond_core::ids::{Point, Seq, Slot, StreamId};
use millpond_core::share::{ForeignPoint, ForeignUse, POINTS_MAX};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::socket::ProcessKey;
use crate::context::{Context, lock};
use crate::progress::Progress;

/// No chain gets this far: a stranger's number must not make positions run over.
const SEQ_MAX: Seq = 1 << 48;
/// A slot whose positions have come this far serves no other chain.
const WORN_OUT: Seq = 1 << 62;
/// The most chains of one speaker.
const CHAINS_MAX: usize = POINTS_MAX;
/// The most chains of all speakers together.
const ALL_CHAINS_MAX: usize = 1 << 16;

/// The chains of others, both ways.
#[derive(Debug, Default)]
pub(crate) struct Abroad {
    chains: Mutex<Chains>,
}

/// Whom a chain is of: the speaker that named it, the device, and the slot there.
type Name = (u64, u128, u32);

#[derive(Debug, Default)]
struct Chains {
    here: FxHashMap<Name, Chain>,
    names: FxHashMap<Slot, Name>,
    speakers: FxHashMap<u64, Known>,
    next: u64,
    /// Slots of chains that are forgotten, and where they ended.
    vacant: Vec<Point>,
    /// All slots that chains of others ever had.
    foreign: FxHashSet<Slot>,
}

/// A chain of another process.
#[derive(Clone, Copy, Debug)]
struct Chain {
    slot: Slot,
    /// Its positions here come after this one.
    origin: Seq,
    /// The last position heard of, here.
    last: Seq,
    /// All up to this position is over, the speaker says, or its end.
    over: Seq,
    /// The process whose it is, as the speaker says where it tells another's uses; 0 where it did not.
    process: u32,
}

/// A speaker, as long as somebody needs it.
#[derive(Debug)]
struct Known {
    process: ProcessKey,
    device: u128,
    /// What it holds, and what it is asked for.
    users: usize,
    /// Those who were told of its uses.
    told: usize,
    /// Its chains: devices and slots there.
    chains: Vec<(u128, u32)>,
}

/// Somebody needs this speaker.
#[derive(Debug)]
pub(super) struct Speaker {
    context: Weak<Context>,
    number: u64,
    pub(super) device: u128,
}

impl Drop for Speaker {
    fn drop(&mut self) {
        if let Some(context) = self.context.upgrade() {
            context.release_speaker(self.number, |known| &mut known.users);
        }
    }
}

/// Somebody was told what these speakers did.
#[derive(Debug)]
pub(super) struct Told {
    context: Weak<Context>,
    numbers: SmallVec<[u64; 1]>,
}

impl Told {
    /// What was done up to these points is over, and whoever comes after an event of this device comes after it.
    pub(super) fn is_over(&self, points: &[Point]) {
        let Some(context) = self.context.upgrade().filter(|_| !points.is_empty()) else { return };
        let mut chains = lock(&context.share.abroad.chains);
        for point in points {
            chains.is_over(*point);
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(context) = self.context.upgrade() {
            self.numbers.iter().for_each(|number| context.release_speaker(*number, |known| &mut known.told));
        }
    }
}

impl Chains {
    /// A chain is over up to a point.
    fn is_over(&mut self, point: Point) {
        let Some(name) = self.names.get(&point.slot) else { return };
        if let Some(chain) = self.here.get_mut(name).filter(|chain| point.seq > chain.origin) {
            chain.over = chain.over.max(point.seq);
        }
    }

    fn here(&mut self, name: Name, seq: Seq) -> Option<Point> {
        if seq == 0 {
            // Everybody comes after position 0.
            return Some(Point { slot: Slot(0), seq });
        }
        let chain = self.here.get_mut(&name)?;
        chain.last = chain.last.max(chain.origin + seq);
        Some(Point { slot: chain.slot, seq: chain.origin + seq })
    }

    /// Whose word of that device there is: the speaker's own, else that of the one speaker that is that device.
    fn owner(&self, speaker: &Speaker, device: u128) -> u64 {
        if device == speaker.device {
            return speaker.number;
        }
        let mut direct = self.speakers.iter().filter(|(_, known)| known.device == device).map(|(number, _)| *number);
        match (direct.next(), direct.next()) {
            (Some(number), None) => number,
            _ => speaker.number,
        }
    }
}

impl Context {
    /// A device of another process, as which it has to be known.
    pub(super) fn speaker(self: &Arc<Self>, process: ProcessKey, device: u128) -> Speaker {
        let mut chains = lock(&self.share.abroad.chains);
        let known = chains.speakers.iter_mut().find(|(_, known)| known.process == process && known.device == device);
        let number = match known {
            Some((number, known)) => {
                known.users += 1;
                *number
            }
            None => {
                let number = chains.next;
                chains.next += 1;
                chains.speakers.insert(number, Known { process, device, users: 1, told: 0, chains: Vec::new() });
                number
            }
        };
        Speaker { context: Arc::downgrade(self), number, device }
    }

    /// How many chains of others are known.
    pub(super) fn chains_abroad(&self) -> usize {
        lock(&self.share.abroad.chains).here.len()
    }

    /// What another process calls a point of this order; none for a chain that is forgotten.
    pub(super) fn point_abroad(&self, number: u128, point: Point) -> Option<ForeignPoint> {
        let chains = lock(&self.share.abroad.chains);
        let Some(name) = chains.names.get(&point.slot) else {
            let is_own = !chains.foreign.contains(&point.slot);
            let seq = point.seq.saturating_sub(lock(&self.slots).begin(point.slot));
            return is_own.then_some(ForeignPoint { device: number, slot: point.slot.0, seq });
        };
        let origin = chains.here.get(name)?.origin;
        (point.seq > origin).then(|| ForeignPoint { device: name.1, slot: name.2, seq: point.seq - origin })
    }

    /// A use as other processes see it; none of a process that is forgotten.
    pub(super) fn use_abroad(&self, number: u128, known: &Use) -> Option<ForeignUse> {
        let point = self.point_abroad(number, known.point)?;
        let Site { act, stream, op, place } = known.site;
        let process = if let Place::Process(process) = place { process } else { 0 };
        Some(ForeignUse { point, act, stream: stream.0, op: op.min(point.seq), process })
    }

    /// Whose uses these are: they are to be told to somebody.
    pub(super) fn tell(self: &Arc<Self>, uses: &[Use]) -> Told {
        let mut chains = lock(&self.share.abroad.chains);
        let chains = &mut *chains;
        let mut numbers = SmallVec::new();
        for (number, ..) in uses.iter().filter_map(|known| chains.names.get(&known.point.slot)) {
            if !numbers.contains(number)
                && let Some(known) = chains.speakers.get_mut(number)
            {
                known.told += 1;
                numbers.push(*number);
            }
        }
        Told { context: Arc::downgrade(self), numbers }
    }

    /// What others did that is over, as they call it: it comes before all that this device does from now on.
    pub(super) fn over_abroad(&self) -> Vec<ForeignPoint> {
        let chains = lock(&self.share.abroad.chains);
        let over = chains.here.iter().filter(|(_, chain)| chain.over > chain.origin);
        over.map(|(name, chain)| ForeignPoint { device: name.1, slot: name.2, seq: chain.over - chain.origin })
            .collect()
    }

    /// What this order calls a point that a speaker names, in what it says of its own memory and events; none where it
    /// cannot be true.
    pub(super) fn point_here(&self, number: u128, speaker: &Speaker, point: ForeignPoint) -> Option<Point> {
        if point.seq > SEQ_MAX {
            return None;
        }
        let mut chains = lock(&self.share.abroad.chains);
        if point.device == number {
            let slot = Slot(point.slot);
            let progress = self.chains.find(slot).filter(|_| !chains.foreign.contains(&slot))?;
            let seq = lock(&self.slots).begin(slot) + point.seq;
            return (seq <= progress.last(slot).seq).then_some(Point { slot, seq });
        }
        let owner = chains.owner(speaker, point.device);
        self.open_abroad(&mut chains, (owner, point.device, point.slot), point.seq)
    }

    /// What a speaker did with memory that it was lent: all on chains of its own, or nothing of it is believed.
    pub(super) fn uses_here(
        &self,
        number: u128,
        speaker: &Speaker,
        process: u32,
        uses: &[ForeignUse],
    ) -> Option<Vec<Use>> {
        let is_own = |known: &ForeignUse| known.point.device == speaker.device && known.point.seq <= SEQ_MAX;
        if !uses.iter().all(is_own) {
            return None;
        }
        if speaker.device == number {
            // Only a device that has imported from itself may speak for itself.
            let is_self = process == std::process::id();
            return uses
                .iter()
                .map(|known| self.use_here(number, speaker, process, known).filter(|_| is_self))
                .collect();
        }
        let mut chains = lock(&self.share.abroad.chains);
        let mut here = |known: &ForeignUse| {
            let name = (speaker.number, speaker.device, known.point.slot);
            let point = self.open_abroad(&mut chains, name, known.point.seq)?;
            Some(use_at(point, process, known))
        };
        uses.iter().map(&mut here).collect()
    }

    /// A point of a chain of others, which gets a slot with its first.
    fn open_abroad(&self, chains: &mut Chains, name: Name, seq: Seq) -> Option<Point> {
        if let Some(point) = chains.here(name, seq) {
            return Some(point);
        }
        let is_full = chains.here.len() >= ALL_CHAINS_MAX;
        let known = chains.speakers.get_mut(&name.0).filter(|known| !is_full && known.chains.len() < CHAINS_MAX)?;
        known.chains.push((name.1, name.2));
        let Point { slot, seq: origin } = chains.vacant.pop().unwrap_or_else(|| {
            // A fresh slot: what had another before need not come before this chain.
            let mut slots = lock(&self.slots);
            let (slot, seq) = slots.open(|_| false);
            self.chains.insert(slot, Arc::new(Progress::of_launches(seq)));
            Point { slot, seq }
        });
        chains.foreign.insert(slot);
        chains.here.insert(name, Chain { slot, origin, last: origin, over: origin, process: 0 });
        chains.names.insert(slot, name);
        chains.here(name, seq)
    }

    /// One fewer needs a speaker. Where it has nothing any more, its process is over, or has given back all that it had:
    /// whatever it did is over.
    fn release_speaker(&self, number: u64, count: impl FnOnce(&mut Known) -> &mut usize) {
        let mut chains = lock(&self.share.abroad.chains);
        let Chains { here, names, speakers, vacant, .. } = &mut *chains;
        let Some(known) = speakers.get_mut(&number) else { return };
        *count(known) -= 1;
        if known.users > 0 {
            return;
        }
        for (device, slot) in &known.chains {
            let Some(chain) = here.get_mut(&(number, *device, *slot)) else { continue };
            chain.over = chain.last;
            if let Some(progress) = self.chains.find(chain.slot) {
                progress.complete(chain.last);
            }
        }
        if known.told > 0 {
            return;
        }
        for (device, slot) in speakers.remove(&number).into_iter().flat_map(|known| known.chains) {
            let Some(chain) = here.remove(&(number, device, slot)) else { continue };
            names.remove(&chain.slot);
            vacant.extend((chain.last < WORN_OUT).then_some(Point { slot: chain.slot, seq: chain.last }));
        }
    }

    /// The device goes: its slots for chains of others may serve other devices.
    pub(super) fn close_abroad(&self) {
        let mut chains = lock(&self.share.abroad.chains);
        let chains = std::mem::take(&mut *chains);
        let ends = chains.here.values().map(|chain| Point { slot: chain.slot, seq: chain.last });
        let mut slots = lock(&self.slots);
        ends.chain(chains.vacant).for_each(|end| slots.close(end));
    }
}

/// A use by another process, at a point of this order.
fn use_at(point: Point, process: u32, known: &ForeignUse) -> Use {
    let site = Site {
        act: known.act,
        stream: StreamId(known.stream),
        op: known.op.min(point.seq),
        place: Place::Process(process),
    };
    Use { point, site }
}

impl Context {
    /// A use by a speaker's process or a third one, in what the speaker says of its own memory.
    pub(super) fn use_here(&self, number: u128, speaker: &Speaker, process: u32, known: &ForeignUse) -> Option<Use> {
        let point = self.point_here(number, speaker, known.point)?;
        if known.process == 0 {
            return Some(use_at(point, process, known));
        }
        let mut chains = lock(&self.share.abroad.chains);
        let Chains { here, names, .. } = &mut *chains;
        if let Some(chain) = names.get(&point.slot).and_then(|name| here.get_mut(name)) {
            chain.process = known.process;
        }
        Some(use_at(point, known.process, known))
    }

    /// Points of a speaker's own chains, by the names that others gave them who told its uses: as far as they told.
    pub(super) fn told_by_others(&self, speaker: &Speaker, process: u32, points: &[ForeignPoint]) -> Vec<Point> {
        let chains = lock(&self.share.abroad.chains);
        let is_same = |name: &Name| name.0 != speaker.number && name.1 == speaker.device;
        let is_told = |(name, chain): &(&Name, &Chain)| is_same(name) && chain.process == process && process != 0;
        let told: Vec<_> = chains.here.iter().filter(is_told).collect();
        let own = points.iter().filter(|point| point.device == speaker.device && point.seq > 0);
        own.flat_map(|point| {
            let same = told.iter().filter(|(name, _)| name.2 == point.slot);
            same.map(|(_, chain)| Point {
                slot: chain.slot,
                seq: chain.last.min(chain.origin.saturating_add(point.seq)),
            })
        })
        .collect()
    }
}

/// Whether another process did it.
pub(super) fn is_abroad(known: &Use) -> bool {
    matches!(known.site.place, Place::Process(_))
}
