//! cuda-core, for the adaptors' shared code.

use std::sync::Arc;

use cuda_core::sys;
use cuda_core::{CudaContext, CudaStream};
use millpond_adaptor::Library;

use crate::error::Error;
use crate::views::{In, Out};

/// cuda-core.
#[derive(Debug)]
pub enum CudaCore {}

// SAFETY: a stream of cuda-core's closes its handle when it is dropped; a borrowed one was promised to stay open
// longer. Contexts are compared by their handles.
unsafe impl Library for CudaCore {
    type Context = CudaContext;
    type Stream = CudaStream;
    type Error = Error;
    type In<'s, T> = In<'s, T>;
    type Out<'s, T> = Out<'s, T>;

    fn open(ordinal: u32) -> Result<Arc<CudaContext>, Error> {
        Ok(CudaContext::new(ordinal as usize)?)
    }

    fn ordinal(context: &CudaContext) -> u32 {
        u32::try_from(context.ordinal()).unwrap_or(u32::MAX)
    }

    fn is_primary(context: &CudaContext) -> bool {
        let mut primary = std::ptr::null_mut();
        // SAFETY: a local for the context, and the device of the given context.
        if unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut primary, context.cu_device()) } != 0 {
            return false;
        }
        // SAFETY: it was retained just now.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(context.cu_device()) };
        primary == context.cu_ctx()
    }

    fn new_stream(context: &Arc<CudaContext>) -> Result<Arc<CudaStream>, Error> {
        Ok(context.new_stream()?)
    }

    fn is_of(stream: &CudaStream, context: &CudaContext) -> bool {
        **stream.context() == *context
    }

    fn native(stream: &CudaStream) -> u64 {
        stream.cu_stream() as u64
    }
}
