//! What the program does, written down as it is decided.

pub(crate) mod shares;
pub(crate) mod tracer;
