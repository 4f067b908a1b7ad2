//! `millpond view`: draws a program as one page to open in a browser.
//!
//! The page is one file and needs no network: it contains the markup, the style, the script and the data. A [`Scene`]
//! is the content of a page; its documentation lists its sources. Addresses of served memory come from a [`Server`],
//! which is all that this module knows of the library.
//!
//! | file | one line |
//! |---|---|
//! | `command.rs` | chooses the program and the place of the page |
//! | `browser.rs` | opens a page |
//! | `scene.rs` | the content of a page, as data |
//! | `served.rs` | makes a scene from a recorded program, which is served once |
//! | `traced/` | makes a scene from an operation trace or a litmus program, which is checked |
//! | `memory.rs`, `order.rs`, `graphs.rs` | its memory, its lanes, its graphs |
//! | `violations.rs`, `fix.rs` | its violations and their correction |
//! | `addresses.rs` | removes unused addresses |
//! | `layout.rs` | positions of a graph's nodes |
//! | `embed.rs` | encodes the data for the page |
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

/// The largest number of allocations of a page. Browsers would take too long to draw more.
pub const ALLOCATIONS_MAX: usize = 1 << 21;

/// Returns the page of a litmus program's text. `name` is the program's name.
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
