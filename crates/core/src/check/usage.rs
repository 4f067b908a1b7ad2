//! Allocations, uses and frees of memory.
//!
//! An operation asks the history of the lifetime that it names whether it comes after everything that it must come
//! after. If so, it takes its point and becomes part of the history. Knows streams, threads and lifetimes. Work of
//! captured streams goes to `captures.rs`.

use smallvec::SmallVec;

use super::checker::{Call, Checker, Refused, Step};
use super::finding::{Finding, Subject};
use super::graph_state::User;
use super::lives::{Found, LifeId, Named, Source};
use super::timeline::StreamIndex;
use crate::graph::Work;
use crate::ids::{ChainIndex, Point, PoolId, StreamId};
use crate::life::{Kind, Site, Use};
use crate::op::{Access, Act, Memory, Name, Names, Op, Part, Space, Trust, What, aliased_with, find_aliased};
use crate::order::{Knows, Learns};

/// A point that all streams come after.
pub(super) const ALWAYS: Point = Point { chain: ChainIndex(0), seq: 0 };

/// Returns `true` if an access may belong to a launch that repeats another one. A launch of several accesses that
/// writes does not, because it may name the bytes that it writes more than once.
#[inline]
fn may_repeat(access: &Access, is_one: bool) -> bool {
    is_one || access.act == Act::Read
}

/// The lifetime that an access refers to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) life: LifeId,
    /// `true` if the access is by an import.
    pub(super) is_lease: bool,
}

impl Checker {
    /// Allocates memory that is live from the stream's next point on.
    pub(super) fn alloc(
        &mut self,
        call: Call<'_>,
        memory: Memory,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
        name: Option<Name>,
    ) -> Step {
        let stream_index = self.enter(call, stream)?;
        self.check_pool(call, pool)?;
        if self.graphs.is_captured(stream) {
            return self.captured_alloc(call, stream_index, memory, (pool, bytes), name);
        }
        let exportable = self.is_exportable(pool);
        let site = self.site(call, stream_index, Act::Allocate);
        let stream = self.time.at_mut(stream_index);
        let (point, device) = (stream.chain.submit(), stream.kept.device);
        self.time.done(stream_index, "allocated", call.op.place);
        let born = Use { point, site };
        let life = self.born(memory, born, bytes, name, Source::Stream { exportable, pool, device });
        self.lives.note_newest(life, born);
        Ok(())
    }

    /// Allocates memory immediately.
    pub(super) fn alloc_now(
        &mut self,
        call: Call<'_>,
        memory: Memory,
        space: Space,
        bytes: u64,
        name: Option<Name>,
    ) -> Step {
        let site = self.host_site(call, Act::Allocate);
        self.born(memory, Use { point: ALWAYS, site }, bytes, name, Source::Now(space));
        Ok(())
    }

    fn born(&mut self, memory: Memory, born: Use, bytes: u64, name: Option<Name>, source: Source) -> LifeId {
        let life = self.lives.begin(memory, born, bytes, name, source);
        self.lives.name(memory, Named::Life(life));
        life
    }

    /// Gives memory a name of the program.
    pub(super) fn rename(&mut self, memory: Memory, name: Name) {
        match self.lives.find(memory) {
            Found::Named(Named::Life(life) | Named::Lease(life)) => {
                self.lives.at_mut(life).name = Some(name);
            }
            Found::Named(Named::Node { .. }) => drop(self.graphs.called.insert(memory, name)),
            _ => {}
        }
    }

    /// Launches work of a stream that uses memory.
    #[inline]
    pub(super) fn launch(
        &mut self,
        call: Call<'_>,
        stream: StreamId,
        accesses: &[Access],
        trust: Trust,
        name: Option<Name>,
    ) -> Step {
        let stream_index = self.enter(call, stream)?;
        if self.graphs.is_captured(stream) {
            return self.captured_work(call, stream_index, Work::Kernel, accesses, trust, name);
        }
        if !self.repeat(call, stream_index, accesses) {
            self.launch_anew(call, stream_index, accesses, trust)?;
        }
        self.time.done(stream_index, "launched", call.op.place);
        Ok(())
    }

    /// Copies or sets bytes on a stream.
    pub(super) fn copy(&mut self, call: Call<'_>, stream: StreamId, accesses: &[Access]) -> Step {
        let stream_index = self.enter(call, stream)?;
        if self.graphs.is_captured(stream) {
            return self.captured_work(call, stream_index, Work::Copy, accesses, Trust::None, None);
        }
        self.launch_anew(call, stream_index, accesses, Trust::None)?;
        self.time.done(stream_index, "launched", call.op.place);
        Ok(())
    }

    /// Does a launch if it repeats, for all memory that it uses, what its stream did before. Returns `true` if it did.
    #[inline]
    fn repeat(&mut self, call: Call<'_>, stream_index: StreamIndex, accesses: &[Access]) -> bool {
        let chain = &self.time.at(stream_index).chain;
        let (chain, learned) = (chain.chain(), chain.learned());
        let is_one = accesses.len() < 2;
        let is_so =
            |access: &Access| may_repeat(access, is_one) && self.lives.names.is_repeated(access, chain, learned);
        if !accesses.iter().all(is_so) {
            return false;
        }
        let (point, id, op) = self.submit_work(stream_index);
        for access in accesses {
            let site = Site { act: access.act, stream: id, op, place: call.op.place };
            self.lives.names.repeat(access.memory.id, Use { point, site });
        }
        true
    }

    /// Takes the point of a stream's work. Returns it, with the stream and the number of the operation.
    #[inline]
    fn submit_work(&mut self, stream_index: StreamIndex) -> (Point, StreamId, u64) {
        let stream = self.time.at_mut(stream_index);
        (stream.chain.submit(), stream.kept.id, stream.kept.ops + 1)
    }

    #[inline]
    fn launch_anew(&mut self, call: Call<'_>, stream_index: StreamIndex, accesses: &[Access], trust: Trust) -> Step {
        let targets = self.check_accesses(call, stream_index, accesses, trust)?;
        if let What::Copy { .. } = call.op.what {
            let named = accesses.iter().zip(&targets).map(|(access, target)| (target.life, access.act, access.part));
            let subject = |at: usize| self.subject_of(call, self.lives.at(targets[at].life));
            self.refuse_overlap(call, self.site(call, stream_index, Act::Write), named, subject)?;
        }
        let is_one = accesses.len() < 2;
        let may_repeat = trust == Trust::None && accesses.iter().all(|access| may_repeat(access, is_one));
        let (point, id, op) = self.submit_work(stream_index);
        for (access, target) in accesses.iter().zip(&targets) {
            let new = Use { point, site: Site { act: access.act, stream: id, op, place: call.op.place } };
            self.add_use(*target, *access, new, stream_index);
            if may_repeat {
                self.note_newest(*target, *access, new, stream_index);
            }
        }
        Ok(())
    }

    /// Looks up the memory of all accesses of a stream's next operation, and checks them.
    #[inline]
    fn check_accesses(
        &mut self,
        call: Call<'_>,
        stream_index: StreamIndex,
        accesses: &[Access],
        trust: Trust,
    ) -> Step<SmallVec<[Target; 4]>> {
        if self.lives.is_any_behind() {
            accesses.iter().for_each(|access| self.lives.write_back(access.memory));
        }
        let mut targets = SmallVec::new();
        for (at, access) in accesses.iter().enumerate() {
            match self.check_access(call, stream_index, *access, trust) {
                Ok(target) => targets.push(target),
                Err(refused) => {
                    return Err(self.with_the_rest((call, stream_index, trust), refused, &accesses[at + 1..]));
                }
            }
        }
        Ok(targets)
    }

    /// Judges a launch as [`check`](Self::check) does, without doing it. Its stream learns what it learns before any
    /// operation. Into a capture, each launch is right.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge_launch(&mut self, op: &Op, names: &Names) -> Result<(), Box<Finding>> {
        let What::Launch { stream, ref accesses, trust, .. } = op.what else { return Ok(()) };
        let call = Call { op, names };
        let entered = self.refuse_while_capturing(call).and_then(|()| self.enter(call, stream));
        let judged = entered.and_then(|stream_index| match self.graphs.is_captured(stream) {
            true => Ok(()),
            false => self.check_accesses(call, stream_index, accesses, trust).map(drop),
        });
        judged.map_err(|refused| self.refuse(call, refused))
    }

    /// Adds to the refusal of one access what the other accesses lack.
    #[cold]
    fn with_the_rest(
        &self,
        (call, stream_index, trust): (Call<'_>, StreamIndex, Trust),
        mut refused: Refused,
        others: &[Access],
    ) -> Refused {
        let also = others.iter().filter_map(|access| self.check_access(call, stream_index, *access, trust).err());
        also.for_each(|also| refused.join(&also));
        refused
    }

    /// Returns `true` if the races of a launch with this trust are reported.
    #[inline]
    pub(super) fn looks_for_races(&self, trust: Trust) -> bool {
        self.settings.races && trust == Trust::None
    }

    /// Looks up the memory of an access, and checks the access.
    #[inline]
    fn check_access(&self, call: Call<'_>, stream_index: StreamIndex, access: Access, trust: Trust) -> Step<Target> {
        let target = match self.lives.find(access.memory) {
            Found::Named(Named::Life(life)) => Target { life, is_lease: false },
            _ => self.resolve(call, access.memory, self.site(call, stream_index, access.act))?,
        };
        if trust == Trust::Order {
            return Ok(target);
        }
        let life = self.lives.at(target.life);
        if self.is_foreign(&life.source, stream_index) {
            let user = if let What::Copy { .. } = call.op.what { User::Other(None) } else { User::Kernel(None) };
            self.check_reach(call, target, user, self.site(call, stream_index, access.act))?;
        }
        let races = self.looks_for_races(trust);
        match life.history.check_use(access.act, access.part, &self.time.at(stream_index).chain, races) {
            Ok(()) => Ok(target),
            Err(fault) => Err(self.unordered(call, target.life, fault, self.site(call, stream_index, access.act))),
        }
    }

    /// Refuses a copy between bytes that overlap. `named` are its accesses, by the memory that they refer to. `subject`
    /// describes the memory of one of them.
    pub(super) fn refuse_overlap<M: Ord + Copy>(
        &self,
        call: Call<'_>,
        later: Site,
        named: impl Iterator<Item = (M, Act, Part)>,
        subject: impl FnOnce(usize) -> Subject,
    ) -> Step {
        let mut sorted: SmallVec<[_; 4]> = named.enumerate().collect();
        sorted.sort_by_key(|(_, (memory, _, part))| (*memory, *part));
        let Some(at) = find_aliased(sorted.iter().map(|(_, access)| *access)) else { return Ok(()) };
        let (which, access) = sorted[at];
        let other = aliased_with(sorted[..at].iter().map(|(_, access)| *access), access);
        let subject = subject(which);
        let by = match later.stream {
            StreamId::HOST => "in a graph".to_owned(),
            stream => self.by(call, stream),
        };
        let (what, later, (_, act, part)) = (subject.to_string(), self.act_side(call, later), access);
        Err(Box::new(Finding::overlap(&what, subject.bytes, (act, part), other, &by, later).of(subject)))
    }

    /// Adds a use that was judged right.
    #[inline]
    fn add_use(&mut self, target: Target, access: Access, new: Use, stream_index: StreamIndex) {
        let import = target.is_lease.then_some(access.memory);
        self.lives.add_use(target.life, import, new, access.part, &self.time.at(stream_index).chain);
        let life = self.lives.at_mut(target.life);
        if (life.history.len() > life.settle_at || life.history.is_due()) && !life.is_exportable() {
            let time = &self.time;
            life.history.settle(|point| time.is_settled(point));
            life.settle_at = 16.max(2 * life.history.len());
        }
        if self.is_foreign(&self.lives.at(target.life).source, stream_index) {
            self.note_foreign(target.life, self.time.at(stream_index).kept.device, new);
        }
    }

    /// Notes a use that a later launch may repeat: of all bytes, not by an import, on the memory's own device.
    #[inline]
    fn note_newest(&mut self, target: Target, access: Access, new: Use, stream_index: StreamIndex) {
        let own = self.time.at(stream_index).kept.device;
        let is_foreign = match self.lives.at(target.life).source {
            Source::Stream { device, .. } | Source::Now(Space::Device(device)) => device != own,
            _ => false,
        };
        if access.part.is_whole() && !target.is_lease && !is_foreign {
            self.lives.note_newest(target.life, new);
        }
    }

    /// Does accesses of the host itself.
    pub(super) fn host_access(&mut self, call: Call<'_>, accesses: &[Access]) -> Step {
        let base = self.time.base(call.op.host);
        let mut targets = SmallVec::<[Target; 4]>::new();
        for access in accesses {
            let site = self.host_site(call, access.act);
            let target = self.resolve(call, access.memory, site)?;
            let life = self.lives.at(target.life);
            let part = access.part;
            if let Err(fault) = life.history.check_use(access.act, part, &*base, self.settings.races) {
                return Err(self.unordered(call, target.life, fault, site));
            }
            targets.push(target);
        }
        let point = self.time.act(call.op.host);
        for (access, target) in accesses.iter().zip(&targets) {
            let new = Use { point, site: self.host_site(call, access.act) };
            let import = target.is_lease.then_some(access.memory);
            self.lives.add_use(target.life, import, new, access.part, &*base);
        }
        Ok(())
    }

    /// Frees memory from the stream's next point on.
    pub(super) fn free(&mut self, call: Call<'_>, memory: Memory, stream: StreamId, trust: Trust) -> Step {
        let stream_index = self.enter(call, stream)?;
        if self.graphs.is_captured(stream) {
            return self.captured_free(call, stream_index, memory);
        }
        let site = self.site(call, stream_index, Act::Free);
        let target = self.resolve(call, memory, site)?;
        if target.is_lease {
            return self.release(call, stream_index, memory, target.life);
        }
        self.check_leases(call, target.life, site)?;
        self.refuse_pinned(call, target.life, site)?;
        if trust != Trust::Order
            && let Err(fault) = self.lives.at(target.life).history.check_free(&self.time.at(stream_index).chain)
        {
            self.lives.at_mut(target.life).is_doubtful = true;
            return Err(self.unordered(call, target.life, fault, site));
        }
        let point = self.time.at_mut(stream_index).chain.submit();
        self.time.done(stream_index, "freed", call.op.place);
        self.end(target.life, Use { point, site });
        Ok(())
    }

    /// Refuses to free host memory on a stream, because it is in no stream's order.
    #[inline]
    fn refuse_pinned(&mut self, call: Call<'_>, life: LifeId, later: Site) -> Step {
        match self.lives.at(life).source {
            Source::Now(Space::Host) => {
                self.lives.at_mut(life).is_doubtful = true;
                Err(self.pinned(call, life, later))
            }
            _ => Ok(()),
        }
    }

    /// Frees memory immediately. The host must know that every use has completed.
    pub(super) fn free_now(&mut self, call: Call<'_>, memory: Memory) -> Step {
        let site = self.host_site(call, Act::Free);
        let target = match self.resolve(call, memory, site) {
            // A capture forbids the call, also for memory of a graph that no launch has allocated yet.
            Err(finding) if finding.is_quiet() || finding.kind == Kind::before_alloc(Act::Free) => {
                if let Found::Named(Named::Node { .. }) = self.lives.find(memory) {
                    self.refuse_unsafe(call)?;
                }
                return Err(finding);
            }
            target => target?,
        };
        self.refuse_unsafe(call)?;
        let base = self.time.base(call.op.host);
        if target.is_lease {
            return self.release_now(call, memory, target.life);
        }
        self.check_leases(call, target.life, site)?;
        if let Err(fault) = self.lives.at(target.life).history.check_free(&*base) {
            return Err(self.unordered(call, target.life, fault, site));
        }
        self.end(target.life, Use { point: ALWAYS, site });
        Ok(())
    }

    /// Notes that a free of memory was refused, so that the memory is not reported as a leak, too.
    pub(super) fn doubt(&mut self, memory: Memory) {
        if let Found::Named(Named::Life(life)) = self.lives.find(memory) {
            self.lives.at_mut(life).is_doubtful = true;
        }
    }

    /// Drops memory: it is free after everything declared so far.
    pub(super) fn drop_memory(&mut self, call: Call<'_>, memory: Memory) -> Step {
        if self.captured_drop(call, memory)? {
            return Ok(());
        }
        let site = self.host_site(call, Act::Free);
        let target = self.resolve(call, memory, site)?;
        let by = Use { point: ALWAYS, site };
        match target.is_lease {
            true => self.drop_lease(call, memory, target.life, site),
            false if !self.lives.at(target.life).leases.is_empty() => self.lives.drop_held(target.life, by),
            false => self.end(target.life, by),
        }
        Ok(())
    }

    /// Ends a lifetime. If a launch began it, the instance learns of the end.
    pub(super) fn end(&mut self, id: LifeId, by: Use) {
        let Some(life) = self.lives.end(id, by) else { return };
        if let Source::Launch(exec, alloc) = life.source {
            self.output_freed(exec, alloc, life.freed_by(by));
        }
    }

    /// Reports the memory that was never freed.
    pub(super) fn find_leaks(&mut self, call: Call<'_>) {
        let mut leaks: Vec<Finding> = Vec::new();
        for life in self.lives.living() {
            for lease in life.leases.iter().filter(|lease| !lease.is_doubtful) {
                leaks.push(self.leaked_lease(call, life, lease));
            }
            if !life.is_doubtful && life.leases.is_empty() {
                leaks.push(self.leaked(call, life));
            }
        }
        debug_assert!(leaks.iter().all(|leak| leak.kind == Kind::Leak));
        self.more.append(&mut leaks);
    }
}
