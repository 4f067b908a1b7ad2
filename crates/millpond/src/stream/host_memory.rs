//! Host memory that copies read and write while they run: [`PinnedBuffer`] (CUDA: page-locked memory).
//!
//! It has a lifetime like any other memory. Copies are uses at points of their streams, checked by the same rules as
//! uses of device memory (`operations/pinned.rs`). The host is one more party. It reads and writes through slices, and
//! each slice that it takes is checked in the same way: the host comes after what it has synchronised with. So a slice
//! never has bytes that a copy may still write, and a mutable slice never has bytes that a copy may still read.
//!
//! Rust's borrows restrict what can be submitted while a slice exists: a copy into the memory borrows the buffer
//! mutably, and a copy from it borrows the buffer shared. So the host's own uses are not recorded: they have ended when
//! the next copy is submitted. There are no views and no accesses for launches: the memory is named by its buffer, and
//! only copies use it.
//!
//! Dropping a buffer waits for nothing and makes no driver call: its memory is set aside with the points that it is
//! free after (`retired.rs`). A later buffer of about that size takes the memory once all these points have completed,
//! and `Device::synchronize` gives the rest back. On a lost device the memory is released with the driver, once nothing
//! runs. The buffer keeps its device alive. A capture refuses these copies. A forked child process is refused
//! everything.
//!
//! Invariants: **known-to-host**: a slice is made only once the host knows that each conflicting copy has completed,
//! which it learns only from the device; **pinned-after-copies**: memory is reused, or given back, only once all copies
//! of it have completed.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;
use millpond_core::check::{Act, Use};
use millpond_core::ids::{AllocId, ChainIndex, Point, StreamId};
use millpond_core::op::Part;
use millpond_core::order::{Host, op_at};
use millpond_driver::locks::lock;
use millpond_driver::process;

use crate::clock::hosts;
use crate::names::count::{Count, Span};
use crate::names::error::{Error, Result};
use crate::state::access::{Read, Source, Write};
use crate::state::allocation::{Allocation, Owned, site, violation};
use crate::state::context::Context;
use crate::state::origin::Origin;
use crate::state::origin::Pinning;
use crate::state::retired::Retired;
use crate::stream::report::Noted;
use crate::trace::tracer::Tracer;

/// A buffer of host memory for `len` elements, which copies read and write in stream order (CUDA: `cudaMallocHost`).
///
/// [`Stream::copy_from_pinned`](crate::Stream::copy_from_pinned) and [`copy_to_pinned`](crate::Stream::copy_to_pinned)
/// return at once, and stage nothing. The host reads and writes the buffer through slices. A slice of bytes that a copy
/// may still use is refused. The error names that copy and what to wait for:
///
/// ```
/// # fn main() -> millpond::Result<()> {
/// # let device = millpond::Device::host(Default::default())?;
/// let stream = device.stream()?;
/// let x = stream.alloc::<f32>(&device.default_pool(), 1000)?;
/// let mut host = device.pinned::<f32>(1000)?;
/// host.as_mut_slice()?.fill(1.0);
/// stream.copy_from_pinned(x.write(), host.read())?; // returns at once
/// stream.launch(x.write(), |x| x.iter_mut().for_each(|x| *x += 1.0))?;
/// stream.copy_to_pinned(x.read(), host.write())?; // and so does this
/// assert!(host.as_slice().is_err(), "the copy may still run");
/// stream.synchronize()?;
/// assert_eq!(host.as_slice()?, [2.0; 1000]);
/// # Ok(())
/// # }
/// ```
///
/// Dropping the buffer waits for nothing. If copies may still run, the memory stays until they have completed.
///
/// A [trace](crate::config::Trace) has the copies and the slices that were refused. It does not have the slices that
/// were taken.
pub struct PinnedBuffer<T> {
    owned: Option<Owned>,
    /// The size of the memory, in bytes.
    capacity: u64,
    context: Arc<Context>,
    count: Count<T>,
    /// Makes the buffer `Send` and `Sync` as its elements are, because the host uses them on any thread that has the
    /// buffer.
    element: PhantomData<T>,
}

impl<T: Pod> PinnedBuffer<T> {
    /// Makes a buffer without memory.
    pub(crate) fn empty(context: &Arc<Context>, count: Count<T>) -> Self {
        Self { owned: None, capacity: 0, context: Arc::clone(context), count, element: PhantomData }
    }

    /// Makes a buffer over memory that only the caller has: `capacity` bytes from `at`, initialised.
    pub(crate) fn new(
        context: &Arc<Context>,
        (at, capacity): (u64, u64),
        count: Count<T>,
        caller: &'static Location<'static>,
    ) -> Self {
        let numbers = Arc::clone(&context.alloc_numbers);
        let number = numbers.take();
        let pinning = Pinning { numbers, tracer: context.tracer.clone(), device: context.name() };
        let allocation = Allocation::new(number, 0, context.number, Origin::Pinned(Arc::new(pinning)));
        // Before every point of every stream.
        let point = Point { chain: ChainIndex(0), seq: 0 };
        let mut life = allocation.life();
        life.begin(count.bytes(), Use { point, site: site(Act::Allocate, StreamId::HOST, 0, caller) });
        let generation = life.generation;
        drop(life);
        if let Some(tracer) = &context.tracer {
            tracer.pinned((number.id, generation), count.bytes(), caller, false);
        }
        let owned = Some(Owned { allocation: Arc::new(allocation), generation, address: at });
        Self { owned, capacity, context: Arc::clone(context), count, element: PhantomData }
    }

    /// Returns the elements for reading. While the slice is borrowed, no copy into the buffer can be submitted.
    ///
    /// # Errors
    /// Returns a violation if a copy into the buffer is not known to have completed. Synchronise with its stream first,
    /// or with an event that was recorded after it.
    #[track_caller]
    pub fn as_slice(&self) -> Result<&[T]> {
        self.check(Act::Read, Location::caller())?;
        // SAFETY: the memory is initialised, has `len` elements, is aligned to 512 B (no `T` of a `Count` asks for
        // more), and is this buffer's alone. Any bytes are a `T: Pod`. No copy writes it: each copy that did has
        // completed (known-to-host), and no other can be submitted while this borrow exists.
        Ok(unsafe { std::slice::from_raw_parts(self.start(), self.len()) })
    }

    /// Returns the elements for reading and writing. While the slice is borrowed, no copy of the buffer can be
    /// submitted.
    ///
    /// # Errors
    /// As for [`as_slice`](Self::as_slice), and also for copies from the buffer.
    #[track_caller]
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.check(Act::Write, Location::caller())?;
        // SAFETY: as above; no copy reads it either.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start(), self.len()) })
    }

    /// Declares that a copy reads the buffer.
    pub fn read(&self) -> PinnedRead<'_, T> {
        PinnedRead(Read::new(Source::of(self.owned.as_ref()), Span::all(self.count)))
    }

    /// Declares that a copy writes the buffer.
    pub fn write(&mut self) -> PinnedWrite<'_, T> {
        PinnedWrite(Write::new(Source::of(self.owned.as_ref()), Span::all(self.count)), PhantomData)
    }

    fn start(&self) -> *mut T {
        match &self.owned {
            Some(owned) => std::ptr::with_exposed_provenance_mut(owned.address as usize),
            None => std::ptr::NonNull::dangling().as_ptr(),
        }
    }

    /// Refuses what the host may not do yet. INVARIANT: known-to-host.
    fn check(&self, act: Act, caller: &'static Location<'static>) -> Result<()> {
        process::refuse_forked()?;
        let Some(owned) = &self.owned else { return Ok(()) };
        let (context, allocation) = (&*self.context, &*owned.allocation);
        loop {
            let (base, life) = (hosts::base(), allocation.life());
            let checked = life.history.check_use(act, Part::WHOLE, &*base, true);
            let Err(fault) = checked else { return Ok(()) };
            let Use { point, site: earlier } = fault.earlier;
            let known = (!base.covers(point))
                .then(|| op_at(base.seen(point.chain)).saturating_sub(op_at(point.seq) - earlier.op));
            let later = site(act, StreamId::HOST, 0, caller);
            let mut error: Error = violation(context.number, (allocation, &life), fault, later, known).into();
            let (tracer, has_news) = (context.tracer.as_ref(), |host: &Host| !Arc::ptr_eq(host.base(), &base));
            let noted = Tracer::refused_here(tracer, &error, has_news, |tracer| {
                tracer.host_access(allocation.id, owned.generation, act, caller);
            });
            drop(life);
            if noted != Noted::Anew {
                context.shorten_help(&mut error);
                context.report(&error);
                return Err(error);
            }
        }
    }
}

impl<T> PinnedBuffer<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.count.len()
    }

    /// Returns `true` if the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.count.bytes()
    }

    /// Returns the number of the allocation, as messages have it, or `None` if the buffer is empty.
    pub fn id(&self) -> Option<AllocId> {
        self.owned.as_ref().map(|owned| owned.allocation.id)
    }

    /// Gives the buffer a name, for messages.
    pub fn set_name(&self, name: &str) {
        if let Some(owned) = &self.owned {
            owned.set_name(name);
        }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        let Some(owned) = self.owned.take().filter(|_| !process::is_forked()) else { return };
        let after = owned.allocation.life().history.uses().map(|used| used.point).collect();
        if let Some(tracer) = &self.context.tracer {
            tracer.dropped(owned.allocation.id, owned.generation);
        }
        lock(&self.context.retired).add(Retired { at: owned.address, bytes: self.capacity, after });
    }
}

impl<T> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer({} x {} B", self.len(), size_of::<T>())?;
        self.id().map_or(Ok(()), |id| write!(f, ", {id}"))?;
        f.write_str(")")
    }
}

/// A declared read of pinned memory by a copy: of a buffer, or of a part of it.
#[derive(Debug)]
#[must_use = "it does nothing until it is given to a copy"]
pub struct PinnedRead<'b, T>(pub(crate) Read<'b, T>);

impl<T> Clone for PinnedRead<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PinnedRead<'_, T> {}

/// A declared write of pinned memory by a copy: of a buffer, or of a part of it.
#[derive(Debug)]
#[must_use = "it does nothing until it is given to a copy"]
pub struct PinnedWrite<'b, T>(pub(crate) Write<'b, T>, PhantomData<&'b mut [T]>);

macro_rules! parts {
    ($($name:ident: $new:expr;)*) => {$(
        impl<'b, T> $name<'b, T> {
            /// Returns the number of elements.
            #[allow(clippy::len_without_is_empty)]
            pub fn len(&self) -> usize {
                self.0.len()
            }

            /// Returns a part of the access, as a range of elements.
            ///
            /// # Errors
            /// Returns [`Invalid::Bounds`](crate::error::Invalid::Bounds) if the range is not within the access.
            pub fn slice(self, range: impl RangeBounds<usize>) -> Result<$name<'b, T>> {
                self.0.slice(range).map($new)
            }
        }
    )*};
}

parts! {
    PinnedRead: PinnedRead;
    PinnedWrite: |part| PinnedWrite(part, PhantomData);
}
