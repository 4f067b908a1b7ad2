//! Where calls stand in the program: numbers for return addresses, and what they mean.
//!
//! Where the thread runs Python, the line there is the place (`python`). Otherwise the call in native code is: a return
//! address is a number at once, found by a hash. Where a CUDA library made the call (the runtime, cuBLAS), the
//! first frame above it counts: it is found by unwinding once, and from then on by its distance on the stack. What
//! stands there (the function, the file, the line) is looked up when it is shown: for a trace at the first call from
//! there, for a finding when there is one.

mod objects;

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::entry::thunk::Entered;
use crate::python::{Line, Python};

/// What stands at a return address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Spot {
    /// The source file, or the function and the module where that is not known.
    pub(crate) file: String,
    /// The line, where it is known.
    pub(crate) line: Option<u32>,
    /// The function, where the file is known.
    pub(crate) function: Option<String>,
}

#[derive(Debug)]
struct Site {
    pc: usize,
    spot: Option<Spot>,
    /// The whole stack, where that is wanted.
    stack: Option<Arc<Stack>>,
}

/// A whole stack, by the numbers of its places.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Stack {
    /// The place that stands for it.
    place: u32,
    /// Frames of Python, the innermost first, and where the interpreter is not in between, of native code.
    python: Vec<u32>,
    native: Vec<u32>,
}

/// The places of a process.
#[derive(Debug, Default)]
pub(crate) struct Places {
    numbers: FxHashMap<usize, u32>,
    sites: Vec<Site>,
    /// Who calls from where, by return address.
    callers: FxHashMap<usize, Caller>,
    libraries: FxHashMap<usize, bool>,
    /// The call of the program itself that was met last.
    last: Option<(usize, u32)>,
    python: Python,
    lines: FxHashMap<Line, u32>,
    /// Whole stacks, where they are wanted.
    stacks: Option<FxHashMap<Arc<Stack>, u32>>,
}

/// Who calls.
#[derive(Debug)]
enum Caller {
    Program,
    /// A CUDA library: how far above its call the return address into the program was, and which were found there.
    Library {
        offset: usize,
        above: FxHashSet<usize>,
    },
}

/// How the names of CUDA's libraries begin.
const LIBRARIES: [&str; 10] = [
    "libcuda",
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcurand",
    "libcusparse",
    "libcusolver",
    "libnvrtc",
    "libnvJitLink",
    "libnccl",
];

/// Whether code at a return address is a CUDA library's. The static runtime's functions are known by their names.
fn is_cuda(pc: usize) -> bool {
    let call = pc.wrapping_sub(1);
    let Some((module, symbol)) = loaded(call) else { return false };
    let file = module.rsplit('/').next().unwrap_or_default();
    if LIBRARIES.iter().any(|name| file.starts_with(name)) {
        return true;
    }
    let is_runtime = |name: &str| {
        name.starts_with("libcudart_static_")
            || name.starts_with("__cudart")
            || name.starts_with("cudart")
            || name.strip_prefix("cuda").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
    };
    if let Some((name, _)) = symbol {
        return is_runtime(&name);
    }
    let mut is_found = false;
    symbols(call, |symbol| {
        is_found |= symbol.name().and_then(|name| name.as_str()).is_some_and(is_runtime);
    });
    is_found
}

/// The addresses of this thread's stack; none where those are not known.
fn stack() -> Range<usize> {
    thread_local!(static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) });
    let (mut start, mut end) = STACK.get();
    if end == 0 {
        (start, end) = own_stack().unwrap_or((usize::MAX, usize::MAX));
        STACK.set((start, end));
    }
    start..end
}

#[cold]
fn own_stack() -> Option<(usize, usize)> {
    // SAFETY: a structure of numbers and pointers, for which 0 is a value.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: takes nothing.
    let own = unsafe { libc::pthread_self() };
    // SAFETY: the calling thread lives; the attributes are initialised by this.
    if unsafe { libc::pthread_getattr_np(own, &raw mut attributes) } != 0 {
        return None;
    }
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes were initialised; both places are this function's.
    let got = unsafe { libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut bytes) };
    // SAFETY: they were initialised, and are not used any more.
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    (got == 0).then(|| (start.addr(), start.addr() + bytes))
}

/// The word so far above a place of this thread's stack. None beyond its end (a thread that calls from fewer frames
/// than the one before), and on a stack that a program made itself.
#[inline]
fn stack_word(sp: usize, offset: usize) -> Option<usize> {
    let (stack, at) = (stack(), sp + offset);
    let is_there = stack.contains(&sp) && at.is_multiple_of(align_of::<usize>()) && at < stack.end - 7;
    // SAFETY: eight bytes between the stack pointer and the end of the stack, aligned.
    is_there.then(|| unsafe { *std::ptr::with_exposed_provenance::<usize>(at) })
}

/// So many frames of native code are kept.
const FRAMES_MAX: usize = 64;

impl Places {
    /// Places, each with its whole stack or without.
    pub(crate) fn new(with_stacks: bool) -> Self {
        Self { stacks: with_stacks.then(FxHashMap::default), ..Self::default() }
    }

    /// The number of the place where a call stands, counted from 0: the line of Python, or the return address, or that
    /// of the first frame above the CUDA libraries.
    #[inline]
    pub(crate) fn number(&mut self, at: Entered) -> u32 {
        let place = match self.in_python() {
            Some(number) => number,
            None => self.in_native_code(at),
        };
        if self.stacks.is_some() { self.whole_stack(place, at) } else { place }
    }

    #[cold]
    fn whole_stack(&mut self, place: u32, at: Entered) -> u32 {
        let lines = self.python.lines();
        let python: Vec<u32> =
            lines.iter().map(|line| number_of_line(&mut self.lines, &mut self.sites, line)).collect();
        let (mut is_above, mut native) = (false, Vec::new());
        backtrace::trace(|frame| {
            let pc = frame.ip().addr();
            is_above |= pc == at.pc;
            // Where a thread begins some unwinders go on to addresses of nothing.
            let is_there = object_of(pc).is_some();
            if is_above && is_there && (python.is_empty() || !is_interpreter(pc)) {
                native.push(pc);
            }
            native.len() < FRAMES_MAX && (is_there || !is_above)
        });
        let native = native.into_iter().map(|pc| self.number_of(pc)).collect();
        let stack = Arc::new(Stack { place, python, native });
        let next = self.sites.len() as u32;
        let Some(known) = &mut self.stacks else { return place };
        let number = *known.entry(Arc::clone(&stack)).or_insert(next);
        if number == next {
            self.sites.push(Site { pc: 0, spot: None, stack: Some(stack) });
        }
        number
    }

    /// The frames of a place, in words, where they were kept.
    pub(crate) fn frames(&mut self, number: u32) -> Vec<String> {
        let Some(stack) = self.sites.get(number as usize).and_then(|site| site.stack.clone()) else {
            return Vec::new();
        };
        let all = stack.python.iter().chain(&stack.native);
        all.filter_map(|number| self.spot(*number).map(Spot::to_string)).collect()
    }

    /// Whether there is a Python whose lines are not known.
    pub(crate) fn is_without_python(&self) -> bool {
        self.python.is_refused()
    }

    #[inline]
    fn in_python(&mut self) -> Option<u32> {
        let known = self.python.line()?;
        if known.number.is_none() {
            known.number = Some(number_of_line(&mut self.lines, &mut self.sites, &known.line));
        }
        known.number
    }

    #[inline]
    fn in_native_code(&mut self, at: Entered) -> u32 {
        match self.last {
            Some((pc, number)) if pc == at.pc => number,
            _ => self.find_in_native_code(at),
        }
    }

    fn find_in_native_code(&mut self, at: Entered) -> u32 {
        match self.callers.get(&at.pc) {
            Some(Caller::Program) => {
                let number = self.number_of(at.pc);
                self.last = Some((at.pc, number));
                number
            }
            Some(Caller::Library { offset, above }) => {
                // Frames have a fixed size nearly always: the word at the same distance is a return address that was
                // found there before.
                match stack_word(at.sp, *offset).filter(|word| above.contains(word)) {
                    Some(word) => self.number_of(word),
                    None => self.unwind(at),
                }
            }
            None => self.unwind(at),
        }
    }

    /// Finds the first frame above the CUDA libraries, by unwinding.
    #[cold]
    fn unwind(&mut self, at: Entered) -> u32 {
        if !self.is_library(at.pc) {
            self.callers.insert(at.pc, Caller::Program);
            return self.number_of(at.pc);
        }
        let (mut is_above, mut found) = (false, None);
        backtrace::trace(|frame| {
            let pc = frame.ip().addr();
            is_above |= pc == at.pc;
            if is_above && !self.is_library(pc) {
                found = Some((pc, frame.sp().addr().wrapping_sub(8)));
            }
            found.is_none()
        });
        let Some((pc, slot)) = found else { return self.number_of(at.pc) };
        // SAFETY: a place of this thread's stack, which the unwinder has read.
        let is_slot = slot > at.sp && unsafe { *std::ptr::with_exposed_provenance::<usize>(slot) } == pc;
        if is_slot {
            let new = || Caller::Library { offset: slot - at.sp, above: FxHashSet::default() };
            if let Caller::Library { offset, above } = self.callers.entry(at.pc).or_insert_with(new) {
                if *offset != slot - at.sp {
                    above.clear();
                    *offset = slot - at.sp;
                }
                above.insert(pc);
            }
        }
        self.number_of(pc)
    }

    /// Whether an address is of a CUDA library, be it linked into the program.
    fn is_library(&mut self, pc: usize) -> bool {
        *self.libraries.entry(pc).or_insert_with(|| is_cuda(pc))
    }

    #[inline]
    fn number_of(&mut self, pc: usize) -> u32 {
        match self.numbers.get(&pc) {
            Some(number) => *number,
            None => self.add(pc),
        }
    }

    #[cold]
    fn add(&mut self, pc: usize) -> u32 {
        // An interpreter may have been loaded meanwhile.
        self.python.look();
        let number = self.sites.len() as u32;
        self.sites.push(Site { pc, spot: None, stack: None });
        self.numbers.insert(pc, number);
        number
    }

    /// What stands there.
    pub(crate) fn spot(&mut self, number: u32) -> Option<&Spot> {
        let number = self.sites.get(number as usize)?.stack.as_ref().map_or(number, |stack| stack.place);
        let site = self.sites.get_mut(number as usize)?;
        let pc = site.pc;
        Some(site.spot.get_or_insert_with(|| resolve(pc)))
    }

    /// Code may go: return addresses stand for nothing from now on. What stands in the object at `base` is looked up
    /// before.
    pub(crate) fn forget_code(&mut self, base: Option<usize>) {
        for site in self.sites.iter_mut().filter(|site| base.is_some() && site.spot.is_none() && site.pc != 0) {
            if object_of(site.pc).is_some_and(|it| Some(it.dli_fbase.addr()) == base) {
                site.spot = Some(resolve(site.pc));
            }
        }
        self.last = None;
        self.numbers.clear();
        self.callers.clear();
        self.libraries.clear();
    }

    /// The function that a line is in, where both were asked for.
    pub(crate) fn function(&self, file: &str, line: u32) -> Option<&str> {
        let spots = self.sites.iter().filter_map(|site| site.spot.as_ref());
        spots.filter(|spot| spot.line == Some(line) && spot.file == file).find_map(|spot| spot.function.as_deref())
    }
}

/// The number of a line of Python.
fn number_of_line(lines: &mut FxHashMap<Line, u32>, sites: &mut Vec<Site>, line: &Line) -> u32 {
    if let Some(number) = lines.get(line) {
        return *number;
    }
    let (file, function) = (line.file.clone(), Some(line.function.clone()));
    let number = sites.len() as u32;
    sites.push(Site { pc: 0, spot: Some(Spot { file, line: line.line, function }), stack: None });
    lines.insert(line.clone(), number);
    number
}

/// Whether code is the interpreter's own.
fn is_interpreter(pc: usize) -> bool {
    let Some((module, _)) = loaded(pc.wrapping_sub(1)) else { return false };
    let file = module.rsplit('/').next().unwrap_or_default();
    file.starts_with("libpython") || file.starts_with("python")
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))?;
        self.function.as_ref().map_or(Ok(()), |function| write!(f, " ({function})"))
    }
}

/// The symbols at an address, as debug data has them.
fn symbols(at: usize, see: impl FnMut(&backtrace::Symbol)) {
    if objects::is_first(at) {
        backtrace::resolve(std::ptr::with_exposed_provenance_mut(at), see);
    }
}

/// What stands before a return address: the call.
fn resolve(pc: usize) -> Spot {
    let call = pc.wrapping_sub(1);
    let mut spot = Spot::default();
    symbols(call, |symbol| {
        // The innermost of inlined functions comes first.
        if spot.file.is_empty()
            && let (Some(file), line @ Some(_)) = (symbol.filename(), symbol.lineno())
        {
            spot.file = file.display().to_string();
            spot.line = line;
            spot.function = symbol.name().map(|name| name.to_string());
        }
    });
    if spot.file.is_empty() {
        spot.file = symbol_at(call);
    }
    spot
}

/// The function and the module at an address, in words.
fn symbol_at(at: usize) -> String {
    let Some((module, symbol)) = loaded(at) else { return format!("{at:#x}") };
    let module = module.rsplit('/').next().unwrap_or_default();
    match symbol {
        Some((name, offset)) => format!("{name}+{offset:#x} ({module})"),
        None => format!("{at:#x} ({module})"),
    }
}

/// Where the object of a handle of the loader's lies.
pub(crate) fn base_of(library: *mut c_void) -> Option<usize> {
    let mut map = std::ptr::null::<usize>();
    // SAFETY: a handle of the program's, and a place for a pointer, as this question wants it.
    let answer = unsafe { libc::dlinfo(library, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
    // SAFETY: the loader's structure, whose first word is that.
    (answer == 0 && !map.is_null()).then(|| unsafe { *map })
}

/// What the loader knows of an address.
fn object_of(at: usize) -> Option<libc::Dl_info> {
    // SAFETY: a structure of pointers and numbers, for which 0 is a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let is_known = unsafe { libc::dladdr(std::ptr::with_exposed_provenance::<c_void>(at), &raw mut info) } != 0;
    is_known.then_some(info)
}

/// The module at an address, and its function with the distance from there, as the loader knows them.
fn loaded(at: usize) -> Option<(String, Option<(String, usize)>)> {
    let info = object_of(at)?;
    let text = |at: *const std::ffi::c_char| {
        // SAFETY: a string of the loader's, which lives as long as the module.
        (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned())
    };
    let symbol = text(info.dli_sname).map(|name| (name, at - info.dli_saddr.addr()));
    Some((text(info.dli_fname).unwrap_or_default(), symbol))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_read_beyond_the_end_of_a_stack() {
        let outside = Box::new(0_usize);
        let look = || {
            let here = 0x0123_4567_usize;
            let (sp, stack) = ((&raw const here).addr(), stack());
            assert!(stack.contains(&sp));
            assert_eq!(stack_word(sp, 0), Some(here));
            assert!(stack_word(sp, (stack.end - 8 - sp) & !7).is_some(), "the last word");
            assert_eq!(stack_word(sp, (stack.end - sp) & !7), None);
            assert_eq!(stack_word(sp, 1), None, "not aligned");
            assert_eq!(stack_word((&raw const *outside).addr(), 0), None, "a stack that the program made");
        };
        look();
        std::thread::scope(|scope| scope.spawn(look).join()).unwrap();
    }
}
