//! The names of allocations in a trace, and accesses as the program declares them.

use millpond_core::check::Act;
use millpond_core::graph::GraphAllocId;
use millpond_core::ids::StreamId;
use millpond_core::op::{Access, Memory, Part, Place, Trust, What};
use smallvec::SmallVec;

use crate::graph::Graphs;
use crate::state::access::{Access as Declare, Source};
use crate::state::aliased::Job;
use crate::state::allocation::{Allocation, Owned};
use crate::state::origin::Origin;
use crate::state::peers;
use crate::trace::tracer::{Caller, Tracer};

/// Returns the operation of a job on a stream.
fn done(stream: StreamId, accesses: SmallVec<[Access; 2]>, (job, trust): (Job, Trust)) -> What {
    match job {
        Job::Copy => What::Copy { stream, accesses },
        _ => What::Launch { stream, accesses, trust, name: None },
    }
}

impl Tracer {
    /// Traces a free that was refused, of memory that may be another device's, or of a capture.
    #[cold]
    pub(crate) fn free_owned(&self, owned: &Owned, stream: Option<StreamId>, caller: Caller) {
        let Some(memory) = self.memory_of(&owned.allocation, owned.generation) else { return };
        match stream {
            Some(stream) => self.free_of(memory, stream, caller),
            None => self.free_now_of(memory, caller),
        }
    }

    /// Returns the name of an allocation. Memory of another device has the name that its device gives it. If that
    /// device is in another trace, or in none, the memory has no name here.
    pub(crate) fn memory_of(&self, allocation: &Allocation, generation: u64) -> Option<Memory> {
        if let Origin::Captured(session) = &allocation.origin {
            return (allocation.device == self.context)
                .then(|| self.alloc_node(session.id, GraphAllocId(allocation.index)));
        }
        let owner = allocation.tracer().filter(|owner| self.is_beside(owner))?;
        Some(owner.memory(allocation.id, generation))
    }

    #[cold]
    pub(crate) fn launch<'a>(
        &self,
        stream: StreamId,
        (accesses, job, trust): (impl Iterator<Item = (&'a Allocation, u64, Act, Part)>, Job, Trust),
        caller: Caller,
    ) {
        let access = |(allocation, generation, act, part): (&Allocation, u64, _, _)| {
            Some(Access { memory: self.memory_of(allocation, generation)?, act, part })
        };
        self.push(
            Place::Source(caller),
            done(self.stream_id(stream), accesses.filter_map(access).collect(), (job, trust)),
        );
    }

    /// Traces a launch as the program asked for it. `is_unborn` is `true` if it was refused because some memory was not
    /// allocated.
    #[cold]
    pub(crate) fn declared_launch<A: Declare>(
        &self,
        graphs: &Graphs,
        stream: StreamId,
        (accesses, job): (&A, Job),
        is_unborn: bool,
        caller: Caller,
    ) {
        let done = done(self.stream_id(stream), self.declared(graphs, accesses, is_unborn), (job, job.trust()));
        self.push(Place::Source(caller), done);
    }

    /// Returns accesses as the program declares them, to a device with these graphs. With `is_unborn`, an alloc node
    /// with symbolic addresses names no memory: each instance has its own.
    pub(crate) fn declared<A: Declare>(&self, graphs: &Graphs, accesses: &A, is_unborn: bool) -> SmallVec<[Access; 2]> {
        let mut used = SmallVec::new();
        accesses.declare(&mut |declared| {
            let memory = match declared.source {
                Source::Empty => None,
                // A source that names nothing gets a name of its own, which no memory has.
                Source::Nothing | Source::Named(None) => Some(self.new_memory()),
                Source::Owned(Owned { allocation, generation, .. }) => self.memory_of(allocation, *generation),
                Source::Named(Some(named)) if named.device != self.context => {
                    let owner = peers::tracer_of(named.device);
                    owner.filter(|it| self.is_beside(it)).map(|it| it.memory(named.id, named.generation))
                }
                Source::Named(Some(named)) => {
                    let captured = graphs.find_open(named.id);
                    let captured = captured.and_then(|it| self.memory_of(&it, named.generation));
                    Some(captured.unwrap_or_else(|| self.memory(named.id, named.generation)))
                }
                Source::Node(name) if is_unborn && name.is_symbolic() => Some(self.new_memory()),
                Source::Node(name) => Some(self.alloc_node(name.graph, name.alloc)),
            };
            used.extend(memory.zip(declared.part).map(|(memory, part)| Access { memory, act: declared.act, part }));
        });
        used
    }
}
