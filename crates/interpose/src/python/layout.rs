//! How CPython 3.11, 3.12 and 3.13 lay out what is read here, on x86-64, and how it is read.
//!
//! Within a minor version these structures stay as they are. Builds that lay them out otherwise (without the global
//! lock, with counted references) are noticed by the types of their objects. Knows no frame.

use std::cell::Cell;

/// Where things are, in bytes from the start of what they are in.
#[derive(Debug)]
pub(super) struct Layout {
    /// In the state of a thread: its frame, or the frame of C that has it.
    pub(super) current: usize,
    /// In that frame of C: the frame of Python. None where there is no such step.
    pub(super) through_frame_of_c: Option<usize>,
    /// In a frame.
    pub(super) code: usize,
    pub(super) previous: usize,
    pub(super) instruction: usize,
    pub(super) owner: usize,
    /// In a code object.
    pub(super) first_line: usize,
    pub(super) file: usize,
    pub(super) qualified_name: usize,
    pub(super) lines: usize,
    pub(super) instructions: usize,
    /// In a text: its characters, where all are ASCII, and where not.
    pub(super) ascii: usize,
    pub(super) not_ascii: usize,
}

/// Frames that belong to C have no code (from 3.12 on).
pub(super) const OWNED_BY_C: u8 = 3;

const PYTHON_3_11: Layout = Layout {
    current: 56,
    through_frame_of_c: Some(8),
    code: 32,
    previous: 48,
    instruction: 56,
    owner: 69,
    first_line: 72,
    file: 112,
    qualified_name: 128,
    lines: 136,
    instructions: 184,
    ascii: 48,
    not_ascii: 72,
};

const PYTHON_3_12: Layout = Layout {
    through_frame_of_c: Some(0),
    code: 0,
    previous: 8,
    owner: 70,
    first_line: 68,
    instructions: 192,
    ascii: 40,
    not_ascii: 56,
    ..PYTHON_3_11
};

const PYTHON_3_13: Layout = Layout { current: 72, through_frame_of_c: None, instructions: 200, ..PYTHON_3_12 };

impl Layout {
    /// That of a version, as `Py_Version` says it.
    pub(super) fn of(version: u64) -> Option<&'static Layout> {
        match version >> 16 {
            0x030b => Some(&PYTHON_3_11),
            0x030c => Some(&PYTHON_3_12),
            0x030d => Some(&PYTHON_3_13),
            _ => None,
        }
    }
}

/// The addresses of the types.
#[derive(Debug)]
pub(super) struct Types {
    pub(super) code: usize,
    pub(super) text: usize,
    pub(super) bytes: usize,
}

/// Nothing is mapped below.
const LOWEST: usize = 4096;

/// The memory of this process. Until it is trusted the kernel reads it, and nothing that is not mapped is touched.
#[derive(Debug, Default)]
pub(super) struct Memory {
    is_trusted: Cell<bool>,
}

impl Memory {
    /// What is followed from here on was found to be what it should be.
    pub(super) fn trust(&self) {
        self.is_trusted.set(true);
    }

    fn read(&self, at: usize, into: &mut [u8]) -> Option<()> {
        if at < LOWEST {
            return None;
        }
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
        // SAFETY: what is written to is a slice; the kernel looks at where it reads.
        let done = unsafe { libc::process_vm_readv(own, &raw const local, 1, &raw const remote, 1, 0) };
        (done == into.len() as isize).then_some(())
    }

    #[inline]
    fn number<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        if self.is_trusted.get() && at >= LOWEST {
            // SAFETY: as in `read`.
            return Some(unsafe { std::ptr::with_exposed_provenance::<[u8; N]>(at).read_unaligned() });
        }
        let mut bytes = [0; N];
        self.read(at, &mut bytes)?;
        Some(bytes)
    }

    #[inline]
    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        self.number(at).map(u8::from_le_bytes)
    }

    #[inline]
    pub(super) fn half(&self, at: usize) -> Option<u32> {
        self.number(at).map(u32::from_le_bytes)
    }

    #[inline]
    pub(super) fn word(&self, at: usize) -> Option<usize> {
        self.number(at).map(usize::from_le_bytes)
    }

    /// Whether the same bytes are there.
    #[inline]
    fn has(&self, at: usize, bytes: &[u8]) -> bool {
        if self.is_trusted.get() && at >= LOWEST {
            let there = std::ptr::with_exposed_provenance::<u8>(at);
            // SAFETY: as in `read`.
            return unsafe { std::slice::from_raw_parts(there, bytes.len()) } == bytes;
        }
        let mut there = vec![0; bytes.len()];
        self.read(at, &mut there).is_some() && there == bytes
    }

    /// The type of an object.
    #[inline]
    pub(super) fn type_of(&self, object: usize) -> Option<usize> {
        self.word(object.checked_add(8)?)
    }
}

/// No name of a file and no table of lines is longer.
const BYTES_MAX: usize = 1 << 22;

/// An object of bytes or characters, as it was read.
#[derive(Debug)]
pub(super) struct Object {
    /// Where it was.
    at: usize,
    /// How many there are, and what each is: as the object says it.
    length: usize,
    state: u32,
    /// Where they begin in the object.
    from: usize,
    pub(super) bytes: Vec<u8>,
}

/// How wide characters are, and whether all are ASCII.
const STATE: u32 = 0x7c;

impl Object {
    fn read(memory: &Memory, at: usize, (state, width, from): (u32, usize, usize)) -> Option<Self> {
        let length = memory.word(at + 16).filter(|length| *length <= BYTES_MAX)?;
        let mut bytes = vec![0; length * width];
        memory.read(at + from, &mut bytes)?;
        Some(Self { at, length, state, from, bytes })
    }

    /// A text.
    pub(super) fn text(memory: &Memory, layout: &Layout, types: &Types, at: usize) -> Option<Self> {
        let state = memory.half(at + 32).filter(|_| memory.type_of(at) == Some(types.text))?;
        let (width, is_compact, is_ascii) = ((state >> 2 & 7) as usize, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
        let is_known = is_compact && matches!(width, 1 | 2 | 4);
        let from = if is_ascii { layout.ascii } else { layout.not_ascii };
        is_known.then(|| Self::read(memory, at, (state & STATE, width, from)))?
    }

    /// A `bytes` object.
    pub(super) fn bytes(memory: &Memory, types: &Types, at: usize) -> Option<Self> {
        let is_it = memory.type_of(at)? == types.bytes;
        is_it.then(|| Self::read(memory, at, (0, 1, 32)))?
    }

    /// The characters of a text, on one line.
    pub(super) fn characters(&self) -> String {
        let character = |bytes: &[u8]| {
            let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
            char::from_u32(number).filter(|it| !it.is_control()).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        self.bytes.chunks_exact((self.state >> 2 & 7) as usize).map(character).collect()
    }

    /// Whether the object there is this one: as many of the same, and none of them another.
    #[inline]
    pub(super) fn is_at(&self, memory: &Memory, at: usize) -> bool {
        let is_alike = |state| self.state == 0 || state & STATE == self.state;
        at == self.at
            && memory.word(at + 16) == Some(self.length)
            && memory.half(at + 32).is_some_and(is_alike)
            && memory.has(at + self.from, &self.bytes)
    }
}
