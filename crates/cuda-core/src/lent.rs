//! Buffers that are lent to cuda-core: it owns them as a foreign allocation, and gives them back by dropping it.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use bytemuck::Pod;
use cuda_core::sys::CUdeviceptr;
use cuda_core::{CudaContext, DeviceAllocation, DeviceBuffer, DeviceCopy, RawDeviceBuffer};
use millpond::Buffer;
use millpond_adaptor::Loan;
use millpond_driver::locks::{Leaf, Mutex, lock};

use crate::error::Error;
use crate::library::CudaCore;

/// The buffers that a context lent, by address.
#[derive(Debug)]
pub(crate) struct Lent(Mutex<Leaf, HashMap<CUdeviceptr, Weak<dyn Any + Send + Sync>>>);

impl Default for Lent {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

/// The owner that cuda-core holds.
struct Owner<T: Pod> {
    /// `Some` until it is taken back.
    loan: Mutex<Leaf, Option<Loan<T, CudaCore>>>,
    address: CUdeviceptr,
    bytes: usize,
    context: Arc<CudaContext>,
}

// SAFETY: the loan keeps the memory until the owner is dropped, or until the last view has given it back; the context
// is kept.
unsafe impl<T: Pod> DeviceAllocation for Owner<T> {
    fn device_ptr(&self) -> CUdeviceptr {
        self.address
    }

    fn len_bytes(&self) -> usize {
        self.bytes
    }

    fn context(&self) -> Arc<CudaContext> {
        Arc::clone(&self.context)
    }
}

impl Lent {
    /// Lends a buffer as a `DeviceBuffer`.
    pub(crate) fn enter<T: Pod + DeviceCopy>(
        &self,
        context: &Arc<CudaContext>,
        loan: Loan<T, CudaCore>,
    ) -> DeviceBuffer<T> {
        let (address, len) = (loan.address(), loan.len());
        let bytes = len * size_of::<T>();
        let owner = Owner { loan: Mutex::new(Some(loan)), address, bytes, context: Arc::clone(context) };
        let owner = Arc::new(owner);
        {
            let any: Arc<dyn Any + Send + Sync> = owner.clone();
            let mut lent = lock(&self.0);
            lent.retain(|_, it| it.strong_count() > 0);
            lent.insert(address, Arc::downgrade(&any));
        }
        let storage = RawDeviceBuffer::foreign(owner, bytes);
        // SAFETY: any bytes are a valid `T: Pod`, and the memory is used through this storage only.
        unsafe { DeviceBuffer::from_storage_copy(storage, len) }.expect("it has as many bytes, aligned for any type")
    }

    /// Ends the loan and returns its buffer.
    #[track_caller]
    pub(crate) fn leave<T: Pod + DeviceCopy>(&self, buffer: DeviceBuffer<T>) -> Result<Buffer<T>, Unreturned<T>> {
        let found = lock(&self.0).get(&buffer.cu_deviceptr()).and_then(Weak::upgrade);
        let owner = found.and_then(|owner| owner.downcast::<Owner<T>>().ok());
        let Some(owner) = owner.filter(|owner| owner.bytes == buffer.num_bytes()) else {
            return Err(Unreturned { error: Error::NotLent, buffer: Some(buffer) });
        };
        let home = lock(&owner.loan).as_ref().map(|loan| loan.home().clone());
        let Some(home) = home else {
            return Err(Unreturned { error: Error::NotLent, buffer: Some(buffer) });
        };
        // Work in flight on other streams holds leases, which conflict with a write on this stream.
        let is_idle = || buffer.storage().acquire(home.theirs(), true, false).is_ok();
        if !buffer.storage().is_unique() || !is_idle() {
            return Err(Unreturned { error: Error::InUse, buffer: Some(buffer) });
        }
        let Some(loan) = lock(&owner.loan).take() else {
            return Err(Unreturned { error: Error::NotLent, buffer: Some(buffer) });
        };
        drop(buffer);
        // Without closures, because those would become the caller in reports.
        let back = match loan.join() {
            Ok(()) => loan.end(),
            Err(error) => Err(error),
        };
        back.map_err(|error| Unreturned { error: error.into(), buffer: None })
    }
}

/// A `DeviceBuffer` that could not be taken back, and the reason.
pub struct Unreturned<T> {
    /// The reason.
    pub error: Error,
    /// The buffer; `None` if it is gone, because the memory was freed.
    pub buffer: Option<DeviceBuffer<T>>,
}

impl<T> fmt::Debug for Unreturned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unreturned").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Unreturned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<T> std::error::Error for Unreturned<T> {}

impl<T> From<Unreturned<T>> for Error {
    fn from(unreturned: Unreturned<T>) -> Self {
        unreturned.error
    }
}
