//! Operation traces: everything a program did, as bytes.
//!
//! A trace is a header followed by *frames*, each with its length and checksum. So a program that dies loses only
//! what it had not flushed, and damage is found before a frame is used. Within a frame an operation is a code and its
//! fields, most of them one byte: numbers are varints, numbers that move in small steps are differences, and texts
//! and places are given once and then by number. `docs/formats.md` describes the format for programs that write it
//! themselves.
//!
//! Nothing here reads or writes files: a [`Writer`] makes bytes, and a [`Reader`] is fed bytes.
//!
//! | file | contents |
//! |---|---|
//! | `bytes.rs` | numbers as bytes |
//! | `frame.rs` | the header, frames, and their errors |
//! | `field.rs` | the encoding of each kind of field |
//! | `place.rs` | the encoding of places |
//! | `table.rs` | the code and the fields of each operation: one table for both directions |
//! | `writer.rs`, `reader.rs` | whole traces |
//!
//! Invariants:
//! * **whole-or-not**: no operation of a frame is returned unless the whole frame is there and has its checksum.
//! * **frame-alone**: differences start anew in each frame; only texts and places are remembered across frames.
//! * **bounded**: memory grows with the size of a frame and the texts and places of the trace, not with its length.

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
