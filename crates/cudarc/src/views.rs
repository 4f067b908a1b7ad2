//! Declared memory as cudarc's arguments: [`In`] for a read, [`Out`] for a write.
//!
//! They replace `CudaView` and `CudaViewMut`, without cudarc's events: Millpond has ordered the work before they are
//! made. They cost nothing on the stream that the memory was declared on. If cudarc asks on behalf of another stream,
//! that stream is made to wait for this one, and its work is waited for.

use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop};

millpond_adaptor::views! {
    CudaStream;
    /// Memory that was declared as read. cudarc takes it wherever it takes a `CudaView`.
    In;
    /// Memory that was declared as written, or as read and written. cudarc takes it wherever it takes a `CudaViewMut`.
    Out;
}

macro_rules! pointers {
    ($name:ident) => {
        impl<T> $name<'_, T> {
            /// Puts work of another stream between the work that is declared before and after; does nothing for the own
            /// stream.
            fn visit<'a>(&self, stream: &'a CudaStream) -> SyncOnDrop<'a> {
                if *stream == **self.0.stream() {
                    return SyncOnDrop::Record(None);
                }
                stream.context().record_err(stream.join(self.0.stream()));
                SyncOnDrop::sync_stream(stream)
            }
        }

        impl<T> DeviceSlice<T> for $name<'_, T> {
            fn len(&self) -> usize {
                self.0.len()
            }

            fn stream(&self) -> &Arc<CudaStream> {
                self.0.stream()
            }
        }

        impl<T> DevicePtr<T> for $name<'_, T> {
            fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
                (*self.0.address(), self.visit(stream))
            }
        }
    };
}

pointers!(In);
pointers!(Out);

impl<T> DevicePtrMut<T> for Out<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        (*self.0.address(), self.visit(stream))
    }
}

// SAFETY: the pushed value is a reference to an address, as cudarc's own implementation for numbers pushes it, and it
// lives as long as the arguments do.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b In<'_, T>> for LaunchArgs<'a> {
    fn arg(&mut self, arg: &'b In<'_, T>) -> &mut Self {
        self.arg(arg.0.address())
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut Out<'_, T>> for LaunchArgs<'a> {
    fn arg(&mut self, arg: &'b mut Out<'_, T>) -> &mut Self {
        self.arg(arg.0.address())
    }
}
