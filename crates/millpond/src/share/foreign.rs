//! Chains of other processes in this device's order.
//!
//! A *speaker* is a device of another process: the number that the device gave itself, and the process as the system
//! names it. Until that process connects to this one, its device is known through third parties only: an exporter says
//! what others did to the memory that it lends, and events pass on what came before them. **one-name**: whoever speaks
//! of a chain, it has one index here, never one that a chain of this device had. The device's own word and what was
//! known of it before are one, unless the process is another one than was said: then each has indices of its own, so
//! that no process that takes another's number for his speaks for it.
//!
//! What a speaker says of its own chains is believed; no other process can name them with effect but in an event, which
//! its importer chose to come after, and by device and process together: an exporter passes on that its importers' work
//! has completed without being asked, and they can say whose device they like, but not which process they are. What
//! anybody says of this device's chains must be true of them already.
//!
//! A speaker is needed while it holds something; while another process holds memory that it used, which knows of its
//! uses and has to learn that they have completed ([`Context::completed_foreign`]); and while memory is imported here
//! that it used. When the last that needs it is gone, its chains are forgotten, and their indices serve other chains:
//! whose positions then go on counting, so that no point is ever mistaken for one of a chain before. What is known by
//! hearsay alone has no end that could be seen: beyond so many unused chains the oldest are forgotten. What is said of
//! a chain counts from where it began on its own device: two devices that import from each other would add up each
//! other's positions otherwise.
//!
//! Knows points and indices; no sockets, no memory. Its lock is a leaf but for the list of indices.

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

/// No chain gets this far: a stranger's number must not make positions run over.
const SEQ_MAX: Seq = 1 << 60;
/// An index whose positions have come this far serves no other chain.
const WORN_OUT: Seq = 1 << 62;
/// The most chains of one speaker.
const CHAINS_MAX: usize = POINTS_MAX;
/// The most chains of all speakers together.
const ALL_CHAINS_MAX: usize = 1 << 16;
/// So many unused chains that are known by hearsay are remembered.
const HEARSAY_MAX: usize = POINTS_MAX;

/// The point that all chains come after.
pub(super) const EVERYBODYS: Point = Point { chain: ChainIndex(0), seq: 0 };

/// The chains of others, both ways.
#[derive(Debug, Default)]
pub(crate) struct ForeignChains {
    chains: SharedChains,
}

/// Who holds a speaker has them without the device, and may let go anywhere.
type SharedChains = Arc<Mutex<ranks::Foreign, Chains>>;

/// Whom a chain is of: the speaker, and the index there.
type Name = (u64, u32);

#[derive(Debug, Default)]
struct Chains {
    here: FxHashMap<Name, Chain>,
    names: FxHashMap<ChainIndex, Name>,
    /// In the order in which they became known.
    speakers: BTreeMap<u64, ForeignDevice>,
    by_device: FxHashMap<u128, SmallVec<[u64; 2]>>,
    next: u64,
    /// Unused chains of speakers.
    idle: usize,
    /// ChainIndices of chains that are forgotten, and where they ended.
    vacant: Vec<Point>,
    /// All indices that chains of others ever had, and how far each is.
    foreign: FxHashMap<ChainIndex, Arc<Progress>>,
}

/// A chain of another process.
#[derive(Clone, Copy, Debug)]
struct Chain {
    chain: ChainIndex,
    /// Its positions here come after this one.
    origin: Seq,
    /// The last known position, here.
    last: Seq,
    /// The last that its own device spoke of.
    said: Seq,
    /// All up to this position has completed, the speaker says, or its end.
    over: Seq,
}

/// A speaker, or who is known by hearsay.
#[derive(Debug)]
struct ForeignDevice {
    device: u128,
    /// None of who has not spoken yet.
    process: Option<ProcessKey>,
    /// The process's number, as far as it was said; 0 where it was not.
    number: u32,
    /// What it holds, and what it is asked for.
    users: usize,
    /// Leases and imports whose histories have uses of it.
    holds: usize,
    /// Its chains: indices there.
    chains: Vec<u32>,
}

impl ForeignDevice {
    fn is_needed(&self) -> bool {
        self.users > 0 || self.holds > 0
    }
}

/// A holder needs this speaker.
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

/// Uses of these speakers are in the history of memory that is lent or imported.
#[derive(Debug)]
pub(super) struct Hold {
    chains: SharedChains,
    numbers: SmallVec<[u64; 1]>,
}

impl Hold {
    /// What was done up to these points has completed, and whoever comes after an event of this device comes after it.
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
    /// A chain has completed up to a point.
    fn is_over(&mut self, point: Point) {
        let Some(name) = self.names.get(&point.chain) else { return };
        if let Some(chain) = self.here.get_mut(name).filter(|chain| point.seq > chain.origin) {
            chain.over = chain.over.max(point.seq);
        }
    }

    /// A point of a chain that is known, as this speaker names it.
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

    /// What others call a position of a chain.
    fn foreign_end(&self, name: &Name, seq: Seq) -> Option<ForeignEnd> {
        let known = self.speakers.get(&name.0)?;
        let point = ForeignPoint { device: known.device, chain: name.1, seq };
        Some(ForeignEnd { point, process: known.number })
    }

    /// The one that goes by this device's number and is so, or else so, or a new one.
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

    /// A device of a process with this number, 0 where that is not known.
    fn third(&mut self, device: u128, number: u32) -> u64 {
        let is_nobodys = |known: &ForeignDevice| known.process.is_none() && known.number == 0;
        let third = self.find_or_add(device, |known| number != 0 && known.number == number, is_nobodys);
        if let Some(known) = self.speakers.get_mut(&third) {
            known.number = number;
        }
        third
    }

    /// Needs a speaker once more.
    fn need(&mut self, number: u64, count: impl FnOnce(&mut ForeignDevice) -> &mut usize) {
        let Some(known) = self.speakers.get_mut(&number) else { return };
        if !known.is_needed() {
            self.idle -= known.chains.len();
        }
        *count(known) += 1;
    }

    /// One fewer needs a speaker. Where it has nothing any more, its process has ended, or has given back all that it
    /// had: whatever it spoke of has completed.
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

    /// A speaker's chains have no names any more; their indices serve others.
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

    /// Makes room for one more unused chain by hearsay, but for those of one speaker.
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
    /// A device of another process, as which it has to be known. What was known of it before is of the same one, unless
    /// another process was said to have it.
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

    /// How many chains of others are known.
    pub(crate) fn foreign_chains(&self) -> usize {
        lock(&self.share.foreign.chains).here.len()
    }

    /// What was done to memory that a speaker lends, by its process and third ones, and those are needed while it is
    /// held; none where it cannot be true. A third one is the process of that number, where it has spoken.
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
            // At once: nothing that comes after it pushes it out.
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

    /// The speakers whose uses these are are needed while this is held.
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

    /// What others did that has completed, as they call it: it comes before all that this device does from now on. Of
    /// processes that have a number here: an importer that takes another's device for its own speaks for itself only.
    pub(super) fn completed_foreign(&self) -> Vec<ForeignEnd> {
        let chains = lock(&self.share.foreign.chains);
        let over = chains.here.iter().filter(|(_, chain)| chain.over > chain.origin);
        let ends = over.filter_map(|(name, chain)| chains.foreign_end(name, chain.over - chain.origin));
        ends.filter(|end| end.process != 0).collect()
    }

    /// What this order calls a point of its own that another process names; none where it cannot be true.
    fn own_point(&self, chains: &Chains, point: ForeignPoint) -> Option<Point> {
        let chain = ChainIndex(point.chain);
        let progress = self.chains.find(chain).filter(|_| !chains.foreign.contains_key(&chain))?;
        let seq = lock(&self.chain_indices).begin(chain) + point.seq;
        (seq <= progress.last(chain).seq).then_some(Point { chain, seq })
    }

    /// What this order calls a point that a speaker's event comes after, as whoever waits for the event chose to
    /// believe it; none where it cannot be true.
    pub(super) fn point_here(&self, number: u128, speaker: &Speaker, end: &ForeignEnd) -> Option<Point> {
        let mut chains = lock(&self.share.foreign.chains);
        self.local_point(&mut chains, number, speaker, end)
    }

    /// What this order calls a point that a speaker names: one of this device's own, of the speaker's, or of a third
    /// one, who is the process of the number that the speaker says, if it has spoken here.
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
        let mut chains = lock(&self.share.foreign.chains);
        if speaker.device == number {
            // Only a device that has imported from itself may speak for itself.
            let own = |known: &ForeignUse| Some(use_at(self.own_point(&chains, known.point)?, process, known));
            return uses.iter().map(own).collect::<Option<_>>().filter(|_| process == std::process::id());
        }
        let mut here = |known: &ForeignUse| {
            let (name, teller) = ((speaker.number, known.point.chain), speaker.number);
            Some(use_at(self.open_foreign(&mut chains, name, known.point.seq, teller)?, process, known))
        };
        uses.iter().map(&mut here).collect()
    }

    /// A point of a chain of others, which gets an index with its first.
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
            // A fresh index: what had another before need not come before this chain.
            let mut chain_indices = lock(&self.chain_indices);
            let (chain, seq) = chain_indices.open(|_| false);
            let progress = Arc::new(Progress::of_launches(seq));
            self.chains.insert(chain, Arc::clone(&progress));
            chains.foreign.insert(chain, progress);
            Point { chain, seq }
        });
        // Operations have the same numbers here as there.
        let origin = next_op(origin);
        chains.here.insert(name, Chain { chain, origin, last: origin, said: origin, over: origin });
        chains.names.insert(chain, name);
        chains.here(name, seq, teller)
    }

    /// The device goes: its indices for chains of others may serve other devices.
    pub(super) fn close_foreign(&self) {
        let mut chains = lock(&self.share.foreign.chains);
        let chains = std::mem::take(&mut *chains);
        let ends = chains.here.values().map(|chain| Point { chain: chain.chain, seq: chain.last });
        let mut chain_indices = lock(&self.chain_indices);
        ends.chain(chains.vacant).for_each(|end| chain_indices.close(end));
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
