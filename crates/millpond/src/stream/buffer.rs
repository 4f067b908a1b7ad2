//! The owner of memory, and the name of it: [`Buffer`] and [`View`].
//!
//! A buffer owns one lifetime of an allocation and ends it. A view is a plain value that names the lifetime and can be
//! stale. Neither gives access to bytes: a launch or a copy does, for declared accesses (`access.rs`).

use std::ops::RangeBounds;

use millpond_core::ids::AllocId;

use crate::names::count::{Count, Span};
use crate::names::error::Result;
use crate::state::access::{Read, Source, Write};
use crate::state::allocation::Owned;
use crate::state::named::Named;
use crate::state::origin::Origin;
use crate::state::pool::PoolShared;

/// A buffer of device memory for `len` elements. It owns the memory.
///
/// [`Stream::free`](crate::Stream::free) checks the free, and returns the buffer if it is refused. Dropping the buffer
/// frees it after all uses declared so far. A drop never waits, never fails, and orders nothing.
///
/// A buffer without elements has no memory and the null address, as in CUDA.
///
/// ```
/// # use millpond::{Device, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default())?;
/// let (stream, other) = (device.stream()?, device.stream()?);
/// let x = stream.alloc::<f32>(&device.default_pool(), 256)?;
/// assert_eq!((x.len(), x.bytes()), (256, 1024));
/// let refused = other.free(x).unwrap_err(); // nothing orders `other` after the allocation
/// let x = refused.buffer;
/// other.wait(&stream.record()?)?;
/// other.free(x)?;
/// # Ok(())
/// # }
/// ```
pub struct Buffer<T> {
    owned: Option<Owned>,
    count: Count<T>,
}

impl<T> Buffer<T> {
    pub(crate) const EMPTY: Self = Self { owned: None, count: Count::NONE };

    #[inline]
    pub(crate) fn new(owned: Option<Owned>, count: Count<T>) -> Self {
        Self { owned, count }
    }

    /// Takes the owned lifetime out, so that nothing is left to drop.
    #[inline]
    pub(crate) fn into_owned(mut self) -> (Option<Owned>, Count<T>) {
        (self.owned.take(), self.count)
    }

    /// Returns the place of the owned lifetime, for a caller that takes it out.
    #[inline]
    pub(crate) fn place(&mut self) -> &mut Option<Owned> {
        &mut self.owned
    }

    /// Makes the buffer empty after its lifetime was taken out of its [`place`](Self::place).
    #[inline]
    pub(crate) fn was_taken_out(&mut self) {
        self.count = Count::NONE;
    }

    /// Returns the lifetime that the buffer owns, or `None` if the buffer is empty.
    #[inline]
    pub(crate) fn owned(&self) -> Option<&Owned> {
        self.owned.as_ref()
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.count.len()
    }

    /// Returns `true` if the buffer has no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.count.bytes()
    }

    /// Returns the device address of the first element, or 0 if the buffer is empty.
    #[inline]
    pub fn address(&self) -> u64 {
        self.owned.as_ref().map_or(0, |owned| owned.address)
    }

    /// Returns the number of the allocation, as messages have it, or `None` if the buffer is empty.
    pub fn id(&self) -> Option<AllocId> {
        self.owned.as_ref().map(|owned| owned.allocation.id)
    }

    /// Gives the buffer a name, for messages. If it was allocated in a capture, its alloc node gets the name, too.
    pub fn set_name(&self, name: &str) {
        if let Some(owned) = &self.owned {
            owned.set_name(name);
        }
    }

    /// Returns a view of the buffer: a name for this lifetime of the allocation that can be copied.
    pub fn view(&self) -> View<T> {
        let named = self.owned.as_ref().map(|owned| Named {
            device: owned.allocation.device,
            id: owned.allocation.id,
            pool: match &owned.allocation.origin {
                Origin::Pool(pool) => Some(pool.id),
                _ => None,
            },
            index: owned.allocation.index,
            generation: owned.generation,
            address: owned.address,
        });
        View { named, span: Span::all(self.count) }
    }

    /// Returns a view of a part of the buffer, as a range of elements. Uses of different elements need no order, also
    /// within one launch:
    ///
    /// ```
    /// # use millpond::{Device, HostConfig};
    /// # fn main() -> Result<(), millpond::Error> {
    /// let device = Device::host(HostConfig::default())?;
    /// let stream = device.stream()?;
    /// let x = stream.alloc::<f32>(&device.default_pool(), 100)?;
    /// stream.memset(x.write(), 0)?;
    /// let (first, rest) = x.split_at(40)?;
    /// stream.launch((first.write(), rest.write()), |(first, rest)| {
    ///     first.fill(1.0);
    ///     rest.fill(2.0);
    /// })?;
    /// assert_eq!(stream.copy_to_host(x.slice(39..41)?.read())?, [1.0, 2.0]);
    /// stream.free(x)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Invalid::Bounds`](crate::error::Invalid::Bounds) if the range is not within the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<View<T>> {
        self.view().slice(range)
    }

    /// Returns a view of the elements before `mid`, and a view of the others.
    ///
    /// # Errors
    /// As for [`slice`](Self::slice).
    pub fn split_at(&self, mid: usize) -> Result<(View<T>, View<T>)> {
        self.view().split_at(mid)
    }

    /// Declares that a launch reads the buffer.
    #[inline]
    pub fn read(&self) -> Read<'_, T> {
        Read::new(Source::of(self.owned.as_ref()), Span::all(self.count))
    }

    /// Declares that a launch writes the buffer, or reads and writes it.
    #[inline]
    pub fn write(&self) -> Write<'_, T> {
        Write::new(Source::of(self.owned.as_ref()), Span::all(self.count))
    }

    /// Gives up ownership and returns the address, to be freed with
    /// [`Stream::free_address`](crate::Stream::free_address) (CUDA: a plain device pointer).
    ///
    /// The allocation stays live without an owner. Until it is freed it keeps its pool and its device open, also after
    /// their last handles are dropped: memory, threads and files of the whole device. An address that is never freed
    /// keeps them until the process ends, as [`mem::forget`](std::mem::forget) of a buffer does. An import is released
    /// with its device.
    pub fn into_address(self) -> u64 {
        let address = self.address();
        self.into_owned();
        address
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            PoolShared::drop_allocation(owned);
        }
    }
}

/// A name for one lifetime of an allocation, or for a range of its elements. It is a plain value: it owns nothing and
/// can outlive the memory that it names. A use of it is then refused.
///
/// ```
/// # use millpond::{Device, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default())?;
/// let stream = device.stream()?;
/// let x = stream.alloc::<u32>(&device.default_pool(), 8)?;
/// let (all, tail) = (x.view(), x.slice(6..)?);
/// stream.memset(all.write(), 0)?;
/// stream.launch(tail.write(), |tail| tail.fill(7))?;
/// assert_eq!(stream.copy_to_host(all.read())?, [0, 0, 0, 0, 0, 0, 7, 7]);
/// stream.free(x)?;
/// assert!(stream.memset(tail.write(), 0).is_err(), "what it names is freed");
/// # Ok(())
/// # }
/// ```
pub struct View<T> {
    pub(crate) named: Option<Named>,
    pub(crate) span: Span<T>,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<T> {}

impl<T> View<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.span.count().len()
    }

    /// Returns `true` if the view has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a view of a part of the elements. Only uses of the same elements need an order.
    ///
    /// # Errors
    /// Returns [`Invalid::Bounds`](crate::error::Invalid::Bounds) if the range is not within the view.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<View<T>> {
        Ok(View { span: self.span.range(range)?, ..*self })
    }

    /// Returns a view of the elements before `mid`, and a view of the others.
    ///
    /// # Errors
    /// As for [`slice`](Self::slice).
    pub fn split_at(&self, mid: usize) -> Result<(View<T>, View<T>)> {
        Ok((self.slice(..mid)?, self.slice(mid..)?))
    }

    /// Declares that a launch reads the elements.
    pub fn read(&self) -> Read<'static, T> {
        Read::new(Source::Named(self.named), self.span)
    }

    /// Declares that a launch writes the elements, or reads and writes them.
    pub fn write(&self) -> Write<'static, T> {
        Write::new(Source::Named(self.named), self.span)
    }
}
