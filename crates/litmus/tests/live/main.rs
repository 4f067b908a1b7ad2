//! The library compared with the checker of litmus programs: the corpus, refusals word for word, and random programs.

mod agreement;
mod corpus;
#[path = "../programs/files.rs"]
mod files;
#[path = "../programs/mutated.rs"]
mod mutated;
mod refusals;

use millpond_core::check::Kind;

/// Returns `false` for kinds that the library does not report: it reports nothing at the program's end, and its events
/// are never recorded again.
fn is_said(kind: Kind) -> bool {
    !kind.is_advice() && kind != Kind::Leak
}
