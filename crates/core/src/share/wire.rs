//! Numbers and lists as bytes, little-endian, and back.
//!
//! Knows no message. A list says its length first; a reader refuses a length that the bytes left cannot hold, so that
//! a stranger's number never sizes an allocation.

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// They end too early.
    #[error("it is cut off")]
    Truncated,
    /// They go on after the end.
    #[error("{0} B follow its end")]
    Trailing(usize),
    /// A list is longer than allowed.
    #[error("a list of {0} entries is too long")]
    TooLong(usize),
    /// A value means nothing.
    #[error("{0} is none that is known")]
    Unknown(&'static str),
}

/// Puts values behind one another.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

/// Takes values off the front.
#[derive(Debug)]
pub(super) struct Reader<'b>(pub(super) &'b [u8]);

macro_rules! numbers {
    ($($number:ident)*) => {
        impl Writer {
            $(pub(super) fn $number(&mut self, value: $number) -> &mut Self {
                self.0.extend_from_slice(&value.to_le_bytes());
                self
            })*
        }

        impl Reader<'_> {
            $(pub(super) fn $number(&mut self) -> Result<$number, Malformed> {
                let (head, rest) = self.0.split_first_chunk().ok_or(Malformed::Truncated)?;
                self.0 = rest;
                Ok($number::from_le_bytes(*head))
            })*
        }
    };
}

numbers!(u8 u16 u32 u64 u128);

impl Writer {
    pub(super) fn list<T>(&mut self, items: &[T], mut one: impl FnMut(&mut Self, &T)) -> &mut Self {
        self.u32(items.len() as u32);
        items.iter().for_each(|item| one(self, item));
        self
    }
}

impl Reader<'_> {
    /// A list of at most `max` entries, each of which takes at least one byte.
    pub(super) fn list<T>(
        &mut self,
        max: usize,
        mut one: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(Malformed::TooLong(len));
        }
        if len > self.0.len() {
            return Err(Malformed::Truncated);
        }
        (0..len).map(|_| one(self)).collect()
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), Malformed> {
        match self.0.len() {
            0 => Ok(()),
            rest => Err(Malformed::Trailing(rest)),
        }
    }
}
