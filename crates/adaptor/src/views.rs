//! Declared memory as the library's arguments. Each adaptor has `In` for a read and `Out` for a write, made by
//! [`views!`](crate::views) around a [`Part`], so that they can implement the library's traits.
//!
//! They live as long as the closure that gets them.

use std::sync::Arc;

use bytemuck::Pod;
use millpond::raw::Elements;
use millpond::{Access, Read, Write};

use crate::library::Library;
use crate::part::Part;

/// Accesses that can be declared to [`Stream::run`](crate::Stream::run): Millpond's accesses, alone, in tuples and in
/// arrays.
pub trait Views<L: Library>: Access {
    /// The closure's argument: the adaptor's `In` for a read, its `Out` for a write.
    type Views<'s>;

    /// Makes the arguments, once the memory is known.
    ///
    /// # Safety
    /// The access was declared on this stream, and the memory is used through them only at this point of the stream.
    #[doc(hidden)]
    unsafe fn views<'s>(place: Self::Place, stream: &'s Arc<L::Stream>) -> Self::Views<'s>;
}

macro_rules! access {
    ($access:ident, $view:ident) => {
        impl<L: Library, T: Pod> Views<L> for $access<'_, T> {
            type Views<'s> = L::$view<'s, T>;

            unsafe fn views<'s>(place: Elements<T>, stream: &'s Arc<L::Stream>) -> Self::Views<'s> {
                Part::new(place, stream).into()
            }
        }
    };
}

access!(Read, In);
access!(Write, Out);

macro_rules! tuples {
    ($(($($name:ident $index:tt),*))*) => {$(
        impl<L: Library, $($name: Views<L>),*> Views<L> for ($($name,)*) {
            type Views<'s> = ($($name::Views<'s>,)*);

            #[allow(unused_variables, clippy::unused_unit)]
            unsafe fn views<'s>(place: Self::Place, stream: &'s Arc<L::Stream>) -> Self::Views<'s> {
                // SAFETY: the caller's promise.
                ($(unsafe { $name::views(place.$index, stream) },)*)
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

impl<L: Library, A: Views<L>, const N: usize> Views<L> for [A; N] {
    type Views<'s> = [A::Views<'s>; N];

    unsafe fn views<'s>(place: Self::Place, stream: &'s Arc<L::Stream>) -> Self::Views<'s> {
        // SAFETY: the caller's promise.
        place.map(|place| unsafe { A::views(place, stream) })
    }
}

/// Makes an adaptor's `In` and `Out` for the library's stream, each with the given docs.
#[macro_export]
macro_rules! views {
    ($stream:ty; $(#[$in:meta])* In; $(#[$out:meta])* Out;) => {
        $crate::views!(@ $stream; $(#[$in])* In);
        $crate::views!(@ $stream; $(#[$out])* Out);

        impl<T> Clone for In<'_, T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for In<'_, T> {}

        impl<T> Out<'_, T> {
            /// Returns a part of the memory to write, by elements; `None` if the range does not lie within it.
            pub fn try_slice_mut(&mut self, range: impl ::std::ops::RangeBounds<usize>) -> Option<Out<'_, T>> {
                self.0.slice(range).map(Out)
            }

            /// Returns two parts of the memory to write, before an element and from it on; `None` if there are fewer
            /// elements.
            pub fn try_split_at_mut(&mut self, middle: usize) -> Option<(Out<'_, T>, Out<'_, T>)> {
                Some((Out(self.0.slice(..middle)?), Out(self.0.slice(middle..)?)))
            }
        }
    };
    (@ $stream:ty; $(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<'s, T>($crate::Part<'s, T, $stream>);

        impl<'s, T> From<$crate::Part<'s, T, $stream>> for $name<'s, T> {
            fn from(part: $crate::Part<'s, T, $stream>) -> Self {
                Self(part)
            }
        }

        impl<T> $name<'_, T> {
            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                self.0.len()
            }

            /// Returns `true` if there are no elements.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// Returns a part of the memory to read, by elements; `None` if the range does not lie within it.
            pub fn try_slice(&self, range: impl ::std::ops::RangeBounds<usize>) -> Option<In<'_, T>> {
                self.0.slice(range).map(In)
            }
        }
    };
}
