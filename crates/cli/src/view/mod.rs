//! `millpond view`: draws a program as one page to open in a browser.
//!
//! The page is one file that asks nothing of the network: markup, style and script are in it, and so are the data.
//! What is shown is a [`Scene`]; where it comes from is said there. Served memory gets its addresses from a [`Server`],
//! which is all that is known of the library here.
//!
//! | file | one line |
//! |---|---|
//! | `command.rs` | which file, and where the page goes |
//! | `browser.rs` | opens a page |
//! | `scene.rs` | what a page shows, as data |
//! | `served.rs` | a scene from a recorded program, served once |
//! | `traced/` | a scene from an operation trace or a litmus program, checked |
//! | `memory.rs`, `order.rs`, `graphs.rs` | its memory, its lanes, its graphs |
//! | `violations.rs`, `fix.rs` | what is wrong with it, and what corrects it |
//! | `addresses.rs` | leaves out the addresses that were never used |
//! | `layout.rs` | where the nodes of a graph stand |
//! | `embed.rs` | the data as the page reads it |
//! | `page/` | the page |
//!
//! [`Server`]: crate::replay::Server

mod addresses;
mod embed;
mod fix;
mod graphs;
mod layout;
mod memory;
mod order;
mod scene;
#[cfg(feature = "command")]
mod served;
mod traced;
mod violations;

#[cfg(feature = "command")]
mod browser;
#[cfg(feature = "command")]
mod command;

use crate::refusal::{Place, Refusal};

pub use layout::layered;
pub use scene::{
    Arrow, Drawing, EdgeKind, Fix, Lane, Life, Node, Operation, OperationKind, Scene, Span, Use, Violation,
};

/// The most allocations of a page: more would take a browser longer to draw than a person waits.
pub const ALLOCATIONS_MAX: usize = 1 << 21;

/// The page of a litmus program's text; `name` is what it is called.
///
/// # Errors
/// It is not a litmus program.
pub fn litmus_page(name: &str, text: &str) -> Result<Vec<u8>, Refusal> {
    let mut page = Vec::new();
    let written = embed::write_page(&mut page, &traced::litmus_text(name, text)?);
    written.map_err(|error| Refusal::from_read(Place::Whole, &error))?;
    Ok(page)
}

#[cfg(feature = "command")]
pub use command::run;
