//! cudarc, for the adaptors' shared code.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use millpond_adaptor::Library;

use crate::error::Error;
use crate::views::{In, Out};

/// cudarc.
#[derive(Debug)]
pub enum Cudarc {}

// SAFETY: a `CudaStream` closes its stream when it is dropped, and contexts are compared by their handles.
unsafe impl Library for Cudarc {
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
        context.is_primary()
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
