//! Memory by pointer, for other languages: the C library keeps buffers in its own tables, and declares accesses whose
//! number is known at run time.
//!
//! Depends on buffers, alloc nodes and accesses; adds no rule of its own. Everything here is checked as its typed
//! counterpart is, except [`Stream::record_use`]. That is for programs whose order is trusted (PyTorch frees without
//! saying what used the memory). It only ever adds a use, so that a later free waits for more, never for less.

use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;
use millpond_core::check::{Act, Place, Site, Use};
use millpond_core::ids::{AllocId, Point, PoolId, StreamId};
use millpond_core::op::{Part, Trust};
use millpond_core::units::Range;
use millpond_driver::{Driver, DriverError, Peer, process};

use crate::api::device::Device;
use crate::clock::device_event::DeviceEvent;
use crate::graph::Graph;
use crate::names::count::{Count, Span};
use crate::names::error::{Invalid, Result};
use crate::names::statistics::PoolStatistics;
use crate::operations::memory::Ground;
use crate::state::access::{Read, Source, Write};
use crate::state::aliased::Job;
use crate::state::allocation::{Allocation, Owned};
use crate::state::context::FoundPool;
use crate::state::named::{MemAllocNode, NodeName};
use crate::state::origin::Origin;
use crate::state::pool::PoolShared;
use crate::state::stream::{Mode, StreamShared};
use crate::stream::buffer::Buffer;
use crate::stream::handle::Stream;
use crate::stream::refused::Refused;

/// Device memory by name: a lifetime of an allocation, or the memory of an alloc node. It owns nothing. A use of it
/// after the free is refused.
#[derive(Clone, Debug)]
pub struct RawMemory {
    pub(crate) whose: Whose,
    count: Count<u8>,
}

#[derive(Clone, Debug)]
pub(crate) enum Whose {
    Life(Owned),
    Node(NodeName),
}

impl RawMemory {
    /// Returns the memory of an alloc node, or `None` if the node allocates nothing.
    pub fn of_node(node: MemAllocNode<u8>) -> Option<Self> {
        node.name.map(|name| Self { whose: Whose::Node(name), count: node.count })
    }

    /// Returns the first address.
    pub fn address(&self) -> u64 {
        match &self.whose {
            Whose::Life(owned) => owned.address,
            Whose::Node(name) => name.address,
        }
    }

    /// Returns the size in bytes, as requested.
    pub fn bytes(&self) -> u64 {
        self.count.bytes()
    }

    /// Gives the lifetime a name, for messages, if it goes on. Returns `true` if it does. For a graph's memory, which
    /// has many lifetimes, returns `false`.
    pub fn set_name(&self, name: &str) -> bool {
        match &self.whose {
            Whose::Life(owned) => owned.set_name(name),
            Whose::Node(_) => false,
        }
    }

    /// Returns `true` if the buffer owns this memory.
    pub fn is_in(&self, buffer: &Buffer<u8>) -> bool {
        let (Whose::Life(named), Some(owned)) = (&self.whose, buffer.owned()) else { return false };
        Arc::ptr_eq(&named.allocation, &owned.allocation) && named.generation == owned.generation
    }

    pub(super) fn source(&self) -> Source<'_> {
        match &self.whose {
            Whose::Life(owned) => Source::Owned(owned),
            Whose::Node(name) => Source::Node(*name),
        }
    }

    pub(super) fn span(&self, offset: u64, bytes: u64) -> Result<Span<u8>> {
        // A number that no slice can have is not within any memory.
        let [start, end] = [offset, offset.saturating_add(bytes)].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        Span::all(self.count).slice(start, end)
    }

    /// Declares that a part of the memory is read.
    ///
    /// # Errors
    /// Returns [`Invalid::Bounds`] if the part is not within the memory.
    pub fn read(&self, offset: u64, bytes: u64) -> Result<Read<'_, u8>> {
        Ok(Read::new(self.source(), self.span(offset, bytes)?))
    }

    /// Declares that a part of the memory is written, or read and written.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn write(&self, offset: u64, bytes: u64) -> Result<Write<'_, u8>> {
        Ok(Write::new(self.source(), self.span(offset, bytes)?))
    }
}

/// For other languages and libraries, with [`raw`](crate::raw).
impl<T: Pod> Buffer<T> {
    /// Returns a name for this lifetime that needs no look-up in the pool, or `None` if the buffer is empty.
    pub fn raw(&self) -> Option<RawMemory> {
        let count = Count::of_bytes(self.bytes())?;
        self.owned().map(|owned| RawMemory { whose: Whose::Life(owned.clone()), count })
    }

    /// Returns `true` if the buffer was allocated in a capture: its memory is a graph's, and is live only once that was
    /// launched.
    #[inline]
    pub fn is_captured(&self) -> bool {
        self.owned().is_some_and(|owned| matches!(owned.allocation.origin, Origin::Captured(_)))
    }
}

impl Graph {
    /// Returns the memory that an address is in, in this graph and its children, and the offset of the address in it.
    /// It is the memory of the alloc node that was added last of those that have the address.
    pub fn node_around(&self, address: u64) -> Option<(MemAllocNode<u8>, u64)> {
        let found = self.body.node_around(address)?;
        Some((MemAllocNode::of_address(self.body.context.number, found)?, address - found.1.start))
    }
}

/// For other languages and libraries, with [`raw`](crate::raw).
impl Stream {
    /// Ends the capture that began on this stream, if there is one, from any thread. Its graph is discarded, as when
    /// the last handle of the stream is dropped. A capture that began with a closure goes on.
    pub fn abandon_capture(&self) {
        self.abandon(None);
    }

    /// Records a use of the memory at this point of the stream, without a check, for programs whose order is trusted. A
    /// buffer that is dropped later is free only after this point. If the stream captures, nothing is recorded.
    ///
    /// # Errors
    /// Returns an error if the memory was freed or is a graph's that was not launched, or if the stream is closed.
    pub fn record_use(&self, memory: &RawMemory) -> Result<()> {
        self.add_use(memory, (Act::Write, Part::WHOLE))
    }

    pub(super) fn add_use(&self, memory: &RawMemory, what: (Act, Part)) -> Result<()> {
        let name = match &memory.whose {
            Whose::Life(owned) => return self.shared.record_use(owned, what),
            Whose::Node(name) => *name,
        };
        let context = &self.shared.context;
        if name.device != context.number {
            return Err(Invalid::OtherDevice { what: "an alloc node".into(), with: self.shared.titled() }.into());
        }
        // The memory that the latest launch left live.
        let later = Site { act: what.0, stream: self.shared.id, ..Site::default() };
        let allocation = context.graphs.resolve(name, later)?;
        let generation = allocation.life().generation;
        self.shared.record_use(&Owned { allocation, generation, address: name.address }, what)
    }

    /// Frees a buffer at this point of the stream, if the memory is this stream's alone. Otherwise the free is refused,
    /// whatever else the stream is known to come after.
    #[inline]
    pub(crate) fn free_own(&self, buffer: Buffer<u8>) -> std::result::Result<(), Refused<u8>> {
        let mut buffer = buffer;
        if self.shared.free_to_cache::<true>(buffer.place(), Location::caller()) {
            return Ok(());
        }
        self.free_in_full(buffer, Ground::Own, Location::caller())
    }

    /// Frees a buffer at this point of the stream. By the program's own word, this comes after everything that the
    /// program did with the buffer.
    #[inline]
    pub(crate) fn free_trusted(&self, buffer: Buffer<u8>) -> std::result::Result<(), Refused<u8>> {
        self.free_in_full(buffer, Ground::Word, Location::caller())
    }

    /// Frees a buffer after all work so far of this stream, of the one that allocated it, and of `users`.
    #[cold]
    pub(crate) fn free_elsewhere(&self, buffer: Buffer<u8>, users: &[Stream]) -> std::result::Result<(), Refused<u8>> {
        let Some(owned) = buffer.owned() else { return Ok(()) };
        let context = &self.shared.context;
        let born = owned.allocation.life().history.born().point.chain;
        let home = context.streams().into_iter().find(|stream| stream.chain == born);
        let all = users.iter().map(|user| &*user.shared).chain(home.as_deref()).chain([&*self.shared]);
        let recorded =
            all.into_iter().try_for_each(|stream| match stream.record_use(owned, (Act::Write, Part::WHOLE)) {
                // A closed stream has an end, and gets no more work.
                Err(error) if matches!(error.invalid(), Some(Invalid::StreamClosed(_))) => {
                    stream.record_end(owned);
                    Ok(())
                }
                done => done,
            });
        if home.is_none()
            && let Some(progress) = context.chains.find(born)
        {
            add_end(owned, progress.last(born));
        }
        if let Err(error) = recorded {
            return Err(Refused { error, buffer });
        }
        drop(buffer);
        Ok(())
    }

    /// Records an event after the present work of the stream, for when none can be recorded.
    pub(crate) fn record_ahead(&self) {
        self.shared.progress.record_ahead(&self.shared.context.driver);
    }

    /// Refuses a stream that the program captures by other ways than [`begin_capture`](Self::begin_capture).
    pub(crate) fn check_captured(&self, call: &'static str) -> Result<()> {
        self.shared.check_captured(call)
    }
}

/// Makes a free of the memory come after the end of a closed stream.
fn add_end(owned: &Owned, point: Point) {
    let site = Site { act: Act::Write, ..Site::default() };
    owned.allocation.life().history.add_apart(Use { point, site });
}

impl StreamShared {
    fn record_end(&self, owned: &Owned) {
        add_end(owned, self.progress.last(self.chain));
    }

    fn record_use(&self, owned: &Owned, (act, part): (Act, Part)) -> Result<()> {
        let shared = self;
        let mut state = shared.state.lock();
        let Owned { allocation, generation, .. } = owned;
        if shared.enter(&mut state)? == Mode::Capturing {
            return Ok(());
        }
        let mut life = allocation.life();
        if !life.is_live(*generation) {
            return Err(Invalid::Stale.into());
        }
        let mut used = shared.next_use(&mut state, act, Location::caller());
        if allocation.device != shared.context.number
            && let Origin::Pool(pool) = &allocation.origin
        {
            pool.context.meet(&shared.context);
            pool.context.chains.insert_foreign(shared.chain, &shared.progress, &shared.context.driver);
            used.site.stream = shared.id.of_device(shared.context.number);
            pool.used_foreign(shared.context.number, used);
        }
        life.history.add_use(used, part, &state.chain);
        if let Some(tracer) = &shared.context.tracer {
            let used = [(&**allocation, *generation, act, part)].into_iter();
            tracer.launch(shared.id, (used, Job::Declared, Trust::Order), Location::caller());
        }
        drop(life);
        shared.leave(&mut state);
        Ok(())
    }
}

/// All work that a device had at one moment, in any stream and from any code.
#[derive(Debug)]
pub struct AllWork(Vec<DeviceEvent>);

impl AllWork {
    /// Returns `true` if the work has completed.
    ///
    /// # Errors
    /// Returns an error if the device is lost.
    pub fn is_over(&mut self) -> Result<bool> {
        while let Some(event) = self.0.last() {
            if !event.is_over()? {
                return Ok(false);
            }
            self.0.pop();
        }
        Ok(true)
    }
}

/// For other languages and libraries, with [`raw`](crate::raw).
impl Device {
    /// Returns all work that the device has by now, also that of streams which were never adopted. If the device cannot
    /// record an event for it, this waits for it. Do not call it while any stream captures: that would end the capture.
    ///
    /// # Errors
    /// Returns an error if a stream is known to capture, or if the device is lost.
    pub fn all_work(&self) -> Result<AllWork> {
        process::refuse_forked()?;
        let context = self.context();
        let streams = context.streams();
        if streams.iter().any(|it| it.submitters.are_shared() && context.driver.is_captured(it.raw)) {
            return Err(DriverError::Captured { call: "all_work" }.into());
        }
        if let Some(event) = context.driver.record_all()? {
            return Ok(AllWork(vec![DeviceEvent::new(event, &context.driver)]));
        }
        let record =
            |stream: &Arc<StreamShared>| Ok(DeviceEvent::new(context.driver.record(stream.raw)?, &context.driver));
        streams.iter().map(record).collect::<Result<_>>().map(AllWork)
    }

    /// Gives back the memory of dropped pools whose last uses have completed by now. Otherwise synchronisations do
    /// that.
    pub fn reclaim(&self) {
        self.context().finish_closing();
    }

    /// Records an event in each stream that the program submits to as well, before the program captures one. So the
    /// work that these streams have by then can be queried while they are captured, and the memory that they freed can
    /// serve the capture.
    pub fn record_ahead(&self) {
        let context = self.context();
        let streams = context.streams();
        let shared = streams.iter().filter(|stream| stream.submitters.are_shared());
        shared.for_each(|stream| stream.progress.record_ahead(&context.driver));
    }

    /// Refuses an immediate call while a capture forbids it. The capture is invalid then.
    ///
    /// # Errors
    /// Returns an error with the call and the capture.
    pub fn refuse_in_capture(&self, call: &'static str) -> Result<()> {
        self.context().graphs.refuse_unsafe(call)
    }

    /// Returns `true` if the device runs streams that other code of the process made.
    pub fn has_foreign_streams(&self) -> bool {
        matches!(self.context().driver.peer(), Some(Peer::Cuda(_)))
    }

    /// Returns `true` if the memory is of this device.
    pub fn owns(&self, memory: &RawMemory) -> bool {
        let number = self.context().number;
        match &memory.whose {
            Whose::Life(owned) => owned.allocation.device == number,
            Whose::Node(name) => name.device == number,
        }
    }

    /// Returns the live allocation that starts at an address, whoever owns it.
    ///
    /// # Errors
    /// Returns [`Invalid::Pointer`], with what is there instead or nearest, if there is none.
    pub fn memory_at(&self, address: u64) -> Result<RawMemory> {
        let owned = PoolShared::find_on(self.context(), address)?;
        let count = Count::of_bytes(owned.allocation.life().bytes).ok_or(Invalid::Stale)?;
        Ok(RawMemory { whose: Whose::Life(owned), count })
    }

    /// As [`Graph::node_around`], for the graph of the device that has the address. Also returns `true` if the memory
    /// is live.
    pub fn node_around(&self, address: u64) -> Option<(MemAllocNode<u8>, u64, bool)> {
        process::refuse_forked().ok()?;
        let (context, graphs) = (self.context(), &self.context().graphs);
        let found = graphs.node_around(address)?;
        let node = MemAllocNode::of_address(context.number, found)?;
        Some((node, address - found.1.start, graphs.is_live(found.0)))
    }

    /// Returns the live allocation of a pool of the device that contains an address, whoever owns it.
    pub fn memory_around(&self, address: u64) -> Option<RawMemory> {
        process::refuse_forked().ok()?;
        let (owned, bytes) = PoolShared::find_around(self.context(), address)?;
        Some(RawMemory { whose: Whose::Life(owned), count: Count::of_bytes(bytes)? })
    }
}

/// A live allocation, for a picture of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveAllocation {
    /// The number on its device.
    pub id: AllocId,
    /// The addresses, rounded up to the pool's grain.
    pub range: Range,
    /// The size in bytes, as requested.
    pub bytes: u64,
    /// The name that the program gave it.
    pub name: Option<Arc<str>>,
    /// The stream that it was allocated on.
    pub stream: StreamId,
    /// The number of that operation on the stream, counted from 1.
    pub op: u64,
    /// The place of that operation in the source.
    pub place: Place,
}

/// A pool of a device, in a picture of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolPicture {
    /// The number on its device.
    pub id: PoolId,
    /// The statistics of the pool.
    pub statistics: PoolStatistics,
    /// All live allocations, by address.
    pub live: Vec<LiveAllocation>,
}

/// For other languages and libraries, with [`raw`](crate::raw).
impl Device {
    /// Returns what each pool of the device holds. Concurrent changes by other threads may be seen in part.
    pub fn picture(&self) -> Vec<PoolPicture> {
        let picture = |pool: &FoundPool| PoolPicture { id: pool.id, statistics: pool.statistics(), live: pool.live() };
        let mut pools: Vec<_> = self.context().pools().iter().map(picture).collect();
        pools.sort_by_key(|pool| pool.id);
        pools
    }
}

impl PoolShared {
    fn live(&self) -> Vec<LiveAllocation> {
        let entries: Vec<Arc<Allocation>> = self.lock().allocations().cloned().collect();
        let describe = |allocation: &Arc<Allocation>| {
            let life = allocation.life();
            let born = life.history.born().site;
            life.freed.is_none().then(|| LiveAllocation {
                id: allocation.id,
                range: life.range,
                bytes: life.bytes,
                name: life.name.clone(),
                stream: born.stream,
                op: born.op,
                place: born.place,
            })
        };
        let mut live: Vec<_> = entries.iter().filter_map(describe).collect();
        live.sort_by_key(|it| it.range.start);
        live
    }
}

#[cfg(test)]
mod tests;
