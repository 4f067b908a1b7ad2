//! Reads pickles that hold plain data, and nothing else: numbers, text, lists, tuples and dicts.
//!
//! A pickle is a program for a small stack machine, and the general machine can import and call anything. This one
//! has no such instructions: a pickle that uses them is refused at that byte, and nothing of it was run. Protocols 2
//! to 5 are read, as Python and PyTorch's own writer make them.
//!
//! Values are small and `Copy`: text is a range of the input, containers are numbers of nodes in one table. So
//! what a pickle shares through its memo is shared here (a pickle that refers to itself a billion times over stays
//! small), nothing recurses, and the memory taken is bounded by [`VALUES_MAX`] and in proportion to the input.
//!
//! Why not a library: serde-pickle 1.2 refuses snapshots (as recursive, for their stack frames are shared), and copies
//! whatever is shared.

mod machine;

use super::{Place, Refusal};

/// The most values and containers of a pickle, of 16 and 32 bytes each: a snapshot of 8 million events.
pub const VALUES_MAX: usize = 1 << 27;

/// A value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// A whole number that fits.
    Int(i64),
    /// A whole number that is too large to keep.
    Huge,
    /// Any other number.
    Float(f64),
    /// Text: a range of the input. It need not be UTF-8.
    Text(u32, u32),
    /// Raw bytes, which are passed over.
    Bytes,
    /// A list: a node.
    List(u32),
    /// A tuple: a node.
    Tuple(u32),
    /// A dict: a node whose items are key, value, key, value.
    Dict(u32),
}

/// A number that is not negative; 0 where it is none.
pub(super) fn number(value: Option<Value>) -> u64 {
    match value {
        Some(Value::Int(number)) => u64::try_from(number).unwrap_or(0),
        _ => 0,
    }
}

/// A container.
#[derive(Clone, Debug)]
struct Node {
    /// The byte at which it begins.
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
    /// Where it is broken, holds more than plain data, or is too long (4 GiB), with the byte.
    pub fn read(input: &'a [u8]) -> Result<Self, Refusal> {
        let (nodes, top) = machine::run(input)?;
        Ok(Self { input, nodes, top })
    }

    /// The whole value.
    pub fn top(&self) -> Value {
        self.top
    }

    /// The text of a value, if it is one.
    pub fn text(&self, value: Value) -> Option<&'a [u8]> {
        match value {
            Value::Text(start, length) => self.input.get(start as usize..)?.get(..length as usize),
            _ => None,
        }
    }

    /// The items of a list or tuple.
    pub fn items(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::List(node) | Value::Tuple(node) => Some(&self.nodes[node as usize].items),
            _ => None,
        }
    }

    /// How long the file is.
    pub(super) fn bytes(&self) -> usize {
        self.input.len()
    }

    /// The keys and values of a dict.
    pub fn entries(&self, value: Value) -> Option<impl Iterator<Item = (Value, Value)> + '_> {
        match value {
            Value::Dict(node) => {
                Some(self.nodes[node as usize].items.chunks_exact(2).map(|entry| (entry[0], entry[1])))
            }
            _ => None,
        }
    }

    /// What a dict has under a key; the last one counts, as in Python.
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

    /// The byte at which a container begins.
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
