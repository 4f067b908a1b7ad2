//! The access of devices to memory of other devices, which the memory's pool or device has to grant.
//!
//! For memory of a pool, a use is checked when the work is submitted, against what the pool grants then. For memory
//! that a capture allocates, it is checked when the node that uses the memory is captured, against what the pool
//! granted at the allocation (CUDA: an alloc node keeps the access of its pool, whatever becomes of the pool). A pool
//! revokes access immediately, so the host must know that the uses under it have completed. Kernels of another device
//! may use immediate allocations while their device has access to the owner's device; copies need no access. Knows
//! lifetimes and captures.

use std::collections::BTreeMap;

use super::checker::{Call, Checker, Step};
use super::finding::{Finding, Subject};
use super::graph_state::{Kept, Lender, LetIn, User, needed};
use super::lives::{Found, LifeId, Named, Source};
use super::timeline::StreamIndex;
use super::usage::Target;
use crate::graph::{Access as NodeAccess, Memory as NodeMemory};
use crate::ids::{DeviceId, GraphId, PoolId};
use crate::life::{Site, Use};
use crate::op::{Access, Act, Memory, Reach, Space, Thing};

/// The time before which a pool has to grant access, in words: the use, or the allocation in a capture.
const NOW: &str = "first";
const CAPTURED: &str = "before the memory is allocated in the capture";

/// The memory of a pool or a device, for [`Checker::refuse_reach`].
struct Lent {
    lender: Lender,
    /// The time before which the access has to be granted, in words.
    before: &'static str,
    /// The device of the memory.
    owner: DeviceId,
    subject: Subject,
    /// The allocation.
    born: Site,
}

impl Checker {
    /// Returns `true` if a use of memory may need access that the memory's pool or device grants. For most memory this
    /// is decided at once.
    #[inline]
    pub(super) fn is_foreign(&self, source: &Source, stream_index: StreamIndex) -> bool {
        match *source {
            Source::Stream { device, .. } => device != self.time.at(stream_index).kept.device,
            Source::Launch(..) => !self.graphs.kept.is_empty(),
            Source::Now(Space::Device(device)) => device != self.time.at(stream_index).kept.device,
            Source::Now(_) => false,
        }
    }

    /// Checks that the memory's pool or device grants a device the access that an act needs. The device is that of the
    /// current stream, unless `user` names another one.
    #[cold]
    pub(super) fn check_reach(&self, call: Call<'_>, target: Target, user: User, later: Site) -> Step {
        let life = self.lives.at(target.life);
        let (User::Kernel(by) | User::Other(by)) = user;
        let (lender, owner, let_in, before) = match life.source {
            Source::Stream { pool, device, .. } => {
                let lender = Lender::Pool(pool);
                (lender, device, self.reach.get(&lender), NOW)
            }
            Source::Now(Space::Device(device)) if matches!(user, User::Kernel(_)) => {
                let lender = Lender::Device(self.time.process(call.op.host), device);
                (lender, device, self.reach.get(&lender), NOW)
            }
            _ => match self.node_of_left(target.life).and_then(|node| self.graphs.kept.get(&node)) {
                Some(kept) => (Lender::Pool(kept.pool), kept.owner, Some(&kept.let_in), CAPTURED),
                None => return Ok(()),
            },
        };
        let own = || self.time.stream(later.stream).map(|stream| stream.kept.device);
        let device = by.or_else(own).unwrap_or(owner);
        let is_let_in = |let_in: &LetIn| let_in.allows(device, later.act);
        // A process imports into a pool of its own, about which nothing is known.
        if device == owner || target.is_lease || let_in.is_some_and(is_let_in) {
            return Ok(());
        }
        let subject = self.subject(call, life.memory, life.bytes, life.name);
        let memory = Lent { lender, before, owner, subject, born: life.history.born().site };
        self.refuse_reach(call, memory, device, later)
    }

    /// Notes a use of memory by another device, which the memory's pool had to grant access.
    pub(super) fn note_foreign(&mut self, life: LifeId, device: DeviceId, used: Use) {
        let Source::Stream { pool, device: owner, .. } = self.lives.at(life).source else { return };
        // The grants of a destroyed pool do not change any more, so uses under them need not be known.
        if owner != device && !self.is_gone(pool) {
            let known = self.foreign.entry((pool, device)).or_default();
            known.insert((used.point.chain, used.site.act == Act::Write), used);
        }
    }

    /// Checks that the host knows that all uses have completed that need more access than the pool grants from now on
    /// (`left`).
    pub(super) fn check_unused_foreign(&mut self, call: Call<'_>, pool: PoolId, device: DeviceId, left: Reach) -> Step {
        let base = self.time.base(call.op.host);
        let uses = self.foreign.get(&(pool, device)).into_iter().flat_map(BTreeMap::values);
        let is_cut = |used: &&Use| needed(used.site.act) > left && !base.covers(used.point);
        let cut: Vec<Use> = uses.filter(is_cut).copied().collect();
        if cut.is_empty() {
            return Ok(());
        }
        let pool = call.names.title(Thing::Pool(pool));
        let cut = cut.iter().map(|used| (self.act_side(call, used.site), self.edge(call, used))).collect();
        let later = self.side(call, self.host_site(call, Act::Free), "revoked");
        Err(Box::new(Finding::in_use(&pool, &device.to_string(), cut, later)))
    }

    /// Keeps the access that a pool grants now, for memory that a capture allocates from it.
    pub(super) fn keep_access(&mut self, call: Call<'_>, stream_index: StreamIndex, memory: Memory, pool: PoolId) {
        let let_in = self.reach.get(&Lender::Pool(pool)).cloned().unwrap_or_default();
        let (owner, born) = (self.time.at(stream_index).kept.device, self.site(call, stream_index, Act::Allocate));
        self.graphs.kept.insert(memory, Kept { pool, owner, born: Site { op: 0, ..born }, let_in });
    }

    /// As [`check_reach`](Self::check_reach), for memory that a capture allocates: the capture that the stream is in,
    /// or an earlier one, for example that of a child.
    pub(super) fn check_node_reach(
        &self,
        call: Call<'_>,
        stream_index: StreamIndex,
        named: &[Access],
        accesses: &[NodeAccess],
    ) -> Step {
        let (id, device) = (self.time.at(stream_index).kept.id, self.time.at(stream_index).kept.device);
        let Some(graph) = self.graphs.captured_on(id).map(|captured| captured.graph.id()) else { return Ok(()) };
        for (named, access) in named.iter().zip(accesses) {
            let Some(Kept { pool, owner, born, let_in }) = self.graphs.kept.get(&named.memory) else { continue };
            if device != *owner && !let_in.allows(device, access.act) {
                let subject = self.named_by_node(call, graph, named, access);
                let later = self.site(call, stream_index, access.act);
                let lender = Lender::Pool(*pool);
                let memory = Lent { lender, before: CAPTURED, owner: *owner, subject, born: *born };
                return self.refuse_reach(call, memory, device, later);
            }
        }
        Ok(())
    }

    fn refuse_reach(&self, call: Call<'_>, memory: Lent, device: DeviceId, later: Site) -> Step {
        let Lent { lender, before, owner, subject, born } = memory;
        let pool = match lender {
            Lender::Pool(pool) => Some(call.names.title(Thing::Pool(pool))),
            Lender::Device(..) => None,
        };
        let (owner, device) = (owner.to_string(), device.to_string());
        let (lender, by) = ((&*owner, pool.as_deref()), (&*device, before));
        Err(Box::new(Finding::no_access(subject, lender, by, self.act_side(call, born), self.act_side(call, later))))
    }

    /// Describes the memory that a node uses.
    pub(super) fn named_by_node(&self, call: Call<'_>, graph: GraphId, named: &Access, access: &NodeAccess) -> Subject {
        let node = match access.memory {
            NodeMemory::Own(alloc) => Some((graph, alloc)),
            NodeMemory::Foreign { graph, alloc } => Some((graph, alloc)),
            NodeMemory::External { .. } => None,
        };
        let node = node.and_then(|(graph, alloc)| Some((self.graphs.known(graph)?, alloc)));
        let node =
            node.and_then(|(graph, alloc)| graph.alloc(alloc).map(|alloc| (graph.node(alloc.node), alloc.bytes)));
        let (bytes, name) = match (node, self.lives.find(named.memory)) {
            (Some((node, bytes)), _) => (bytes, node.and_then(|node| call.names.find(node.label.name.as_deref()?))),
            (None, Found::Named(Named::Life(life) | Named::Lease(life))) => {
                let life = self.lives.at(life);
                (life.bytes, life.name)
            }
            _ => (0, None),
        };
        self.subject(call, named.memory, bytes, name)
    }
}
