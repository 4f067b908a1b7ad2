//! The parts of a stream's operations: taking blocks from caches and returning them, recording events, and waiting for
//! other streams, the default streams, the host and other devices. And the buffers that own the memory.

pub(crate) mod buffer;
pub(crate) mod default_streams;
pub(crate) mod event;
pub(crate) mod external;
pub(crate) mod handle;
pub(crate) mod help;
#[allow(unsafe_code)]
pub(crate) mod host_memory;
pub(crate) mod hot;
pub(crate) mod kernel;
pub(crate) mod make_room;
pub(crate) mod named;
pub(crate) mod native;
pub(crate) mod payload;
pub(crate) mod record;
pub(crate) mod refused;
pub(crate) mod release;
pub(crate) mod report;
pub(crate) mod supply;
pub(crate) mod window;
