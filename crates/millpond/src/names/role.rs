//! The relation of a stream to the default streams, and the calls by which the host asks about a stream. Plain
//! values.

pub use millpond_core::op::StreamKind;

/// A call by which the host asks about a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Synchronize,
    Query,
}

impl Ask {
    pub(crate) fn call(self) -> &'static str {
        match self {
            Ask::Synchronize => "synchronize",
            Ask::Query => "is_idle",
        }
    }
}
