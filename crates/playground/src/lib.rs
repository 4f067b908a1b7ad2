//! The litmus checker as functions that a browser calls: a text in, what is said of it out, as JSON.
//!
//! | file | one line |
//! |---|---|
//! | `judge.rs` | a program's verdict, page and correction |
//! | `wasm.rs` | the exported functions |
//! | `main.rs` | puts the folder together |

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod judge;
pub mod wasm;

pub use judge::{Answer, Found, judge};
