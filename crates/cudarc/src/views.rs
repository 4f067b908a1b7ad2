//! Declared memory as cudarc's arguments: [`In`] for what is read, [`Out`] for what is written.
//!
//! They stand for `CudaView` and `CudaViewMut`, without cudarc's events: Millpond has ordered the work before they are
//! made. Only the stream that it was declared on may use them for free; where cudarc asks on behalf of another stream,
//! that one is put after this one, and is waited for.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop};
use millpond::raw::Elements;
use millpond::{Access, Read, Write};

/// Accesses that can be declared to [`Stream::run`](crate::Stream::run): those of Millpond, alone, in tuples and in
/// arrays.
pub trait Views: Access {
    /// What the closure gets: [`In`] for a read, [`Out`] for a write.
    type Views<'s>;

    /// Makes them, where the memory is known.
    #[doc(hidden)]
    fn views<'s>(place: Self::Place, stream: &'s Arc<CudaStream>) -> Self::Views<'s>;
}

macro_rules! views {
    ($(#[$doc:meta])* $name:ident, $access:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<'s, T> {
            address: CUdeviceptr,
            len: usize,
            stream: &'s Arc<CudaStream>,
            element: PhantomData<fn() -> T>,
        }

        impl<T: Pod> Views for $access<'_, T> {
            type Views<'s> = $name<'s, T>;

            fn views<'s>(place: Elements<T>, stream: &'s Arc<CudaStream>) -> $name<'s, T> {
                $name { address: place.address, len: place.len, stream, element: PhantomData }
            }
        }

        impl<T> $name<'_, T> {
            /// The number of elements.
            pub fn len(&self) -> usize {
                self.len
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// Where a part begins, and its length; `None` where it does not lie within.
            fn part(&self, range: impl RangeBounds<usize>) -> Option<(CUdeviceptr, usize)> {
                let start = match range.start_bound() {
                    Bound::Included(start) => *start,
                    Bound::Excluded(start) => start.checked_add(1)?,
                    Bound::Unbounded => 0,
                };
                let end = match range.end_bound() {
                    Bound::Included(end) => end.checked_add(1)?,
                    Bound::Excluded(end) => *end,
                    Bound::Unbounded => self.len,
                };
                let is_within = start <= end && end <= self.len;
                is_within.then(|| (self.address + (start * size_of::<T>()) as u64, end - start))
            }

            /// A part of it to read, by elements; `None` where the range does not lie within.
            pub fn try_slice(&self, range: impl RangeBounds<usize>) -> Option<In<'_, T>> {
                let (address, len) = self.part(range)?;
                Some(In { address, len, stream: self.stream, element: PhantomData })
            }

            /// What puts work of another stream between what is declared before and after; nothing for the own stream.
            fn visit<'a>(&self, stream: &'a CudaStream) -> SyncOnDrop<'a> {
                if *stream == **self.stream {
                    return SyncOnDrop::Record(None);
                }
                stream.context().record_err(stream.join(self.stream));
                SyncOnDrop::sync_stream(stream)
            }
        }

        impl<T> DeviceSlice<T> for $name<'_, T> {
            fn len(&self) -> usize {
                self.len
            }

            fn stream(&self) -> &Arc<CudaStream> {
                self.stream
            }
        }

        impl<T> DevicePtr<T> for $name<'_, T> {
            fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
                (self.address, self.visit(stream))
            }
        }
    };
}

views! {
    /// Memory that was declared to be read: cudarc takes it where it takes a `CudaView`.
    In, Read
}

views! {
    /// Memory that was declared to be written, or read and written: cudarc takes it where it takes a `CudaViewMut`.
    Out, Write
}

impl<T> Clone for In<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<'_, T> {}

impl<T> Out<'_, T> {
    /// A part of it to write, by elements; `None` where the range does not lie within.
    pub fn try_slice_mut(&mut self, range: impl RangeBounds<usize>) -> Option<Out<'_, T>> {
        let (address, len) = self.part(range)?;
        Some(Out { address, len, stream: self.stream, element: PhantomData })
    }

    /// Two parts of it to write, before and from an element on; `None` where there are fewer elements.
    pub fn try_split_at_mut(&mut self, middle: usize) -> Option<(Out<'_, T>, Out<'_, T>)> {
        let stream = self.stream;
        let out = |(address, len)| Out { address, len, stream, element: PhantomData };
        Some((out(self.part(..middle)?), out(self.part(middle..)?)))
    }
}

impl<T> DevicePtrMut<T> for Out<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        (self.address, self.visit(stream))
    }
}

// SAFETY: what is pushed is a reference to an address, as cudarc's own implementation for numbers pushes it; it lives
// as long as the arguments do.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b In<'_, T>> for LaunchArgs<'a> {
    fn arg(&mut self, arg: &'b In<'_, T>) -> &mut Self {
        self.arg(&arg.address)
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut Out<'_, T>> for LaunchArgs<'a> {
    fn arg(&mut self, arg: &'b mut Out<'_, T>) -> &mut Self {
        self.arg(&arg.address)
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*))*) => {$(
        impl<$($name: Views),*> Views for ($($name,)*) {
            type Views<'s> = ($($name::Views<'s>,)*);

            #[allow(unused_variables, clippy::unused_unit)]
            fn views<'s>(place: Self::Place, stream: &'s Arc<CudaStream>) -> Self::Views<'s> {
                ($($name::views(place.$index, stream),)*)
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

impl<A: Views, const N: usize> Views for [A; N] {
    type Views<'s> = [A::Views<'s>; N];

    fn views<'s>(place: Self::Place, stream: &'s Arc<CudaStream>) -> Self::Views<'s> {
        place.map(|place| A::views(place, stream))
    }
}
