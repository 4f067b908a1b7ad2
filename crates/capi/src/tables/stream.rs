//! Streams by handle.

use std::sync::Arc;

use millpond::config::StreamKind;
use millpond::{Device, Pool, Stream};
use millpond_driver::locks::lock;

use super::device::DeviceEntry;
use super::handle::Table;
use crate::status::{Failure, Result};

/// Opaque handle.
pub enum millpond_stream {}
/// A stream (CUDA: cudaStream_t).
pub type millpond_stream_t = *mut millpond_stream;

/// A stream, its device, and a copy of the device's current pool.
#[derive(Clone)]
pub(crate) struct StreamEntry {
    pub(crate) stream: Stream,
    pub(crate) device: Arc<DeviceEntry>,
    /// `true` if the stream closes with its handle. A per-thread default stream, and one of the program's, stay open.
    pub(crate) is_own: bool,
    pool: Pool,
    pool_epoch: u64,
}

impl StreamEntry {
    /// Returns the stream, and the device's current pool. The copy is used because all streams would share the lock of
    /// the device's own.
    #[inline]
    pub(crate) fn with_pool(&mut self) -> (&Stream, &Pool) {
        if self.pool_epoch != self.device.pool_epoch() {
            self.update_pool();
        }
        (&self.stream, &self.pool)
    }

    /// As [`with_pool`](Self::with_pool), if the copy is the current pool.
    #[inline]
    pub(crate) fn with_current_pool(&self) -> Option<(&Stream, &Pool)> {
        (self.pool_epoch == self.device.pool_epoch()).then_some((&self.stream, &self.pool))
    }

    /// Cold: the current pool has changed.
    #[cold]
    fn update_pool(&mut self) {
        self.pool_epoch = self.device.pool_epoch();
        self.pool = self.device.device.current_pool();
    }
}

pub(crate) static STREAMS: Table<StreamEntry> = Table::new("stream", 3);

/// Makes a handle for a stream.
pub(crate) fn add(stream: Stream, device: Arc<DeviceEntry>, is_own: bool) -> Result<millpond_stream_t> {
    let (pool_epoch, pool) = (device.pool_epoch(), device.device.current_pool());
    let entry = StreamEntry { stream, device: Arc::clone(&device), is_own, pool, pool_epoch };
    let handle = STREAMS.insert(entry)?;
    lock(&device.streams).push(handle as usize);
    // The current pool may have changed before the stream was in the list.
    look_again(handle as usize);
    Ok(handle)
}

/// Removes a stream. Its handle is not valid any more.
pub(crate) fn remove(handle: millpond_stream_t) -> Result<StreamEntry> {
    let entry = STREAMS.remove(handle)?;
    lock(&entry.device.streams).retain(|listed| *listed != handle as usize);
    Ok(entry)
}

/// Makes a pool a device's current one. No stream keeps the previous one.
pub(crate) fn set_pool(device: &DeviceEntry, pool: &Pool) -> Result<()> {
    device.set_pool(pool)?;
    let listed = lock(&device.streams).clone();
    listed.into_iter().for_each(look_again);
    Ok(())
}

/// Updates a stream's copy of the current pool, unless the stream is destroyed.
fn look_again(handle: usize) {
    // The previous pool is dropped after the handle's lock is released: this may be its last handle.
    let former = STREAMS.with(handle as millpond_stream_t, |entry| {
        let former = entry.pool.clone();
        entry.with_pool();
        Ok(former)
    });
    drop(former);
}

/// Adopts a stream that foreign code made (CUDA: a `CUstream`), also a default stream.
pub(crate) fn adopt(device: &Device, handle: u64) -> Result<Stream> {
    if !device.has_foreign_streams() {
        return Err(Failure::Value("a host device runs no stream that was made with CUDA".into()));
    }
    // SAFETY: the promise of C callers: an open stream of the device while its handle is used.
    Ok(unsafe { device.adopt_stream(handle, StreamKind::NonBlocking) }?)
}
