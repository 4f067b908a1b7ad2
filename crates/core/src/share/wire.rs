//! Numbers and lists as little-endian bytes, and back.
//!
//! Depends on no message. A list begins with its length. A reader refuses a length that the remaining bytes cannot
//! hold, so that a number from the other side never determines the size of an allocation.

/// The reason why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end too early.
    #[error("it is cut off")]
    Truncated,
    /// Bytes follow the end.
    #[error("{0} B follow its end")]
    Trailing(usize),
    /// A list is longer than allowed.
    #[error("a list of {0} entries is too long")]
    TooLong(usize),
    /// A value has no meaning.
    #[error("{0} is none that is known")]
    Unknown(&'static str),
}

/// Appends values.
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
    /// Reads a list of at most `max` entries, each of at least one byte.
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

    /// Checks that nothing is left.
    pub(super) fn end(self) -> Result<(), Malformed> {
        match self.0.len() {
            0 => Ok(()),
            rest => Err(Malformed::Trailing(rest)),
        }
    }
}
