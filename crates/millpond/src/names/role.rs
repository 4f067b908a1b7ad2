//! How a stream that the program makes stands to the default streams, and what a host asks of a stream. Plain values.

pub use millpond_core::op::StreamKind;

/// What a host asks of a stream.
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
