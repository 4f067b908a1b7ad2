//! What can go wrong between two libraries, beside what each of them refuses.

/// An adaptor's error has a variant for each.
#[derive(Debug)]
pub enum Fault {
    /// What the closure returned. The declared accesses count as used: part of the work may be under way.
    Submit(Box<dyn std::error::Error + Send + Sync>),
    /// The context is not the device's primary one.
    NotPrimary,
    /// The stream belongs to another context.
    OtherContext,
}
