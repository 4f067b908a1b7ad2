//! Accesses: the uses of memory that a launch declares, and the slices that it gets for them.
//!
//! Declaring an access is the only way from a buffer to its bytes. Depends on allocations and addresses. Accesses are
//! checked in `operations/launch.rs`, before any slice is made. This is one of the files of this crate with `unsafe`:
//! it makes slices of checked memory.
//!
//! Invariant **exclusive-write**: while a launch that writes bytes of an allocation runs, no other work of the device
//! touches them. Unordered conflicting uses are refused when they are declared, and one launch may not both write bytes
//! and otherwise use them.

use std::marker::PhantomData;
use std::ops::RangeBounds;

use bytemuck::Pod;
use millpond_core::check::Act;
use millpond_core::op::Part;
use smallvec::SmallVec;

use crate::names::count::Span;
use crate::names::error::Result;
use crate::state::allocation::Owned;
use crate::state::named::Named;
use crate::state::named::NodeName;
use crate::state::running::Running;

/// A list that is short for nearly all launches.
pub(crate) type Few<T> = SmallVec<[T; 4]>;

/// The memory of an access: a buffer at hand, or a name to look up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'b> {
    /// No memory, for elements without bytes: an empty buffer.
    Empty,
    /// No memory, for elements that have bytes: refused.
    Nothing,
    Owned(&'b Owned),
    Named(Option<Named>),
    /// The memory of an alloc node: in a graph the memory that a launch will allocate, otherwise the memory that is
    /// live now.
    Node(NodeName),
}

impl<'b> Source<'b> {
    #[inline]
    pub(crate) fn of(owned: Option<&'b Owned>) -> Self {
        owned.map_or(Source::Empty, Source::Owned)
    }
}

/// One declared access, without its type.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'b> {
    pub(crate) act: Act,
    pub(crate) source: Source<'b>,
    /// The bytes of the allocation. Without any it is not an access.
    pub(crate) part: Option<Part>,
}

/// Declared elements on the device: their address and number, for kernels that take addresses.
#[derive(Debug, PartialEq, Eq)]
pub struct Elements<T> {
    /// The address of the first element, or 0 if there are none.
    pub address: u64,
    /// The number of elements.
    pub len: usize,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for Elements<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Elements<T> {}

/// An access that can be declared to a launch: [`Read`], [`Write`], and tuples, arrays or vectors of them.
///
/// Sealed: the slices are sound because only this crate defines what they are made of.
#[diagnostic::on_unimplemented(
    message = "`{Self}` declares no access to memory",
    label = "not `x.read()`, `x.write()`, or several of them",
    note = "a launch takes `x.read()` or `x.write()` of buffers and views, tuples of up to eight, arrays and vectors"
)]
pub trait Access: sealed::Sealed {
    /// The argument of the closure: `&[T]` for a read, `&mut [T]` for a write.
    type Slice<'a>;
    /// The argument of a foreign kernel: addresses and lengths.
    type Place: Clone + Send + 'static;

    /// Passes each access to `tell`, in order.
    #[doc(hidden)]
    fn declare<'s>(&'s self, tell: &mut dyn FnMut(Declared<'s>));

    /// Returns the places, given the address of each declared access in order.
    #[doc(hidden)]
    fn place(&self, address: &mut dyn FnMut() -> u64) -> Self::Place;

    /// Returns the same places with other addresses, one for each declared access in order.
    #[doc(hidden)]
    fn moved(place: Self::Place, address: &mut dyn FnMut() -> u64) -> Self::Place;

    /// Passes each slice at the places to `tell`: its address, its bytes, and `true` if it may be written.
    #[doc(hidden)]
    fn ranges(place: &Self::Place, tell: &mut dyn FnMut(u64, u64, bool));

    /// Makes the slices at the places.
    ///
    /// # Safety
    /// For `'a` the memory is mapped, no other work writes it, and for a [`Write`] no other work reads it
    /// (exclusive-write).
    #[doc(hidden)]
    unsafe fn slices<'a>(place: Self::Place) -> Self::Slice<'a>;
}

/// Returns the places of accesses at the addresses of what they declared.
#[inline]
pub(crate) fn placed<A: Access>(accesses: &A, addresses: impl Iterator<Item = u64>) -> A::Place {
    in_order(addresses, |address| accesses.place(address))
}

/// Passes one address to each declared access. One too few or too many would make slices of other memory.
#[inline]
fn in_order<R>(mut addresses: impl Iterator<Item = u64>, give: impl FnOnce(&mut dyn FnMut() -> u64) -> R) -> R {
    let given = give(&mut || addresses.next().expect("an address for each access"));
    assert!(addresses.next().is_none(), "each address is for one access");
    given
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

macro_rules! access {
    ($(#[$doc:meta])* $name:ident, $act:expr, $slice:ty, $make:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[must_use = "an access does nothing until it is given to a launch"]
        pub struct $name<'b, T> {
            source: Source<'b>,
            span: Span<T>,
        }

        impl<'b, T> $name<'b, T> {
            #[inline]
            pub(crate) fn new(source: Source<'b>, span: Span<T>) -> Self {
                Self { source, span }
            }

            /// Returns a part of the access, as a range of elements. This is for memory that has no
            /// [`View`](crate::View), such as the memory of an alloc node.
            ///
            /// # Errors
            /// Returns an error if the range is not within the access.
            pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
                Ok(Self { span: self.span.range(range)?, ..self })
            }

            /// Returns the size of the declared elements, in bytes.
            pub(crate) fn bytes(&self) -> u64 {
                self.span.count().bytes()
            }

            /// Returns the number of declared elements.
            #[allow(clippy::len_without_is_empty)]
            pub fn len(&self) -> usize {
                self.span.count().len()
            }
        }

        impl<T> Clone for $name<'_, T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<'_, T> {}

        impl<T: Pod> sealed::Sealed for $name<'_, T> {}

        impl<T: Pod> Access for $name<'_, T> {
            type Slice<'a> = $slice;
            type Place = Elements<T>;

            #[inline]
            fn declare<'s>(&'s self, tell: &mut dyn FnMut(Declared<'s>)) {
                tell(Declared { act: $act, source: self.source, part: self.span.part() });
            }

            #[inline]
            fn place(&self, address: &mut dyn FnMut() -> u64) -> Elements<T> {
                Elements { address: address(), len: self.span.count().len(), element: PhantomData }
            }

            fn moved(place: Elements<T>, address: &mut dyn FnMut() -> u64) -> Elements<T> {
                Elements { address: address(), ..place }
            }

            fn ranges(place: &Elements<T>, tell: &mut dyn FnMut(u64, u64, bool)) {
                tell(place.address, (place.len * size_of::<T>()) as u64, $act == Act::Write);
            }

            #[inline]
            unsafe fn slices<'a>(place: Elements<T>) -> $slice {
                // Elements without bytes have no memory, whatever the length.
                let start = match place.address {
                    0 => std::ptr::NonNull::<T>::dangling().as_ptr(),
                    _ => place.address as *mut T,
                };
                // SAFETY: the address is that of `len` elements of a live block, aligned to the grain of 512 B or more
                // (countable), and any bytes are a `T: Pod`. The caller promises the rest (exclusive-write).
                unsafe { $make(start, place.len) }
            }
        }
    };
}

access! {
    /// A declared read: the launch gets `&[T]`.
    Read, Act::Read, &'a [T], |start: *mut T, len| std::slice::from_raw_parts(start.cast_const(), len)
}

access! {
    /// A declared write, or read and write: the launch gets `&mut [T]`.
    Write, Act::Write, &'a mut [T], |start: *mut T, len| std::slice::from_raw_parts_mut(start, len)
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*))*) => {$(
        impl<$($name: Access),*> sealed::Sealed for ($($name,)*) {}

        #[allow(unused_variables, clippy::unused_unit)]
        impl<$($name: Access),*> Access for ($($name,)*) {
            type Slice<'a> = ($($name::Slice<'a>,)*);
            type Place = ($($name::Place,)*);

            #[inline]
            fn declare<'s>(&'s self, tell: &mut dyn FnMut(Declared<'s>)) {
                $(self.$index.declare(tell);)*
            }

            #[inline]
            fn place(&self, address: &mut dyn FnMut() -> u64) -> Self::Place {
                ($(self.$index.place(address),)*)
            }

            fn moved(place: Self::Place, address: &mut dyn FnMut() -> u64) -> Self::Place {
                ($($name::moved(place.$index, address),)*)
            }

            fn ranges(place: &Self::Place, tell: &mut dyn FnMut(u64, u64, bool)) {
                $($name::ranges(&place.$index, tell);)*
            }

            #[inline]
            unsafe fn slices<'a>(place: Self::Place) -> Self::Slice<'a> {
                ($(
                    // SAFETY: the caller's promise holds for each part.
                    unsafe { $name::slices(place.$index) },
                )*)
            }
        }
    )*};
}

tuples! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

impl<A: Access, const N: usize> sealed::Sealed for [A; N] {}

impl<A: Access, const N: usize> Access for [A; N] {
    type Slice<'a> = [A::Slice<'a>; N];
    type Place = [A::Place; N];

    fn declare<'s>(&'s self, tell: &mut dyn FnMut(Declared<'s>)) {
        self.iter().for_each(|access| access.declare(tell));
    }

    fn place(&self, address: &mut dyn FnMut() -> u64) -> Self::Place {
        std::array::from_fn(|i| self[i].place(address))
    }

    fn moved(place: Self::Place, address: &mut dyn FnMut() -> u64) -> Self::Place {
        place.map(|place| A::moved(place, address))
    }

    fn ranges(place: &Self::Place, tell: &mut dyn FnMut(u64, u64, bool)) {
        place.iter().for_each(|place| A::ranges(place, tell));
    }

    unsafe fn slices<'a>(place: Self::Place) -> Self::Slice<'a> {
        place.map(|place| {
            // SAFETY: the caller's promise holds for each part.
            unsafe { A::slices(place) }
        })
    }
}

impl<A: Access> sealed::Sealed for Vec<A> {}

impl<A: Access> Access for Vec<A> {
    type Slice<'a> = Vec<A::Slice<'a>>;
    type Place = Vec<A::Place>;

    fn declare<'s>(&'s self, tell: &mut dyn FnMut(Declared<'s>)) {
        self.iter().for_each(|access| access.declare(tell));
    }

    fn place(&self, address: &mut dyn FnMut() -> u64) -> Self::Place {
        self.iter().map(|access| access.place(address)).collect()
    }

    fn moved(place: Self::Place, address: &mut dyn FnMut() -> u64) -> Self::Place {
        place.into_iter().map(|place| A::moved(place, address)).collect()
    }

    fn ranges(place: &Self::Place, tell: &mut dyn FnMut(u64, u64, bool)) {
        place.iter().for_each(|place| A::ranges(place, tell));
    }

    unsafe fn slices<'a>(place: Self::Place) -> Self::Slice<'a> {
        let slices = place.into_iter().map(|place| {
            // SAFETY: the caller's promise holds for each part.
            unsafe { A::slices(place) }
        });
        slices.collect()
    }
}

/// Makes the closure that runs a kernel with its slices at every launch of a graph.
pub(crate) fn repeated<A: Access>(
    place: A::Place,
    mut kernel: impl for<'a> FnMut(A::Slice<'a>) + Send + 'static,
) -> Box<dyn FnMut() + Send> {
    Box::new(move || {
        let _running = Running::of::<A>(&place);
        // SAFETY: as for `task`: each launch of the graph is checked and recorded, and no instance overlaps itself.
        kernel(unsafe { A::slices(place.clone()) });
    })
}

/// A kernel that runs with the addresses of its accesses, given in order.
pub(crate) type Movable = Box<dyn FnMut(&[u64]) + Send>;

/// Makes a kernel whose places are given by each instance of a graph.
pub(crate) fn movable<A: Access>(
    place: A::Place,
    mut kernel: impl for<'a> FnMut(A::Slice<'a>) + Send + 'static,
) -> Movable {
    Box::new(move |addresses| {
        let place = in_order(addresses.iter().copied(), |address| A::moved(place.clone(), address));
        let _running = Running::of::<A>(&place);
        // SAFETY: as for `repeated`, at the addresses of the instance that was launched.
        kernel(unsafe { A::slices(place) });
    })
}

/// Returns the closure of a launch, with its slices, ready to run on the device.
pub(crate) fn task<'k, A: Access>(
    place: A::Place,
    kernel: impl for<'a> FnOnce(A::Slice<'a>) + Send + 'k,
) -> Box<dyn FnOnce() + Send + 'k> {
    Box::new(move || {
        let _running = Running::of::<A>(&place);
        // SAFETY: the launch was checked before it was submitted, and it is recorded before the locks of its memory are
        // released. So its memory is live until after it, and what conflicts with it is ordered before or after
        // (exclusive-write). The slices do not outlive the call.
        kernel(unsafe { A::slices(place) });
    })
}
