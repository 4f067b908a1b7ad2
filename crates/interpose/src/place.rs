//! The places of calls in the program: numbers for return addresses, and their meaning.
//!
//! If the thread runs Python, the place is the line there (`python`). Otherwise it is the call in native code. A hash
//! finds the number of a return address at once. If a CUDA library made the call (the runtime, cuBLAS), the first frame
//! above the library counts. It is found by unwinding. From then on the sizes of the library's frames are known, and
//! the return addresses are read from the stack. The function, the file and the line are looked up only when they are
//! shown: for a trace at the first call from a place, for a checker when there is a finding.

pub(crate) mod launches;
mod objects;

pub(crate) use objects::{is_loaded, unloaded};

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::entry::thunk::Entered;
use crate::kernel_name;
use crate::python::{Line, Python};

/// The source position of a return address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Spot {
    /// The source file. If it is not known: the function and the module.
    pub(crate) file: String,
    /// The line, if it is known.
    pub(crate) line: Option<u32>,
    /// The function, if the file is known.
    pub(crate) function: Option<String>,
}

#[derive(Debug)]
struct Site {
    pc: usize,
    spot: Option<Spot>,
    /// The whole stack, if stacks are kept.
    stack: Option<Arc<Stack>>,
}

/// A whole stack, as numbers of places.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Stack {
    /// The place that the stack belongs to.
    place: u32,
    /// The Python frames, innermost first. `native` has the native frames, without those of the interpreter.
    python: Vec<u32>,
    native: Vec<u32>,
}

/// The places of a process.
#[derive(Debug, Default)]
pub(crate) struct Places {
    numbers: FxHashMap<usize, u32>,
    sites: Vec<Site>,
    /// `true` for return addresses in CUDA libraries, and in the functions of kernels.
    libraries: FxHashMap<usize, bool>,
    stubs: Stubs,
    /// The frames of CUDA libraries that were unwound, by return address.
    frames: FxHashMap<usize, Frame>,
    /// The last call that the program itself made.
    last: Option<(usize, u32)>,
    python: Python,
    lines: FxHashMap<Line, u32>,
    /// Whole stacks, if they are kept.
    stacks: Option<FxHashMap<Arc<Stack>, u32>>,
}

/// The frame of a function that a return address is in.
#[derive(Debug, Default)]
struct Frame {
    /// The distance on the stack from this return address to that of the function's caller. A call in a function nearly
    /// always has the same one.
    bytes: usize,
    /// The return addresses that were found there.
    above: FxHashSet<usize>,
}

/// The prefixes of the names of CUDA's libraries.
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

/// Returns `true` if the code at a return address is a CUDA library's. Functions of the static runtime are recognised
/// by name.
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

/// The functions that nvcc puts between a launch `kernel<<<...>>>()` and the runtime: a helper of its headers, for each
/// kernel a function whose name begins so and ends with the kernel's, and one that has the kernel's name.
const HELPER: &str = "__cudaLaunchKernel_";
const STUB: &str = "__device_stub__";

/// The functions of kernels that a program launches by `<<<...>>>`, by their mangled names.
#[derive(Debug, Default)]
struct Stubs(FxHashSet<String>);

impl Stubs {
    /// Returns `true` if the code of a call is one of those functions. Of inlined functions the outermost counts.
    fn have(&mut self, call: usize) -> bool {
        let mut is_stub = false;
        symbols(call, |symbol| is_stub = self.is_one(symbol));
        is_stub
    }

    /// Returns `true` if a function is one of those. A kernel's own function is known once its stub was seen, which is
    /// further in.
    fn is_one(&mut self, symbol: &backtrace::Symbol) -> bool {
        let name = symbol.name();
        let Some(name) = name.as_ref().and_then(backtrace::SymbolName::as_str) else { return false };
        let plain = kernel_name::readable(name);
        if let Some(kernel) = plain.strip_prefix(STUB) {
            self.0.extend([kernel.to_owned(), format!("_{kernel}")]);
            return true;
        }
        plain.starts_with(HELPER) || self.0.contains(name)
    }
}

/// Returns the addresses of this thread's stack; an empty range if they are not known.
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

/// Returns the word `offset` bytes above an address of this thread's stack. `None` past the stack's end (a thread may
/// call from fewer frames than the one before), and on a stack that the program made itself.
#[inline]
fn stack_word(sp: usize, offset: usize) -> Option<usize> {
    let (stack, at) = (stack(), sp + offset);
    let is_there = stack.contains(&sp) && at.is_multiple_of(align_of::<usize>()) && at < stack.end - 7;
    // SAFETY: eight bytes between the stack pointer and the end of the stack, aligned.
    is_there.then(|| unsafe { *std::ptr::with_exposed_provenance::<usize>(at) })
}

/// The most native frames that are kept.
const FRAMES_MAX: usize = 64;

impl Places {
    /// Returns an empty set of places, with whole stacks or without.
    pub(crate) fn new(with_stacks: bool) -> Self {
        Self { stacks: with_stacks.then(FxHashMap::default), ..Self::default() }
    }

    /// Returns the number of a call's place, counted from 0. The place is the line of Python, the return address, or
    /// the return address of the first frame above the CUDA libraries.
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
            // Some unwinders go past the start of a thread to addresses that are no code.
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

    /// Returns the frames of a place as text, if they were kept.
    pub(crate) fn frames(&mut self, number: u32) -> Vec<String> {
        let Some(stack) = self.sites.get(number as usize).and_then(|site| site.stack.clone()) else {
            return Vec::new();
        };
        let all = stack.python.iter().chain(&stack.native);
        all.filter_map(|number| self.spot(*number).map(Spot::to_string)).collect()
    }

    /// Returns `true` if there is a Python interpreter that cannot be read.
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
        if !self.is_library(at.pc) {
            let number = self.number_of(at.pc);
            self.last = Some((at.pc, number));
            return number;
        }
        let read = |offset| stack_word(at.sp, offset);
        let pc = self.above_libraries(at.pc, read).or_else(|| self.unwind(at)).unwrap_or(at.pc);
        self.number_of(pc)
    }

    /// Returns the first return address above the CUDA libraries, if all frames below it were unwound before. `read`
    /// returns the word that is so many bytes above that of `pc`.
    fn above_libraries(&self, mut pc: usize, read: impl Fn(usize) -> Option<usize>) -> Option<usize> {
        let mut offset = 0;
        for _ in 0..FRAMES_MAX {
            let frame = self.frames.get(&pc)?;
            offset += frame.bytes;
            pc = read(offset).filter(|word| frame.above.contains(word))?;
            if !*self.libraries.get(&pc)? {
                return Some(pc);
            }
        }
        None
    }

    /// Finds the first return address above the CUDA libraries by unwinding, and notes the frames below it.
    #[cold]
    fn unwind(&mut self, at: Entered) -> Option<usize> {
        let (mut below, mut found) = (None, None);
        backtrace::trace(|frame| {
            let pc = frame.ip().addr();
            if below.is_none() && pc != at.pc {
                return true;
            }
            let slot = if below.is_none() { at.sp } else { frame.sp().addr().wrapping_sub(8) };
            if let Some((below, at)) = below.replace((pc, slot))
                && let Some(bytes) = slot.checked_sub(at).filter(|bytes| stack_word(at, *bytes) == Some(pc))
            {
                self.add_frame(below, bytes, pc);
            }
            found = (!self.is_library(pc)).then_some(pc);
            found.is_none()
        });
        found
    }

    fn add_frame(&mut self, pc: usize, bytes: usize, above: usize) {
        let frame = self.frames.entry(pc).or_default();
        if frame.bytes != bytes {
            *frame = Frame { bytes, above: FxHashSet::default() };
        }
        frame.above.insert(above);
    }

    /// Returns `true` if an address is a CUDA library's, also one linked into the program.
    fn is_library(&mut self, pc: usize) -> bool {
        let Self { libraries, stubs, .. } = self;
        *libraries.entry(pc).or_insert_with(|| is_cuda(pc) || stubs.have(pc.wrapping_sub(1)))
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
        // An interpreter may have been loaded since.
        self.python.look();
        let number = self.sites.len() as u32;
        self.sites.push(Site { pc, spot: None, stack: None });
        self.numbers.insert(pc, number);
        number
    }

    /// Returns the source position of a place.
    pub(crate) fn spot(&mut self, number: u32) -> Option<&Spot> {
        let number = self.sites.get(number as usize)?.stack.as_ref().map_or(number, |stack| stack.place);
        let site = self.sites.get_mut(number as usize)?;
        let pc = site.pc;
        Some(site.spot.get_or_insert_with(|| resolve(pc, &mut self.stubs)))
    }

    /// Forgets the return addresses in code that may be unloaded. Their source positions are looked up first.
    pub(crate) fn forget_code(&mut self, code: &Range<usize>) {
        for site in self.sites.iter_mut().filter(|site| site.spot.is_none() && code.contains(&site.pc)) {
            site.spot = Some(resolve(site.pc, &mut self.stubs));
        }
        self.last = None;
        self.numbers.retain(|pc, _| !code.contains(pc));
        self.libraries.retain(|pc, _| !code.contains(pc));
        self.frames.retain(|pc, frame| {
            frame.above.retain(|pc| !code.contains(pc));
            !code.contains(pc)
        });
    }

    /// Forgets all return addresses.
    pub(crate) fn forget_all_code(&mut self) {
        self.last = None;
        self.numbers.clear();
        self.libraries.clear();
        self.frames.clear();
    }

    /// Returns the function that a line is in, if that line was looked up.
    pub(crate) fn function(&self, file: &str, line: u32) -> Option<&str> {
        let spots = self.sites.iter().filter_map(|site| site.spot.as_ref());
        spots.filter(|spot| spot.line == Some(line) && spot.file == file).find_map(|spot| spot.function.as_deref())
    }
}

/// Returns the number of a line of Python.
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

/// Returns `true` if the code is the interpreter's own.
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

/// Calls `see` with the symbols of an address, from debug data.
fn symbols(at: usize, see: impl FnMut(&backtrace::Symbol)) {
    if objects::is_first(at) {
        backtrace::resolve(std::ptr::with_exposed_provenance_mut(at), see);
    }
}

/// Returns the source position of the call before a return address.
fn resolve(pc: usize, stubs: &mut Stubs) -> Spot {
    let call = pc.wrapping_sub(1);
    let mut spot = Spot::default();
    symbols(call, |symbol| {
        // The innermost of inlined functions comes first.
        if spot.file.is_empty()
            && !stubs.is_one(symbol)
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

/// Returns the function and the module at an address, as text.
fn symbol_at(at: usize) -> String {
    let Some((module, symbol)) = loaded(at) else { return format!("{at:#x}") };
    let module = module.rsplit('/').next().unwrap_or_default();
    match symbol {
        Some((name, offset)) => format!("{name}+{offset:#x} ({module})"),
        // The offset in the module is the same in each run.
        None => {
            let base = object_of(at).map_or(0, |info| info.dli_fbase.addr());
            format!("+{:#x} ({module})", at.wrapping_sub(base))
        }
    }
}

/// Returns the addresses of the object of a loader's handle.
pub(crate) fn code_of(library: *mut c_void) -> Option<Range<usize>> {
    let mut map = std::ptr::null::<usize>();
    // SAFETY: a handle of the program's, and a local for the pointer that this request writes.
    let answer = unsafe { libc::dlinfo(library, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
    // SAFETY: the loader's structure, whose first word is the base address.
    let base = (answer == 0 && !map.is_null()).then(|| unsafe { *map })?;
    objects::range_of(base)
}

/// Returns what the loader knows of an address.
fn object_of(at: usize) -> Option<libc::Dl_info> {
    // SAFETY: a structure of pointers and numbers, for which 0 is a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let is_known = unsafe { libc::dladdr(std::ptr::with_exposed_provenance::<c_void>(at), &raw mut info) } != 0;
    is_known.then_some(info)
}

/// Returns the module at an address, and its function with the distance from the function's start, as the loader knows
/// them.
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
    fn code_that_is_unloaded_is_forgotten_and_other_code_is_not() {
        let mut places = Places::default();
        let numbers = [0x1000, 0x2000, 0x2008].map(|pc| places.number_of(pc));
        for (pc, above) in [(0x1000, 0x1010), (0x1000, 0x2010), (0x2000, 0x1010)] {
            places.add_frame(pc, 8, above);
        }
        places.libraries.extend([(0x1000, true), (0x2000, false)]);
        places.last = Some((0x2000, 1));
        places.forget_code(&(0x2000..0x3000));
        assert!(places.sites[1].spot.is_some() && places.sites[0].spot.is_none() && places.last.is_none());
        assert_eq!(places.number_of(0x1000), numbers[0]);
        assert!(!numbers.contains(&places.number_of(0x2000)), "other code has its address");
        let (frames, libraries) = (&places.frames, &places.libraries);
        assert!(frames[&0x1000].above.iter().eq([&0x1010]));
        assert!(frames.len() == 1 && libraries.len() == 1 && libraries.contains_key(&0x1000));
    }

    #[test]
    fn the_program_is_found_above_frames_that_were_unwound() {
        let mut places = Places::default();
        // The library calls itself from 0x12; the program calls it from 0x90 and 0x94.
        places.libraries.extend([(0x10, true), (0x12, true), (0x90, false), (0x94, false)]);
        for (pc, bytes, above) in [(0x10, 16, 0x90), (0x10, 16, 0x12), (0x12, 8, 0x12), (0x12, 8, 0x90)] {
            places.add_frame(pc, bytes, above);
        }
        let found = |stack: &[usize]| places.above_libraries(0x10, |offset| stack.get(offset / 8).copied());
        assert_eq!(found(&[0x10, 0, 0x90]), Some(0x90));
        assert_eq!(found(&[0x10, 0, 0x12, 0x12, 0x12, 0x90]), Some(0x90), "however deep it is");
        assert_eq!(found(&[0x10, 0, 0x94]), None, "it was not seen there");
        assert_eq!(found(&[0x10, 0x90, 0]), None, "frames have another size");
        assert_eq!((found(&[0x10, 0, 0x12]), found(&[0x12; 200])), (None, None), "the stack ends, or does not end");
        places.add_frame(0x10, 8, 0x94);
        let found = |stack: &[usize]| places.above_libraries(0x10, |offset| stack.get(offset / 8).copied());
        assert_eq!((found(&[0x10, 0x94]), found(&[0x10, 0, 0x90])), (Some(0x94), None));
    }

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
