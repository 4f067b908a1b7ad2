//! The terms shared by the library and its user: settings, counts, errors, names of streams and pools, trace files.
//! Plain data.

pub(crate) mod config;
pub(crate) mod count;
pub(crate) mod device_name;
pub(crate) mod error;
pub(crate) mod native;
pub(crate) mod out_of_memory;
pub(crate) mod pool_name;
pub(crate) mod role;
pub(crate) mod shadow;
pub(crate) mod share_error;
pub(crate) mod shown;
pub(crate) mod statistics;
pub(crate) mod stream_names;
pub(crate) mod trace_file;
pub(crate) mod violations;
