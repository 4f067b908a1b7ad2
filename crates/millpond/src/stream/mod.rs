//! What streams do: serve memory, launch, copy, record, wait; for each other, the default streams, the host, and other
//! devices.

pub(crate) mod copy;
pub(crate) mod default_streams;
pub(crate) mod event;
pub(crate) mod external;
pub(crate) mod handle;
pub(crate) mod help;
pub(crate) mod hot;
pub(crate) mod launch;
pub(crate) mod named;
pub(crate) mod native;
pub(crate) mod payload;
pub(crate) mod pinned;
pub(crate) mod record;
pub(crate) mod relieve;
pub(crate) mod report;
#[allow(unsafe_code)]
pub(crate) mod scope;
pub(crate) mod serve;
pub(crate) mod supply;
pub(crate) mod wanted;
