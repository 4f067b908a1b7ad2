//! The command `millpond` as a library, so that its parts can be tested and fuzzed separately.
//!
//! | module | one line |
//! |---|---|
//! | [`args`] | the command's arguments |
//! | [`attach`] | `millpond record`, `check`, `run`, `shake -- PROGRAM`: any CUDA program, unchanged |
//! | [`check`] | `millpond check`: checks the order of a program |
//! | [`devices`] | `millpond devices`: lists this machine's devices |
//! | [`plan`] | `millpond plan`: places buffers with known lifetimes |
//! | [`recorded`] | recorded programs, read from files |
//! | [`refusal`] | the reason why a file is refused |
//! | [`replay`] | `millpond replay`: serves recorded programs and reports |
//! | [`view`] | `millpond view`: draws programs as a page |
//!
//! Without the feature `command` only [`view::litmus_page`] is available, which needs no device and no file.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

/// The address of a page of the documentation.
macro_rules! page {
    ($name:literal) => {
        concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/", $name, ".md")
    };
}

#[cfg(feature = "command")]
pub mod args;
#[cfg(feature = "command")]
pub mod attach;
#[cfg(feature = "command")]
pub mod check;
#[cfg(feature = "command")]
mod command;
#[cfg(feature = "command")]
pub mod devices;
#[cfg(feature = "command")]
mod forgotten;
#[cfg(feature = "command")]
mod manual;
#[cfg(feature = "command")]
mod operation_trace;
#[cfg(feature = "command")]
mod output;
#[cfg(feature = "command")]
pub mod plan;
#[cfg(feature = "command")]
mod progress;
#[cfg(feature = "command")]
pub mod recorded;
pub mod refusal;
#[cfg(feature = "command")]
pub mod replay;
#[cfg(feature = "command")]
pub mod source;
#[cfg(feature = "command")]
mod stop;
#[cfg(feature = "command")]
mod text_table;
pub mod view;

#[cfg(feature = "command")]
pub use command::run;
#[cfg(feature = "command")]
pub use stop::Stop;

/// The exit status of the command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Status {
    /// All is well.
    Fine = 0,
    /// Something was found: a violation, a changed byte, or a device that could not serve.
    Found = 1,
    /// An argument or a file is wrong.
    BadInput = 2,
}
