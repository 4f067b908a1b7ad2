//! Declared memory as cudarc's arguments: [`In`] for what is read, [`Out`] for what is written.
//!
//! They stand for `CudaView` and `CudaViewMut`, without cudarc's events: Millpond has ordered the work before they are
//! made. Only the stream that it was declared on may use them for free; where cudarc asks on behalf of another stream,
//! that one is put after this one, and is waited for.

use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop};

millpond_adaptor::views! {
    CudaStream;
    /// Memory that was declared to be read: cudarc takes it where it takes a `CudaView`.
    In;
    /// Memory that was declared to be written, or read and written: cudarc takes it where it takes a `CudaViewMut`.
    Out;
}

macro_rules! pointers {
    ($name:ident) => {
        impl<T> $name<'_, T> {
            /// What puts work of another stream between what is declared before and after; nothing for the own stream.
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

// SAFETY: what is pushed is a reference to an address, as cudarc's own implementation for numbers pushes it; it lives
// as long as the arguments do.
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
