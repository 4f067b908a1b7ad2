//! Operation traces: everything a program did, as bytes.
//!
//! A trace is a header and then *frames*, each with its length and checksum, so that a program that dies loses only
//! what it had not flushed, and damage is found before anything is made of it. Within a frame an operation is a code
//! and its fields, most of them one byte: numbers are varints, those that move in small steps are differences, texts
//! and places are given once and then by number. `docs/formats.md` has the format for those who write it themselves.
//!
//! Nothing here reads or writes a file: a [`Writer`] makes bytes, a [`Reader`] is fed bytes.
//!
//! | file | one law |
//! |---|---|
//! | `bytes.rs` | numbers as bytes |
//! | `frame.rs` | the header, frames, and what is wrong with them |
//! | `field.rs` | how each kind of field is written and read |
//! | `place.rs` | how places are written and read |
//! | `table.rs` | the code and the fields of each operation: one table for both directions |
//! | `writer.rs`, `reader.rs` | whole traces |
//!
//! Invariants:
//! * **whole-or-not**: no operation of a frame is given out unless all of the frame is there and has its checksum.
//! * **frame-alone**: differences begin anew with each frame; only texts and places are remembered across frames.
//! * **bounded**: memory is in proportion to a frame and to the texts and places of the trace, not to its length.

mod bytes;
mod field;
mod frame;
mod place;
mod reader;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use frame::{Damage, FRAME_BYTES_MAX, MAGIC, Reason, VERSION};
pub use reader::Reader;
pub use writer::Writer;
