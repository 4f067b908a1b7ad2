//! What a stream is, and what a host asks of it. Plain values.

pub use millpond_core::op::StreamKind;

/// What a stream is to the default-stream rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Made by the program.
    Ordinary(StreamKind),
    /// The legacy default stream.
    Legacy,
}

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
