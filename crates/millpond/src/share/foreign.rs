//! Chains of other processes in this device's order.
//!
//! A *speaker* is a device of another process: the number that the device gave itself, and the process as the system
//! names it. Until that process connects to this one, its device is known through third parties only: an exporter
//! reports what others did to the memory that it lends, and events pass on what came before them. **one-name**:
//! whichever process reports a chain, the chain has one index here, and never one that a chain of this device had.
//! What the device says itself and what was known of it before are merged, unless another process was reported for
//! it. Then each has indices of its own, so that a process that uses another's number cannot speak for it.
//!
//! A speaker's statements about its own chains are believed. No other process can name these chains with effect,
//! except in an event, which its importer chose to come after, and then only by device and process together. (An
//! exporter passes on that its importers' work has completed without being asked. Importers can claim any device, but
//! not any process.) A statement about this device's own chains must already be true of them.
//!
//! A speaker is needed in three cases: while it holds something; while another process holds memory that the speaker
//! used, because that process knows of the uses and must learn that they have completed
//! ([`Context::completed_foreign`]); and while memory that it used is imported here. When it is not needed any more,
//! its chains are forgotten, and their indices are used for other chains. The positions then go on counting, so that
//! no point is ever mistaken for one of an earlier chain. Chains known by hearsay alone have no visible end: beyond a
//! limit on unused chains, the oldest are forgotten. Positions of a chain are counted from its beginning on its own
//! device. Otherwise two devices that import from each other would add up each other's positions.
//!
//! Depends on points and indices; on no sockets and no memory. Only the lock of the chain indices is taken under its
//! lock.

mod names;

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_core::check::{Place, Site, Use};
use millpond_core::ids::{ChainIndex, Point, Seq, StreamId};
use millpond_core::order::next_op;
use millpond_core::share::{ForeignEnd, ForeignPoint, ForeignUse, POINTS_MAX};
use millpond_driver::locks::{Mutex, lock};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::socket::ProcessKey;
use crate::clock::progress::Progress;
use crate::state::context::Context;
use crate::sync::ranks;
pub(super) use names::Names;

/// No chain gets this far. The limit keeps numbers of other processes from overflowing positions.
const SEQ_MAX: Seq = 1 << 60;
/// An index whose positions have come this far is not used for another chain.
const WORN_OUT: Seq = 1 << 62;
/// The most chains of one speaker.
const CHAINS_MAX: usize = POINTS_MAX;
/// The most chains of all speakers together.
const ALL_CHAINS_MAX: usize = 1 << 16;
/// The number of unused chains known by hearsay to remember.
const HEARSAY_MAX: usize = POINTS_MAX;

/// The point that all chains come after.
pub(super) const EVERYBODYS: Point = Point { chain: ChainIndex(0), seq: 0 };

/// The chains of other processes, with the mapping in both directions.
#[derive(Debug, Default)]
pub(crate) struct ForeignChains {
    chains: SharedChains,
}

/// Holders of a speaker have them without the device, and may drop them anywhere.
type SharedChains = Arc<Mutex<ranks::Foreign, Chains>>;

/// The name of a chain: the speaker, and the index there.
type Name = (u64, u32);

#[derive(Debug, Default)]
struct Chains {
    here: FxHashMap<Name, Chain>,
    names: FxHashMap<ChainIndex, Name>,
    /// The speakers, in the order in which they became known.
    speakers: BTreeMap<u64, ForeignDevice>,
    by_device: FxHashMap<u128, SmallVec<[u64; 2]>>,
    next: u64,
    /// The number of unused chains of speakers.
    idle: usize,
    /// The indices of forgotten chains, with their last positions.
    vacant: Vec<Point>,
    /// All indices that foreign chains ever had, with their progress.
    foreign: FxHashMap<ChainIndex, Arc<Progress>>,
}

/// A chain of another process.
#[derive(Clone, Copy, Debug)]
struct Chain {
    chain: ChainIndex,
    /// The position before its first position here.
    origin: Seq,
    /// The last known position, here.
    last: Seq,
    /// The last position that its own device reported.
    said: Seq,
    /// All up to this position has completed, by the speaker's report or its end.
    over: Seq,
}

/// A speaker, or a device known by hearsay.
#[derive(Debug)]
struct ForeignDevice {
    device: u128,
    /// The process, once the device has spoken.
    process: Option<ProcessKey>,
    /// The process's number, as far as it was reported; 0 if it was not.
    number: u32,
    /// The number of things that it holds, and of questions to it.
    users: usize,
    /// The number of leases and imports whose histories have uses of it.
    holds: usize,
    /// Its chains, by their indices there.
    chains: Vec<u32>,
}

impl ForeignDevice {
    fn is_needed(&self) -> bool {
        self.users > 0 || self.holds > 0
    }
}

/// A holder's need of a speaker.
#[derive(Debug)]
pub(super) struct Speaker {
    chains: SharedChains,
    number: u64,
    pub(super) device: u128,
}

impl Drop for Speaker {
    fn drop(&mut self) {
        lock(&self.chains).release(self.number, |known| &mut known.users);
    }
}

/// The need of speakers whose uses are in the history of memory that is lent or imported.
#[derive(Debug)]
pub(super) struct Hold {
    chains: SharedChains,
    numbers: SmallVec<[u64; 1]>,
}

impl Hold {
    /// Records that everything up to these points has completed, and that what comes after an event of this device
    /// comes after it.
    pub(super) fn is_over(&self, points: &[Point]) {
        if points.is_empty() {
            return;
        }
        let mut chains = lock(&self.chains);
        points.iter().for_each(|point| chains.is_over(*point));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.numbers.is_empty() {
            let mut chains = lock(&self.chains);
            self.numbers.iter().for_each(|number| chains.release(*number, |known| &mut known.holds));
        }
    }
}

impl Chains {
    /// Records that a chain has completed up to a point.
    fn is_over(&mut self, point: Point) {
        let Some(name) = self.names.get(&point.chain) else { return };
        if let Some(chain) = self.here.get_mut(name).filter(|chain| point.seq > chain.origin) {
            chain.over = chain.over.max(point.seq);
        }
    }

    /// Returns a point of a known chain, by its name.
    fn here(&mut self, name: Name, seq: Seq, teller: u64) -> Option<Point> {
        if seq == 0 {
            return Some(EVERYBODYS);
        }
        let chain = self.here.get_mut(&name)?;
        let seq = chain.origin + seq;
        chain.last = chain.last.max(seq);
        if teller == name.0 {
            chain.said = chain.said.max(seq);
        }
        Some(Point { chain: chain.chain, seq })
    }

    /// Returns the name that others have for a position of a chain.
    fn foreign_end(&self, name: &Name, seq: Seq) -> Option<ForeignEnd> {
        let known = self.speakers.get(&name.0)?;
        let point = ForeignPoint { device: known.device, chain: name.1, seq };
        Some(ForeignEnd { point, process: known.number })
    }

    /// Returns a device with this number for which `is_it` holds, or else `may_be_it`, or a new one.
    fn find_or_add(
        &mut self,
        device: u128,
        is_it: impl Fn(&ForeignDevice) -> bool,
        may_be_it: impl Fn(&ForeignDevice) -> bool,
    ) -> u64 {
        let all = self.by_device.get(&device).map_or(&[][..], |all| all);
        let find =
            |test: &dyn Fn(&ForeignDevice) -> bool| all.iter().copied().find(|number| test(&self.speakers[number]));
        if let Some(found) = find(&is_it).or_else(|| find(&may_be_it)) {
            return found;
        }
        let number = self.next;
        self.next += 1;
        let (process, chains) = Default::default();
        self.speakers.insert(number, ForeignDevice { device, process, number: 0, users: 0, holds: 0, chains });
        self.by_device.entry(device).or_default().push(number);
        number
    }

    /// Returns a device of a process with this number, 0 if it is not known.
    fn third(&mut self, device: u128, number: u32) -> u64 {
        let is_nobodys = |known: &ForeignDevice| known.process.is_none() && known.number == 0;
        let third = self.find_or_add(device, |known| number != 0 && known.number == number, is_nobodys);
        if let Some(known) = self.speakers.get_mut(&third) {
            known.number = number;
        }
        third
    }

    /// Adds a need of a speaker.
    fn need(&mut self, number: u64, count: impl FnOnce(&mut ForeignDevice) -> &mut usize) {
        let Some(known) = self.speakers.get_mut(&number) else { return };
        if !known.is_needed() {
            self.idle -= known.chains.len();
        }
        *count(known) += 1;
    }

    /// Removes a need of a speaker. If the speaker has nothing any more, its process has ended or has returned
    /// everything that it had: everything that it reported has completed.
    fn release(&mut self, number: u64, count: impl FnOnce(&mut ForeignDevice) -> &mut usize) {
        let Self { here, speakers, idle, foreign, .. } = self;
        let Some(known) = speakers.get_mut(&number) else { return };
        *count(known) -= 1;
        if known.users > 0 {
            return;
        }
        for chain in &known.chains {
            let Some(chain) = here.get_mut(&(number, *chain)) else { continue };
            chain.over = chain.over.max(chain.said);
            if let Some(progress) = foreign.get(&chain.chain) {
                progress.complete(chain.said);
            }
        }
        if !known.is_needed() {
            *idle += known.chains.len();
            if known.process.is_some() || known.chains.is_empty() {
                self.forget(number);
            }
        }
    }

    /// Forgets the names of a speaker's chains. Their indices are used for other chains.
    fn forget(&mut self, number: u64) {
        let Some(known) = self.speakers.remove(&number) else { return };
        if !known.is_needed() {
            self.idle -= known.chains.len();
        }
        if let Some(all) = self.by_device.get_mut(&known.device) {
            all.retain(|other| *other != number);
            if all.is_empty() {
                self.by_device.remove(&known.device);
            }
        }
        for chain in known.chains {
            let Some(chain) = self.here.remove(&(number, chain)) else { continue };
            self.names.remove(&chain.chain);
            self.vacant.extend((chain.last < WORN_OUT).then_some(Point { chain: chain.chain, seq: chain.last }));
        }
    }

    /// Forgets an unused speaker that has no chain.
    fn forget_empty(&mut self, number: u64) {
        if self.speakers.get(&number).is_some_and(|known| known.chains.is_empty() && !known.is_needed()) {
            self.forget(number);
        }
    }

    /// Makes room for another unused chain known by hearsay, without forgetting the speaker `but`.
    fn forget_idle(&mut self, but: u64) {
        while self.idle >= HEARSAY_MAX {
            let mut all = self.speakers.iter();
            let oldest = all.find(|(number, known)| **number != but && !known.is_needed()).map(|(number, _)| *number);
            let Some(oldest) = oldest else { return };
            self.forget(oldest);
        }
    }
}

impl Context {
    /// Returns a device of another process as a speaker, which must stay known. What was known of it before is merged
    /// with it, unless another process was reported for it.
    pub(super) fn speaker(&self, process: ProcessKey, number: u32, device: u128) -> Speaker {
        let mut chains = lock(&self.share.foreign.chains);
        let is_said = |known: &ForeignDevice| known.process.is_none() && (known.number == 0 || known.number == number);
        let found = chains.find_or_add(device, |known| known.process == Some(process), is_said);
        chains.need(found, |known| &mut known.users);
        if let Some(known) = chains.speakers.get_mut(&found) {
            (known.process, known.number) = (Some(process), number);
        }
        Speaker { chains: Arc::clone(&self.share.foreign.chains), number: found, device }
    }

    /// Returns the number of known foreign chains.
    pub(crate) fn foreign_chains(&self) -> usize {
        lock(&self.share.foreign.chains).here.len()
    }

    /// Returns the uses of memory that a speaker lends, by its own process and third ones, and a hold that keeps
    /// these speakers while the memory is held. Returns `None` if the uses cannot be true. A third one is the process
    /// with the reported number, if it has spoken.
    pub(super) fn local_uses(
        &self,
        number: u128,
        speaker: &Speaker,
        process: u32,
        uses: &[ForeignUse],
    ) -> Option<(Vec<Use>, Hold)> {
        let mut chains = lock(&self.share.foreign.chains);
        let mut numbers = SmallVec::<[u64; 1]>::new();
        let mut local = |known: &ForeignUse| {
            let end = ForeignEnd { point: known.point, process: known.process };
            let point = self.local_point(&mut chains, number, speaker, &end)?;
            let it = use_at(point, if known.process == 0 { process } else { known.process }, known);
            // Needed at once, so that nothing that comes later displaces it.
            if let Some((whose, _)) = chains.names.get(&it.point.chain).copied()
                && !numbers.contains(&whose)
            {
                chains.need(whose, |known| &mut known.holds);
                numbers.push(whose);
            }
            Some(it)
        };
        let uses: Option<Vec<Use>> = uses.iter().map(&mut local).collect();
        drop(chains);
        let hold = Hold { chains: Arc::clone(&self.share.foreign.chains), numbers };
        uses.map(|uses| (uses, hold))
    }

    /// Makes a hold of the speakers of these uses.
    pub(super) fn hold<'u>(&self, uses: impl IntoIterator<Item = &'u Use>) -> Hold {
        let mut chains = lock(&self.share.foreign.chains);
        let mut numbers = SmallVec::new();
        for known in uses {
            let Some((number, _)) = chains.names.get(&known.point.chain).copied() else { continue };
            if !numbers.contains(&number) {
                chains.need(number, |known| &mut known.holds);
                numbers.push(number);
            }
        }
        Hold { chains: Arc::clone(&self.share.foreign.chains), numbers }
    }

    /// Returns the completed work of others, by their names: it comes before everything that this device does from
    /// now on. Includes only processes that have a number here: an importer that claims another's device speaks for
    /// itself only.
    pub(super) fn completed_foreign(&self) -> Vec<ForeignEnd> {
        let chains = lock(&self.share.foreign.chains);
        let over = chains.here.iter().filter(|(_, chain)| chain.over > chain.origin);
        let ends = over.filter_map(|(name, chain)| chains.foreign_end(name, chain.over - chain.origin));
        ends.filter(|end| end.process != 0).collect()
    }

    /// Returns the point of this order's own chain that another process names, or `None` if it cannot be true.
    fn own_point(&self, chains: &Chains, point: ForeignPoint) -> Option<Point> {
        let chain = ChainIndex(point.chain);
        let progress = self.chains.find(chain).filter(|_| !chains.foreign.contains_key(&chain))?;
        let seq = self.chains.begin(chain)? + point.seq;
        (seq <= progress.last(chain).seq).then_some(Point { chain, seq })
    }

    /// Returns the point of this order that a speaker's event comes after, which the importer of the event chose to
    /// believe. Returns `None` if it cannot be true.
    pub(super) fn point_here(&self, number: u128, speaker: &Speaker, end: &ForeignEnd) -> Option<Point> {
        let mut chains = lock(&self.share.foreign.chains);
        self.local_point(&mut chains, number, speaker, end)
    }

    /// Returns the point of this order that a speaker names. It is on a chain of this device, of the speaker, or of a
    /// third one: the process with the number that the speaker reports, if it has spoken here.
    fn local_point(&self, chains: &mut Chains, number: u128, speaker: &Speaker, end: &ForeignEnd) -> Option<Point> {
        let ForeignEnd { point, process } = *end;
        if point.seq > SEQ_MAX {
            return None;
        }
        if point.device == number {
            return self.own_point(chains, point);
        }
        if point.seq == 0 {
            return Some(EVERYBODYS);
        }
        let whose = match process {
            0 if point.device == speaker.device => speaker.number,
            process => chains.third(point.device, process),
        };
        let opened = self.open_foreign(chains, (whose, point.chain), point.seq, speaker.number);
        if opened.is_none() {
            chains.forget_empty(whose);
        }
        opened
    }

    /// Returns a speaker's uses of memory that it was lent. If one of them is not on a chain of its own, none is
    /// believed.
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
        let mut chains = lock(&self.share.foreign.chains);
        if speaker.device == number {
            // Only a device that has imported from itself may report its own uses.
            let own = |known: &ForeignUse| Some(use_at(self.own_point(&chains, known.point)?, process, known));
            return uses.iter().map(own).collect::<Option<_>>().filter(|_| process == std::process::id());
        }
        let mut here = |known: &ForeignUse| {
            let (name, teller) = ((speaker.number, known.point.chain), speaker.number);
            Some(use_at(self.open_foreign(&mut chains, name, known.point.seq, teller)?, process, known))
        };
        uses.iter().map(&mut here).collect()
    }

    /// Returns a point of a foreign chain. The chain gets an index with its first point.
    fn open_foreign(&self, chains: &mut Chains, name: Name, seq: Seq, teller: u64) -> Option<Point> {
        if let Some(point) = chains.here(name, seq, teller) {
            return Some(point);
        }
        chains.forget_idle(name.0);
        let is_full = chains.here.len() >= ALL_CHAINS_MAX;
        let known = chains.speakers.get_mut(&name.0).filter(|known| !is_full && known.chains.len() < CHAINS_MAX)?;
        known.chains.push(name.1);
        chains.idle += usize::from(!known.is_needed());
        let Point { chain, seq: origin } = chains.vacant.pop().unwrap_or_else(|| {
            // A fresh index: work of an earlier chain with the same index need not come before this chain.
            let mut opening = self.chains.open();
            let (chain, seq) = opening.indices().open(|_| false);
            let progress = Arc::new(Progress::of_launches(seq));
            opening.list(chain, Arc::clone(&progress));
            chains.foreign.insert(chain, progress);
            Point { chain, seq }
        });
        // Operations have the same numbers here as on their own device.
        let origin = next_op(origin);
        chains.here.insert(name, Chain { chain, origin, last: origin, said: origin, over: origin });
        chains.names.insert(chain, name);
        chains.here(name, seq, teller)
    }

    /// Closes the foreign chains when the device is gone: their indices may be used by other devices.
    pub(super) fn close_foreign(&self) {
        let mut chains = lock(&self.share.foreign.chains);
        let chains = std::mem::take(&mut *chains);
        let ends = chains.here.values().map(|chain| Point { chain: chain.chain, seq: chain.last });
        let mut opening = self.chains.open();
        ends.chain(chains.vacant).for_each(|end| opening.indices().close(end));
    }
}

/// Makes a use by another process, at a point of this order.
fn use_at(point: Point, process: u32, known: &ForeignUse) -> Use {
    let site = Site {
        act: known.act,
        stream: StreamId(known.stream),
        op: known.op.min(point.seq),
        place: Place::Process(process),
    };
    Use { point, site }
}
