//! The errors between two libraries, beside each library's own.

/// An error between the libraries. An adaptor's error type has a variant for each.
#[derive(Debug)]
pub enum Fault {
    /// The error that the closure returned. The declared accesses count as used, because part of the work may be in
    /// flight.
    Submit(Box<dyn std::error::Error + Send + Sync>),
    /// The context is not the device's primary one.
    NotPrimary,
    /// The stream belongs to another context.
    OtherContext,
}
