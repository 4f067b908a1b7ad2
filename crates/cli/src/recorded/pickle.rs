//! Reads pickles that hold only plain data: numbers, text, lists, tuples and dicts.
//!
//! A pickle is a program for a small stack machine, and Python's machine can import and call anything. This machine
//! has no such instructions: a pickle that uses them is refused at that byte, and nothing of it was run. It reads
//! protocols 2 to 5, as Python and PyTorch's own writer produce them.
//!
//! Values are small and `Copy`: text is a range of the input, and containers are indexes of nodes in one table. What a
//! pickle shares through its memo is therefore shared here, too (a pickle that refers to itself a billion times stays
//! small). Nothing recurses. The memory used is bounded by [`VALUES_MAX`] and in proportion to the input.
//!
//! No library is used, because serde-pickle 1.2 refuses snapshots (it takes their shared stack frames for recursion)
//! and copies everything that is shared.

mod machine;

use super::{Place, Refusal};

/// The largest number of values and containers of a pickle, of 16 and 32 bytes each: a snapshot of 8 million events.
pub const VALUES_MAX: usize = 1 << 27;

/// A value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// `None`.
    None,
    /// A boolean.
    Bool(bool),
    /// An integer that fits.
    Int(i64),
    /// An integer that is too large to keep.
    Huge,
    /// Any other number.
    Float(f64),
    /// Text: a range of the input. It need not be UTF-8.
    Text(u32, u32),
    /// Raw bytes, whose content is ignored.
    Bytes,
    /// A list: a node.
    List(u32),
    /// A tuple: a node.
    Tuple(u32),
    /// A dict: a node whose items are key, value, key, value.
    Dict(u32),
}

/// Returns a number that is not negative, or 0 for anything else.
pub(super) fn number(value: Option<Value>) -> u64 {
    match value {
        Some(Value::Int(number)) => u64::try_from(number).unwrap_or(0),
        _ => 0,
    }
}

/// A container.
#[derive(Clone, Debug)]
struct Node {
    /// The byte at which the container begins.
    at: u32,
    items: Vec<Value>,
}

/// A pickle that has been read.
#[derive(Debug)]
pub struct Pickle<'a> {
    input: &'a [u8],
    nodes: Vec<Node>,
    top: Value,
}

impl<'a> Pickle<'a> {
    /// Reads a pickle.
    ///
    /// # Errors
    /// The pickle is broken, holds more than plain data, or is too long (4 GiB). The refusal has the byte.
    pub fn read(input: &'a [u8]) -> Result<Self, Refusal> {
        let (nodes, top) = machine::run(input)?;
        Ok(Self { input, nodes, top })
    }

    /// Returns the whole value.
    pub fn top(&self) -> Value {
        self.top
    }

    /// Returns the text of a value, if it is text.
    pub fn text(&self, value: Value) -> Option<&'a [u8]> {
        match value {
            Value::Text(start, length) => self.input.get(start as usize..)?.get(..length as usize),
            _ => None,
        }
    }

    /// Returns the items of a list or tuple.
    pub fn items(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::List(node) | Value::Tuple(node) => Some(&self.nodes[node as usize].items),
            _ => None,
        }
    }

    /// Returns the length of the file in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.input.len()
    }

    /// Returns the keys and values of a dict.
    pub fn entries(&self, value: Value) -> Option<impl Iterator<Item = (Value, Value)> + '_> {
        match value {
            Value::Dict(node) => {
                Some(self.nodes[node as usize].items.chunks_exact(2).map(|entry| (entry[0], entry[1])))
            }
            _ => None,
        }
    }

    /// Returns the value under a key of a dict. If a key occurs several times, the last one counts, as in Python.
    pub fn under(&self, value: Value, key: &str) -> Option<Value> {
        let mut entries = self.entries(value)?;
        let mut found = None;
        for (name, value) in &mut entries {
            if self.text(name) == Some(key.as_bytes()) {
                found = Some(value);
            }
        }
        found
    }

    /// Returns the byte at which a container or text begins.
    pub fn place(&self, value: Value) -> Place {
        match value {
            Value::List(node) | Value::Tuple(node) | Value::Dict(node) => {
                Place::Byte(u64::from(self.nodes[node as usize].at))
            }
            Value::Text(start, _) => Place::Byte(u64::from(start)),
            _ => Place::Whole,
        }
    }
}

#[cfg(test)]
mod tests;
