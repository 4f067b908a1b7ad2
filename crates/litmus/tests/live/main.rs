//! The library beside the checker of litmus programs: the corpus, refusals word for word, and random programs.

mod agreement;
mod corpus;
#[path = "../programs/files.rs"]
mod files;
#[path = "../programs/mutated.rs"]
mod mutated;
mod refusals;

use millpond_core::check::Kind;

/// What the library does not say: nobody asks it at the end, and its events are never recorded again.
fn is_said(kind: Kind) -> bool {
    !kind.is_advice() && kind != Kind::Leak
}
