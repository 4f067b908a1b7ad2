//! The layout of CPython's structures that are read here, and the way of reading them.
//!
//! Within a minor version these structures do not change. Builds with another layout (with counted references) are
//! recognised by the types of their objects. This module knows no frame and no version.

use std::cell::Cell;

/// Offsets in bytes from the start of the structure that a field is in. `versions` has a row for each field, with a
/// column for each version.
#[derive(Clone, Debug)]
pub(super) struct Layout<T = usize> {
    /// In a thread's state: its frame, or the C frame that has it.
    pub(super) current: T,
    /// In that C frame: the Python frame. [`NONE`] if there is no such step.
    pub(super) through_frame_of_c: T,
    /// In a frame.
    pub(super) code: T,
    pub(super) previous: T,
    pub(super) instruction: T,
    pub(super) owner: T,
    /// In a code object: the list of copies of the instructions, if each thread has its own copy. Else [`NONE`].
    pub(super) copies: T,
    /// In a frame: the index of the copy that it runs.
    pub(super) copy: T,
    /// In a code object.
    pub(super) first_line: T,
    pub(super) file: T,
    pub(super) qualified_name: T,
    pub(super) lines: T,
    pub(super) instructions: T,
    /// In an object.
    pub(super) type_of: T,
    /// In a `bytes` object.
    pub(super) bytes_length: T,
    pub(super) bytes_data: T,
    /// In a string: its characters come last, this many bytes later if not all are ASCII.
    pub(super) text_length: T,
    pub(super) text_state: T,
    pub(super) ascii: T,
    pub(super) more_if_not_ascii: T,
    pub(super) state: State<T>,
}

/// The bits of a string's state: the bytes of a character, whether the characters follow the object, whether all are
/// ASCII.
#[derive(Clone, Copy, Debug)]
pub(super) struct State<T = usize> {
    pub(super) width: T,
    pub(super) is_compact: T,
    pub(super) is_ascii: T,
}

/// The offset of a field that there is not.
pub(super) const NONE: usize = usize::MAX;
/// The owner of frames that belong to C and have no code (from 3.12 on).
pub(super) const OWNED_BY_C: u8 = 3;
/// The tag bits of a reference in a frame, beside the object's address (from 3.14 on).
pub(super) const TAG: usize = 3;

/// The addresses of the types.
#[derive(Debug)]
pub(super) struct Types {
    pub(super) code: usize,
    pub(super) text: usize,
    pub(super) bytes: usize,
}

/// Nothing is mapped below this address.
const LOWEST: usize = 4096;

/// The memory of this process. Until it is trusted, the kernel reads it, so that memory that is not mapped is not
/// touched.
#[derive(Debug, Default)]
pub(super) struct Memory {
    is_trusted: Cell<bool>,
}

impl Memory {
    /// Trusts the memory from here on: what is followed was found to have the expected types.
    pub(super) fn trust(&self) {
        self.is_trusted.set(true);
    }

    pub(super) fn is_trusted(&self) -> bool {
        self.is_trusted.get()
    }

    /// Returns the address at an offset from the start of something; `None` if nothing can be there.
    #[inline]
    fn place(base: usize, offset: usize) -> Option<usize> {
        if base < LOWEST { None } else { base.checked_add(offset) }
    }

    fn read(&self, base: usize, offset: usize, into: &mut [u8]) -> Option<()> {
        let at = Self::place(base, offset)?;
        let from = std::ptr::with_exposed_provenance::<u8>(at);
        if self.is_trusted.get() {
            // SAFETY: by *verified* these are objects of this thread's frames, which live for as long as this call.
            unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
            return Some(());
        }
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: into.len() };
        // SAFETY: takes nothing.
        let own = unsafe { libc::getpid() };
        // SAFETY: the destination is a slice; the kernel checks the source.
        let done = unsafe { libc::process_vm_readv(own, &raw const local, 1, &raw const remote, 1, 0) };
        (done == into.len() as isize).then_some(())
    }

    #[inline]
    pub(super) fn number<const N: usize>(&self, base: usize, offset: usize) -> Option<[u8; N]> {
        if self.is_trusted.get() {
            let at = Self::place(base, offset)?;
            // SAFETY: as in `read`.
            return Some(unsafe { std::ptr::with_exposed_provenance::<[u8; N]>(at).read_unaligned() });
        }
        let mut bytes = [0; N];
        self.read(base, offset, &mut bytes)?;
        Some(bytes)
    }

    #[inline]
    pub(super) fn byte(&self, base: usize, offset: usize) -> Option<u8> {
        self.number(base, offset).map(u8::from_le_bytes)
    }

    #[inline]
    pub(super) fn half(&self, base: usize, offset: usize) -> Option<u32> {
        self.number(base, offset).map(u32::from_le_bytes)
    }

    #[inline]
    pub(super) fn word(&self, base: usize, offset: usize) -> Option<usize> {
        self.number(base, offset).map(usize::from_le_bytes)
    }

    /// Returns `true` if the same bytes are there.
    #[inline]
    fn has(&self, base: usize, offset: usize, bytes: &[u8]) -> bool {
        if self.is_trusted.get() {
            let Some(at) = Self::place(base, offset) else { return false };
            let there = std::ptr::with_exposed_provenance::<u8>(at);
            // SAFETY: as in `read`.
            return unsafe { std::slice::from_raw_parts(there, bytes.len()) } == bytes;
        }
        let mut there = vec![0; bytes.len()];
        self.read(base, offset, &mut there).is_some() && there == bytes
    }
}

/// The largest size: no file's name and no table of lines is longer.
const BYTES_MAX: usize = 1 << 22;

/// An object of bytes or characters, as it was read.
#[derive(Debug)]
pub(super) struct Object {
    /// The object's address.
    at: usize,
    /// The object's length field. `state` is a string's state field.
    length: usize,
    state: Option<usize>,
    /// The size of one character in bytes.
    width: usize,
    /// The offset of the first one in the object.
    from: usize,
    pub(super) bytes: Vec<u8>,
}

impl Object {
    /// Reads a string.
    pub(super) fn text(memory: &Memory, layout: &Layout, types: &Types, at: usize) -> Option<Self> {
        let is_it = memory.word(at, layout.type_of)? == types.text;
        let state = memory.half(at, layout.text_state).filter(|_| is_it)? as usize & layout.state.all();
        let width = layout.state.width_of(state);
        let is_known = state & layout.state.is_compact != 0 && matches!(width, 1 | 2 | 4);
        let from =
            if state & layout.state.is_ascii != 0 { layout.ascii } else { layout.ascii + layout.more_if_not_ascii };
        let length = memory.word(at, layout.text_length).filter(|length| is_known && *length <= BYTES_MAX)?;
        let mut bytes = vec![0; length * width];
        memory.read(at, from, &mut bytes)?;
        Some(Self { at, length, state: Some(state), width, from, bytes })
    }

    /// Reads a `bytes` object.
    pub(super) fn bytes(memory: &Memory, layout: &Layout, types: &Types, at: usize) -> Option<Self> {
        let is_it = memory.word(at, layout.type_of)? == types.bytes;
        let length = memory.word(at, layout.bytes_length).filter(|length| is_it && *length <= BYTES_MAX)?;
        let mut bytes = vec![0; length];
        memory.read(at, layout.bytes_data, &mut bytes)?;
        Some(Self { at, length, state: None, width: 1, from: layout.bytes_data, bytes })
    }

    /// Returns the characters of a string, on one line.
    pub(super) fn characters(&self) -> String {
        let character = |bytes: &[u8]| {
            let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
            char::from_u32(number).filter(|it| !it.is_control()).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        self.bytes.chunks_exact(self.width).map(character).collect()
    }

    /// Returns `true` if the object there is still this one, with the same contents.
    #[inline]
    pub(super) fn is_at(&self, memory: &Memory, layout: &Layout, at: usize) -> bool {
        let (length, is_alike) = match self.state {
            None => (layout.bytes_length, true),
            Some(known) => {
                let state = memory.half(at, layout.text_state);
                (layout.text_length, state.is_some_and(|state| state as usize & layout.state.all() == known))
            }
        };
        at == self.at
            && is_alike
            && memory.word(at, length) == Some(self.length)
            && memory.has(at, self.from, &self.bytes)
    }
}

impl State {
    fn all(self) -> usize {
        self.width | self.is_compact | self.is_ascii
    }

    fn width_of(self, state: usize) -> usize {
        (state & self.width) >> self.width.trailing_zeros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mapped_is_not_read() {
        let memory = Memory::default();
        let here = 7_u64;
        assert_eq!(memory.word((&raw const here).addr(), 0), Some(7));
        for (base, offset) in [(0, 8), (usize::MAX, 8), (usize::MAX & !7, 0), (1 << 46, 0)] {
            assert_eq!(memory.word(base, offset), None, "{base:#x} + {offset}");
        }
    }
}
