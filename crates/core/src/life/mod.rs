//! The law of one piece of memory: what was done to it, and what the next act has to come after.
//!
//! Streams, host threads, launches and the nodes of a graph keep their lives here and ask the same questions of them.
//! Who comes before whom the caller says. Knows no stream, no graph, no table of names.
//!
//! | file | one law |
//! |---|---|
//! | `kind` | the rules that a program can break, by name |
//! | `uses` | which uses of the same bytes something later may still have to come after |
//! | `history` | may this act come here: the uses of a life, by bytes |
//! | `site` | points and places of what streams do |

mod history;
mod kind;
mod site;
mod uses;

pub(crate) use history::Replaced;
pub use history::{Fault, History};
pub use kind::Kind;
pub use site::{Site, Use};
pub use uses::Done;
