//! The litmus checker as functions for a browser: the input is a text, and the output is the answer as JSON.
//!
//! | file | one line |
//! |---|---|
//! | `judge.rs` | a program's verdict, page and correction |
//! | `wasm.rs` | the exported functions |
//! | `main.rs` | builds the playground's page |

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod judge;
pub mod wasm;

pub use judge::{Answer, Found, judge};
