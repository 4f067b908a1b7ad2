//! The calling thread's position in Python: file, line and function.
//!
//! Most calls come from threads that have released the interpreter's lock (PyTorch does so before each kernel). Waiting
//! for it could deadlock: the thread that holds the lock may be waiting for this one. So no function of Python is
//! called but [the one for the thread's own state](Interpreter::innermost), which takes no lock. A thread's frames do
//! not change while it is in a CUDA call, and they keep their code alive. They are read in memory, by the layout of the
//! version (`layout`).
//!
//! *Verified*: until all frames of a thread were read once, with code among them, the kernel does the reads, and it
//! refuses memory that is not mapped. Each object that is followed must have the expected type. If one has not, nothing
//! is read any more.

mod described;
mod layout;
mod lines;
mod versions;

use std::ffi::c_void;
use std::sync::atomic::{Ordering, fence};

use rustc_hash::FxHashMap;

use crate::entry::real;
use described::layout_of;
use layout::{Layout, Memory, NONE, Object, Types};

/// The most frames that are read, from the innermost on.
const FRAMES_MAX: usize = 256;
/// The most places that are remembered. A program that generates code all the time has more.
const KNOWN_MAX: usize = 1 << 15;
/// Libraries whose callers count instead, by the name of their folder.
const LIBRARIES: [&str; 9] =
    ["torch", "torchvision", "triton", "cupy", "cupyx", "cupy_backends", "numba", "rmm", "ctypes"];

/// A line of Python.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Line {
    pub(crate) file: String,
    pub(crate) line: Option<u32>,
    pub(crate) function: String,
}

/// A place in code, as it was first read.
#[derive(Debug)]
pub(crate) struct CodePlace {
    pub(crate) line: Line,
    /// The number that [`Places`](crate::place::Places) has for it.
    pub(crate) number: Option<u32>,
    /// `true` if it is in one of the libraries.
    is_library: bool,
    /// The rest shows whether the code has been replaced since.
    first_line: u32,
    file: Object,
    table: Object,
}

/// A code object, and the offset from its first instruction in bytes.
type At = (usize, usize);

/// A Python interpreter in this process.
#[derive(Debug)]
struct Interpreter {
    own_state: unsafe extern "C" fn() -> *mut c_void,
    is_initialised: unsafe extern "C" fn() -> i32,
    layout: Layout,
    types: Types,
    memory: Memory,
}

#[derive(Debug, Default)]
enum State {
    /// It was not looked for yet.
    #[default]
    Unknown,
    /// There was none at the last look.
    Absent,
    There(Box<Interpreter>),
    /// It cannot be read: its version is not known, or its memory is not as expected.
    Refused,
}

/// The state of Python in this process, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Python {
    state: State,
    known: FxHashMap<At, CodePlace>,
}

impl Python {
    /// Looks for an interpreter, which may be loaded at any time.
    #[cold]
    pub(crate) fn look(&mut self) {
        if matches!(self.state, State::Unknown | State::Absent) {
            self.state = Interpreter::find();
        }
    }

    /// Returns `true` if there is an interpreter that cannot be read.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.state, State::Refused)
    }

    /// Returns the line that this thread runs: the innermost one that is in none of the libraries, or else the
    /// innermost of all. `None` if the thread runs no Python.
    #[inline]
    pub(crate) fn line(&mut self) -> Option<&mut CodePlace> {
        match self.state {
            State::There(_) => self.find_line(),
            State::Unknown => {
                self.look();
                self.find_line()
            }
            State::Absent | State::Refused => None,
        }
    }

    fn find_line(&mut self) -> Option<&mut CodePlace> {
        let (mut first, mut chosen) = (None, None);
        self.walk(|at, is_library| {
            first = first.or(Some(at));
            chosen = (!is_library).then_some(at);
            is_library
        })?;
        self.known.get_mut(&chosen.or(first)?)
    }

    /// Returns all lines of this thread's frames, from the innermost on.
    pub(crate) fn lines(&mut self) -> Vec<Line> {
        let mut frames = Vec::new();
        let done = self.walk(|at, _| {
            frames.push(at);
            true
        });
        let known = frames.iter().filter_map(|at| self.known.get(at)).map(|known| known.line.clone());
        if done.is_some() { known.collect() } else { Vec::new() }
    }

    /// Goes through this thread's frames, from the innermost on, while `see` returns `true`. Returns `None` if they
    /// cannot be read.
    fn walk(&mut self, mut see: impl FnMut(At, bool) -> bool) -> Option<()> {
        let State::There(interpreter) = &mut self.state else { return None };
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let mut frame = interpreter.innermost()?;
        let (mut is_wanted, mut is_code) = (true, false);
        for _ in 0..FRAMES_MAX {
            if frame == 0 {
                break;
            }
            let Some((at, outer)) = interpreter.frame(frame) else {
                self.state = State::Refused;
                return None;
            };
            frame = outer;
            let Some(at) = at else { continue };
            let is_library = match self.known.get(&at) {
                Some(known) if interpreter.is_still(at.0, known) => known.is_library,
                _ => {
                    let Some(known) = interpreter.known(at) else {
                        self.state = State::Refused;
                        return None;
                    };
                    let is_library = known.is_library;
                    self.known.insert(at, known);
                    is_library
                }
            };
            is_code = true;
            is_wanted = is_wanted && see(at, is_library);
            if !is_wanted && interpreter.memory.is_trusted() {
                break;
            }
        }
        if is_code {
            interpreter.memory.trust();
        }
        Some(())
    }
}

impl Interpreter {
    fn find() -> State {
        let named = |name| real::find_in(libc::RTLD_DEFAULT, name);
        // It exists from 3.11 on.
        let version = named(c"Py_Version");
        let (own_state, is_initialised) = (named(c"PyGILState_GetThisThreadState"), named(c"Py_IsInitialized"));
        let types = [c"PyCode_Type", c"PyUnicode_Type", c"PyBytes_Type"].map(named);
        if own_state == 0 || is_initialised == 0 || types.contains(&0) {
            return State::Absent;
        }
        // SAFETY: if it exists, it is a number of eight bytes that never changes.
        let version = (version != 0).then(|| unsafe { *std::ptr::with_exposed_provenance::<u64>(version) });
        let memory = Memory::default();
        let layout = version.and_then(|version| layout_of(version, named(c"_PyRuntime"), &memory));
        let Some(layout) = layout else { return State::Refused };
        let function = |at| std::ptr::with_exposed_provenance::<c_void>(at);
        State::There(Box::new(Interpreter {
            // SAFETY: that is its type in every version.
            own_state: unsafe {
                std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> *mut c_void>(function(own_state))
            },
            // SAFETY: that is its type in every version.
            is_initialised: unsafe {
                std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> i32>(function(is_initialised))
            },
            layout,
            types: Types { code: types[0], text: types[1], bytes: types[2] },
            memory,
        }))
    }

    /// Returns this thread's innermost frame; `None` if it runs no Python.
    fn innermost(&self) -> Option<usize> {
        // SAFETY: it reads a flag, at any time.
        if unsafe { (self.is_initialised)() } == 0 {
            return None;
        }
        // SAFETY: it returns a value of this thread, and takes no lock.
        let state = unsafe { (self.own_state)() }.expose_provenance();
        let current = self.memory.word(state, self.layout.current)?;
        match self.layout.through_frame_of_c {
            NONE => Some(current),
            offset => self.memory.word(current, offset),
        }
    }

    /// Returns a frame's position and the frame that called it (0 if there is none). The position is `None` for a frame
    /// without Python code.
    fn frame(&self, frame: usize) -> Option<(Option<At>, usize)> {
        let (memory, layout) = (&self.memory, &self.layout);
        let outer = memory.word(frame, layout.previous)?;
        if memory.byte(frame, layout.owner)? >= layout::OWNED_BY_C {
            return Some((None, outer));
        }
        let code = memory.word(frame, layout.code)? & !layout::TAG;
        if memory.word(code, layout.type_of)? != self.types.code {
            return None;
        }
        let first = match layout.copies {
            NONE => code.checked_add(layout.instructions)?,
            list => self.first_of_copy(code, frame, list)?,
        };
        let instruction = memory.word(frame, layout.instruction)?;
        Some((Some((code, instruction.checked_sub(first)?)), outer))
    }

    /// Returns the first instruction of the copy of a code object that a frame runs.
    fn first_of_copy(&self, code: usize, frame: usize, list: usize) -> Option<usize> {
        let memory = &self.memory;
        let number = memory.half(frame, self.layout.copy)? as usize;
        let mut copies = memory.word(code, list)?;
        loop {
            // The number of copies, followed by their addresses.
            let is_there = memory.word(copies, 0).is_some_and(|count| number < count);
            let first = is_there.then(|| memory.word(copies, 8 + 8 * number));
            fence(Ordering::Acquire);
            // Another thread may have replaced the list by a longer one: then what was read is not valid.
            match memory.word(code, list)? {
                same if same == copies => return first?,
                other => copies = other,
            }
        }
    }

    /// Returns `true` if the code is still the same: it may be gone, with other code in its place. For a library only
    /// the file matters.
    #[inline]
    fn is_still(&self, code: usize, known: &CodePlace) -> bool {
        let (memory, layout) = (&self.memory, &self.layout);
        let is_at = |object: &Object, at| memory.word(code, at).is_some_and(|at| object.is_at(memory, layout, at));
        is_at(&known.file, layout.file)
            && (known.is_library
                || memory.half(code, layout.first_line) == Some(known.first_line) && is_at(&known.table, layout.lines))
    }

    /// Reads the file, function and line of a place.
    #[cold]
    fn known(&self, (code, distance): At) -> Option<CodePlace> {
        let (memory, layout, types) = (&self.memory, &self.layout, &self.types);
        let text = |at: usize| Object::text(memory, layout, types, memory.word(code, at)?);
        let (file, function) = (text(layout.file)?, text(layout.qualified_name)?.characters());
        let table = Object::bytes(memory, layout, types, memory.word(code, layout.lines)?)?;
        let first_line = memory.half(code, layout.first_line)?;
        let line = lines::line_at(&table.bytes, first_line, distance);
        let name = file.characters();
        let is_library = is_library(&name);
        let line = Line { file: name, line, function };
        Some(CodePlace { line, number: None, is_library, first_line, file, table })
    }
}

/// Returns `true` if a file is one of the libraries' whose callers count, or code that a library generated.
fn is_library(file: &str) -> bool {
    if file.starts_with("<frozen ") || file.starts_with("<eval_with_key>") || file.contains("/torchinductor_") {
        return true;
    }
    let mut folders = file.split('/').peekable();
    while let Some(folder) = folders.next() {
        let is_root = folder == "site-packages" || folder == "dist-packages" || folder.starts_with("python3.");
        if is_root && folders.peek().is_some_and(|name| LIBRARIES.contains(name)) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local!(static STATE: Cell<usize> = const { Cell::new(0) });

    extern "C" fn own_state() -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(STATE.get())
    }

    extern "C" fn is_initialised() -> i32 {
        1
    }

    /// Returns an interpreter of 3.12 whose thread's state is in these words.
    fn interpreter(words: &[Cell<usize>]) -> Python {
        STATE.set(words.as_ptr().expose_provenance());
        let memory = Memory::default();
        let layout = layout_of(0x030c_00f0, 0, &memory).expect("a layout");
        let types = Types { code: 1, text: 2, bytes: 3 };
        let it = Interpreter { own_state, is_initialised, layout, types, memory };
        Python { state: State::There(Box::new(it)), known: FxHashMap::default() }
    }

    fn is_trusted(python: &Python) -> bool {
        matches!(&python.state, State::There(it) if it.memory.is_trusted())
    }

    #[test]
    fn memory_is_trusted_once_code_was_read() {
        let words = [const { Cell::new(0) }; 100];
        let address = |word: usize| words.as_ptr().addr() + 8 * word;
        let mut python = interpreter(&words);
        // The C frame, without a Python frame: this shows nothing of the frames' layout.
        words[7].set(address(10));
        assert!(python.line().is_none() && !is_trusted(&python) && !python.is_refused());
        // A frame with code. Its file and its function are strings of one character each, and its line table has one
        // entry.
        words[10].set(address(20));
        words[20].set(address(40));
        words[27].set(address(40) + 192);
        words[40 + 1].set(1);
        for (place, text) in [(14, 70), (16, 76)] {
            words[40 + place].set(address(text));
            words[text + 1].set(2);
            words[text + 2].set(1);
            words[text + 4].set(0x64);
            words[text + 5].set(usize::from(b'x'));
        }
        words[40 + 17].set(address(82));
        words[82 + 1].set(3);
        words[82 + 2].set(2);
        words[82 + 4].set(0xd0);
        words[40 + 8].set(7 << 32);
        let line = python.line().expect("a line").line.clone();
        assert_eq!((line.file.as_str(), line.function.as_str(), line.line), ("x", "x", Some(7)));
        assert!(is_trusted(&python));
        // The code has another type: nothing is read any more.
        let mut python = interpreter(&words);
        words[40 + 1].set(4);
        assert!(python.line().is_none() && python.is_refused());
    }

    /// The calling frame is not mapped.
    #[test]
    fn a_frame_that_is_not_mapped_is_refused() {
        let words = [const { Cell::new(0) }; 100];
        let address = |word: usize| words.as_ptr().addr() + 8 * word;
        for nowhere in [usize::MAX, usize::MAX - 60, 1 << 46, 16] {
            words[7].set(address(10));
            words[10].set(nowhere);
            let mut python = interpreter(&words);
            assert!(python.line().is_none() && python.is_refused(), "{nowhere:#x}");
        }
    }

    /// Returns a description as of 3.14, in which each offset is its own place in the description.
    fn description(version: u64, has_no_lock: u64) -> Vec<u64> {
        let mut words: Vec<u64> = (0..100).map(|at| at * 8).collect();
        words[0] = u64::from_le_bytes(*b"xdebugpy");
        (words[1], words[2]) = (version, has_no_lock);
        words
    }

    fn layout(version: u64, words: &[u64]) -> Option<Layout> {
        layout_of(version, words.as_ptr().expose_provenance(), &Memory::default())
    }

    const VERSION: u64 = 0x030e_00f0;

    #[test]
    fn an_interpreter_is_read_as_it_describes_itself() {
        let locked = layout(VERSION, &description(VERSION, 0)).expect("a layout");
        let not_ascii = locked.ascii + locked.more_if_not_ascii;
        assert_eq!((locked.current, locked.code, not_ascii, locked.copies), (208, 264, 656, NONE));
        let free = layout(VERSION, &description(VERSION, 1)).expect("a layout");
        assert_eq!((free.current, free.copies, free.copy), (208, 392, 304));
        assert_eq!((free.state.width, locked.state.width), (0x700, 0x1c));
    }

    #[test]
    fn every_version_has_its_own_column() {
        let of = |version: u64| {
            let it = layout(version, &description(version, 1)).expect("a layout");
            let offsets = [it.through_frame_of_c, it.code, it.first_line, it.copy, it.ascii, it.more_if_not_ascii];
            (offsets, it.state.width)
        };
        assert_eq!(of(0x030b_00f0), ([8, 32, 72, NONE, 48, 24], 0x1c));
        assert_eq!(of(0x030c_00f0), ([0, 0, 68, NONE, 40, 16], 0x1c));
        assert_eq!(of(0x030d_00f0), ([NONE, 240, 312, NONE, 560, 16], 0x1c));
        assert_eq!(of(0x030e_00f0), ([NONE, 264, 352, 304, 640, 16], 0x700));
        assert_eq!(of(0x030f_00f0), ([NONE, 328, 416, 368, 736, 16], 0x700));
    }

    #[test]
    fn another_description_is_not_read() {
        let right = description(VERSION, 0);
        assert!(layout(VERSION + 1, &right).is_none(), "of another version");
        assert!(layout(0x0310_00f0, &description(0x0310_00f0, 0)).is_none(), "a version that is not known");
        assert!(layout(VERSION, &description(VERSION, 2)).is_none(), "neither with a lock nor without");
        for (at, word) in [(0, 0), (208 / 8, u64::MAX), (288 / 8, 1 << 14), (640 / 8, u64::MAX - 8)] {
            let mut words = right.clone();
            words[at] = word;
            assert!(layout(VERSION, &words).is_none(), "{word:#x} at {at}");
        }
        for nowhere in [0, 8, usize::MAX - 4] {
            assert!(layout_of(VERSION, nowhere, &Memory::default()).is_none());
        }
    }

    #[test]
    fn callers_of_the_libraries_count() {
        let yes = [
            "/usr/lib/python3.12/ctypes/__init__.py",
            "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py",
            "/usr/lib/python3/dist-packages/cupy/_core/core.py",
            "/tmp/torchinductor_root/ab/cab.py",
            "<frozen runpy>",
        ];
        assert!(yes.iter().all(|file| is_library(file)), "{yes:?}");
        let no = ["train.py", "/srv/me/torch/train.py", "/opt/lib/python3.12/site-packages/vllm/engine.py", "<string>"];
        assert!(!no.iter().any(|file| is_library(file)), "{no:?}");
    }
}
