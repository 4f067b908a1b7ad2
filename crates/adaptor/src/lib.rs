//! The shared part of Millpond's adaptors to other CUDA libraries: a context beside the library's own, its streams,
//! each adopted once, work that is declared before the library submits it, and memory that is lent to the library.
//!
//! An adaptor implements [`Library`] and gives the types here the library's names. Programs use an adaptor, not this
//! crate.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod context;
mod fault;
mod library;
mod loan;
mod part;
mod ranks;
mod stream;
mod streams;
mod views;

pub use context::Context;
pub use fault::Fault;
pub use library::Library;
pub use loan::Loan;
pub use part::Part;
pub use stream::Stream;
pub use views::Views;

/// The rank of this crate's first lock. An adaptor's own locks come before it.
pub const FIRST_RANK: u8 = ranks::FIRST;
