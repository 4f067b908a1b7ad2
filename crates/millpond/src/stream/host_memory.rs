//! Host memory that copies read and write as they run: [`PinnedBuffer`] (CUDA: page-locked memory).
//!
//! It is memory with a life like any other: copies are uses at points of their streams, judged by the same law as uses
//! of device memory (`operations/pinned.rs`). The host is one more party. It reads and writes by slices, and is asked
//! the same when it takes one, as a party that comes after what it has synchronised with. So a slice is never of bytes
//! that a copy may still write, nor a mutable one of bytes that a copy may still read.
//!
//! What may come while a slice is there Rust's borrows say: a copy into the memory takes the buffer mutably, a copy
//! from it shares it. So the host's own uses need not be kept in the life: they have ended when the next copy is
//! submitted. There is no view and no access for launches: memory is named by who has the buffer, and only copies use
//! it.
//!
//! Dropping it waits for nothing and calls no driver: the memory is laid aside with the points that it is free after
//! (`retired.rs`). A later buffer of about that size takes it once all those have completed, and `Device::synchronize`
//! gives the rest back. What is left on a lost device goes with its driver, once nothing runs. The buffer keeps its
//! device; a capture takes no such copies; a forked process is refused all of it.
//!
//! Invariants: **known-to-host**: a slice is made only once the host knows that each conflicting copy has completed,
//! which it learns only from the device; **pinned-after-copies**: memory is used again, or given back, only once all
//! copies of it have completed.

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

/// `len` elements of host memory, owned, that copies read and write in stream order (CUDA: `cudaMallocHost`).
///
/// [`Stream::copy_from_pinned`](crate::Stream::copy_from_pinned) and
/// [`copy_to_pinned`](crate::Stream::copy_to_pinned) return at once, and stage nothing. The host reads and writes it by
/// slices. A slice of what a copy may still use is refused, with that copy and what to wait for:
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
/// Dropping it waits for nothing. Where copies may still run, the memory stays until they have completed.
///
/// A [trace](crate::config::Trace) has the copies, and the slices that were refused, not those that were taken.
pub struct PinnedBuffer<T> {
    owned: Option<Owned>,
    /// How much memory that is.
    capacity: u64,
    context: Arc<Context>,
    count: Count<T>,
    /// It is sent and shared as elements are: the host uses them on whichever thread it has it.
    element: PhantomData<T>,
}

impl<T: Pod> PinnedBuffer<T> {
    /// No memory.
    pub(crate) fn empty(context: &Arc<Context>, count: Count<T>) -> Self {
        Self { owned: None, capacity: 0, context: Arc::clone(context), count, element: PhantomData }
    }

    /// Over memory that is the caller's alone: `capacity` bytes from `at`, initialised.
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
            tracer.pinned(number.id, generation, count.bytes(), caller);
        }
        let owned = Some(Owned { allocation: Arc::new(allocation), generation, address: at });
        Self { owned, capacity, context: Arc::clone(context), count, element: PhantomData }
    }

    /// The elements, to be read. The borrow keeps copies into them away.
    ///
    /// # Errors
    /// A violation where a copy into them is not known to have completed: synchronise with its stream, or with an event
    /// recorded after it, first.
    #[track_caller]
    pub fn as_slice(&self) -> Result<&[T]> {
        self.check(Act::Read, Location::caller())?;
        // SAFETY: initialised memory of so many elements, aligned to 512 B (no `T` of a `Count` asks for more), that is
        // this buffer's alone; any bytes are a `T: Pod`. No copy writes it: each that did has completed
        // (known-to-host), and no other can be submitted while this borrow is there.
        Ok(unsafe { std::slice::from_raw_parts(self.start(), self.len()) })
    }

    /// The elements, to be read and written. The borrow keeps all copies away.
    ///
    /// # Errors
    /// As of [`as_slice`](Self::as_slice), and for copies from them as well.
    #[track_caller]
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.check(Act::Write, Location::caller())?;
        // SAFETY: as above; no copy reads it either.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start(), self.len()) })
    }

    /// Declares that a copy reads it.
    pub fn read(&self) -> PinnedRead<'_, T> {
        PinnedRead(Read::new(Source::of(self.owned.as_ref()), Span::all(self.count)))
    }

    /// Declares that a copy writes it.
    pub fn write(&mut self) -> PinnedWrite<'_, T> {
        PinnedWrite(Write::new(Source::of(self.owned.as_ref()), Span::all(self.count)), PhantomData)
    }

    fn start(&self) -> *mut T {
        match &self.owned {
            Some(owned) => std::ptr::with_exposed_provenance_mut(owned.address as usize),
            None => std::ptr::NonNull::dangling().as_ptr(),
        }
    }

    /// Whether the host may do this now. INVARIANT: known-to-host.
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
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.count.len()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.count.bytes()
    }

    /// The number of its allocation, as messages give it; `None` where it is empty.
    pub fn id(&self) -> Option<AllocId> {
        self.owned.as_ref().map(|owned| owned.allocation.id)
    }

    /// Gives it a name, for messages.
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

/// Pinned memory that a copy reads: of a buffer, or of a part of it.
#[derive(Debug)]
#[must_use = "it does nothing until it is given to a copy"]
pub struct PinnedRead<'b, T>(pub(crate) Read<'b, T>);

impl<T> Clone for PinnedRead<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PinnedRead<'_, T> {}

/// Pinned memory that a copy writes: of a buffer, or of a part of it.
#[derive(Debug)]
#[must_use = "it does nothing until it is given to a copy"]
pub struct PinnedWrite<'b, T>(pub(crate) Write<'b, T>, PhantomData<&'b mut [T]>);

macro_rules! parts {
    ($($name:ident: $new:expr;)*) => {$(
        impl<'b, T> $name<'b, T> {
            /// The number of elements.
            #[allow(clippy::len_without_is_empty)]
            pub fn len(&self) -> usize {
                self.0.len()
            }

            /// A part of it, by elements.
            ///
            /// # Errors
            /// [`Invalid::Bounds`](crate::error::Invalid::Bounds) where the range does not lie within.
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
