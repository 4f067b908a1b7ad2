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

/// A stream, its device, and the device's current pool as this stream saw it last.
#[derive(Clone)]
pub(crate) struct StreamEntry {
    pub(crate) stream: Stream,
    pub(crate) device: Arc<DeviceEntry>,
    /// Whether it goes with its handle: a thread's own stream, and one of the program's, stay.
    pub(crate) is_own: bool,
    pool: Pool,
    pool_epoch: u64,
}

impl StreamEntry {
    /// The stream, and the device's current pool. Looking at the device's own would be a lock that all streams share.
    #[inline]
    pub(crate) fn with_pool(&mut self) -> (&Stream, &Pool) {
        if self.pool_epoch != self.device.pool_epoch() {
            self.update_pool();
        }
        (&self.stream, &self.pool)
    }

    /// Cold: another pool was made the current one.
    #[cold]
    fn update_pool(&mut self) {
        self.pool_epoch = self.device.pool_epoch();
        self.pool = self.device.device.current_pool();
    }
}

pub(crate) static STREAMS: Table<StreamEntry> = Table::new("stream", 3);

/// A handle for a stream.
pub(crate) fn add(stream: Stream, device: Arc<DeviceEntry>, is_own: bool) -> Result<millpond_stream_t> {
    let (pool_epoch, pool) = (device.pool_epoch(), device.device.current_pool());
    let entry = StreamEntry { stream, device: Arc::clone(&device), is_own, pool, pool_epoch };
    let handle = STREAMS.insert(entry)?;
    lock(&device.streams).push(handle as usize);
    // Another pool may have become the current one before the list had the stream.
    look_again(handle as usize);
    Ok(handle)
}

/// Takes a stream out: its handle names nothing any more.
pub(crate) fn remove(handle: millpond_stream_t) -> Result<StreamEntry> {
    let entry = STREAMS.remove(handle)?;
    lock(&entry.device.streams).retain(|listed| *listed != handle as usize);
    Ok(entry)
}

/// Makes a pool a device's current one. No stream keeps the former one.
pub(crate) fn set_pool(device: &DeviceEntry, pool: &Pool) -> Result<()> {
    device.set_pool(pool)?;
    let listed = lock(&device.streams).clone();
    listed.into_iter().for_each(look_again);
    Ok(())
}

/// A stream looks again which pool is its device's current one; one that was destroyed does not.
fn look_again(handle: usize) {
    // The former one is dropped behind the handle's lock: it may be its last.
    let former = STREAMS.with(handle as millpond_stream_t, |entry| {
        let former = entry.pool.clone();
        entry.with_pool();
        Ok(former)
    });
    drop(former);
}

/// A stream of ours for one that foreign code made (CUDA: a `CUstream`), the default streams among them.
pub(crate) fn adopt(device: &Device, handle: u64) -> Result<Stream> {
    if !device.has_foreign_streams() {
        return Err(Failure::Value("a host device runs no stream that was made with CUDA".into()));
    }
    // SAFETY: the promise of C callers: an open stream of the device while its handle is used.
    Ok(unsafe { device.adopt_stream(handle, StreamKind::NonBlocking) }?)
}
