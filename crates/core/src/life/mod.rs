//! The lifetime of an allocation: its uses, and what the next operation on it must come after.
//!
//! Streams, host threads, launches and graph nodes all keep their lifetimes here. The caller supplies the order.
//! Depends on no stream, no graph and no table of names.
//!
//! | file | contents |
//! |---|---|
//! | `kind` | the rules that a program can break, by name |
//! | `uses` | the uses of the same bytes that something later may still have to come after |
//! | `history` | the uses of a lifetime, by bytes, and the check of the next operation |
//! | `site` | the points and places of uses |

mod history;
mod kind;
mod site;
mod uses;

pub use history::{Fault, History};
pub use kind::Kind;
pub use site::{Site, Use};
pub use uses::Done;
