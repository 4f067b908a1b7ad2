//! Launches of kernels: the addresses of known memory among their arguments.
//!
//! How long a kernel's parameters are is asked once for each function. Each eight bytes of them are looked up;
//! arguments that come as one buffer are all looked at. A kernel that gets an address is taken to use all of that
//! allocation, in a direction that is not known.

use std::ffi::{c_uint, c_void};

use millpond_core::op::{Access, Act, Mark, Name, Part, Start, What};
use rustc_hash::FxHashMap;

use super::{list, read};
use crate::abi::*;
use crate::ask;
use crate::index::{Entry, Index, Kind};
use crate::session::{Accesses, At, Session};

/// `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`
const BUFFER: usize = 1;
const BUFFER_BYTES: usize = 2;

/// Longer arguments are structures that programs fill in part. What is left of others in the rest may be addresses of
/// memory that is freed: those do not count.
const FILLED_MAX: u32 = 64;

/// `cuLaunchKernel`
pub(crate) unsafe fn launch(
    at: &At,
    real: impl FnOnce() -> Code,
    function: Function,
    _gx: c_uint,
    _gy: c_uint,
    _gz: c_uint,
    _bx: c_uint,
    _by: c_uint,
    _bz: c_uint,
    _shared: c_uint,
    stream: Stream,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> Code {
    // SAFETY: the caller's arguments.
    at.done(real(), |session| unsafe { session.kernel(at, function, stream, params, extra, Start::Ordered) })
}

/// `cuLaunchCooperativeKernel`
pub(crate) unsafe fn launch_cooperative(
    at: &At,
    real: impl FnOnce() -> Code,
    function: Function,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: Stream,
    params: *const *const c_void,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { launch(at, real, function, gx, gy, gz, bx, by, bz, shared, stream, params, std::ptr::null()) }
}

/// `cuLaunchKernelEx`
pub(crate) unsafe fn launch_ex(
    at: &At,
    real: impl FnOnce() -> Code,
    config: *const LaunchConfig,
    function: Function,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's structure.
        let Some(config) = (unsafe { read(config) }) else { return };
        // SAFETY: the caller's list.
        let attributes = unsafe { list(config.attributes, config.count as usize) };
        let is_early = attributes.iter().any(|it| it.id == ATTRIBUTE_EARLY && it.value[0] as u32 != 0);
        let start = if is_early { Start::Early } else { Start::Ordered };
        // SAFETY: the caller's arguments.
        unsafe { session.kernel(at, function, config.stream, params, extra, start) };
        for attribute in attributes.iter().filter(|it| matches!(it.id, ATTRIBUTE_EVENT | ATTRIBUTE_STARTED)) {
            let event = session.event(Event(attribute.value[0] as usize));
            let stream = session.stream(at, config.stream);
            session.push(What::EventRecord { event, stream, external: false, mark: Mark::Progress });
        }
    })
}

/// `cuModuleUnload`, `cuLibraryUnload`: handles of functions may mean others from now on.
pub(crate) unsafe fn unload(at: &At, real: impl FnOnce() -> Code, _module: usize) -> Code {
    at.note(|session| session.kernels.forget());
    real()
}

/// A word of an argument that may be an address.
#[derive(Clone, Copy, Default)]
struct Word {
    value: u64,
    /// Which argument it is in; [`BUFFERED`] where they come as one buffer.
    argument: u32,
    /// How long that is.
    bytes: u32,
}

const BUFFERED: u32 = u32::MAX;

/// So many mappings behind an address count.
const JOINED_MAX: usize = 64;

/// What a kernel takes, and what it is called.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// How many bytes each parameter has, where that is known.
    bytes: Option<Box<[u32]>>,
    name: Option<Name>,
}

/// Kernels that were launched.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    all: Vec<Kernel>,
    by_function: FxHashMap<Function, u32>,
    last: Option<(Function, u32)>,
}

impl Kernels {
    /// Where a kernel is in the list, if it was met.
    #[inline]
    fn find(&mut self, function: Function) -> Option<u32> {
        match self.last {
            Some((last, at)) if last == function => Some(at),
            _ => {
                let at = *self.by_function.get(&function)?;
                self.last = Some((function, at));
                Some(at)
            }
        }
    }

    /// Functions may be others from now on.
    fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Session {
    /// # Safety
    /// Arguments as of `cuLaunchKernel`.
    unsafe fn kernel(
        &mut self,
        at: &At,
        function: Function,
        stream: Stream,
        params: *const *const c_void,
        extra: *const *const c_void,
        start: Start,
    ) {
        self.coverage.launches += 1;
        let known = self.kernel_of(function);
        let Self { index, kernels, coverage, launch, kernel_act, .. } = self;
        let (mut none, mut unnamed) = (Accesses::new(), None);
        let (accesses, name) = match &mut launch.what {
            What::Launch { accesses, name, start: as_before, .. } => {
                *as_before = start;
                (accesses, name)
            }
            _ => (&mut none, &mut unnamed),
        };
        accesses.clear();
        let found = match kernels.all.get(known as usize) {
            // SAFETY: the caller's promise.
            Some(kernel) => unsafe { kernel.arguments(params, extra, index, *kernel_act, accesses) },
            None => Found::default(),
        };
        *name = found.name;
        coverage.with_address += u64::from(!accesses.is_empty());
        coverage.without_information += u64::from(found.is_without_information);
        if let Some(word) = found.stale {
            self.note_stale(word, found.name);
        }
        if self.lost_captures > 0 && self.is_lost(stream) {
            return;
        }
        let stream = self.stream(at, stream);
        self.push_launch(stream);
    }

    /// Finds the addresses among a kernel's arguments; its name. Where one is of freed memory, the call's note says
    /// which.
    ///
    /// # Safety
    /// Arguments as of `cuLaunchKernel`.
    pub(crate) unsafe fn arguments(
        &mut self,
        function: Function,
        params: *const *const c_void,
        extra: *const *const c_void,
        accesses: &mut Accesses,
    ) -> Option<Name> {
        let known = self.kernel_of(function);
        let kernel = self.kernels.all.get(known as usize)?;
        // SAFETY: the caller's promise.
        let found = unsafe { kernel.arguments(params, extra, &self.index, self.kernel_act, accesses) };
        self.coverage.without_information += u64::from(found.is_without_information);
        if let Some(word) = found.stale {
            self.note_stale(word, found.name);
        }
        found.name
    }

    #[inline]
    fn kernel_of(&mut self, function: Function) -> u32 {
        match self.kernels.find(function) {
            Some(at) => at,
            None => self.ask_params(function),
        }
    }

    #[cold]
    fn note_stale(&mut self, Word { value, argument, bytes }: Word, name: Option<Name>) {
        let kernel = name.and_then(|name| self.names.text(name)).map_or("a kernel without a name", |name| name);
        let place = match argument {
            BUFFERED => "the arguments".to_owned(),
            at => format!("argument {}", at + 1),
        };
        self.note = Some(format!("{value:#x} is in {place} ({bytes} B) of {kernel}, which may not use it"));
    }

    #[cold]
    fn ask_params(&mut self, function: Function) -> u32 {
        let name = ask::name_of(function).map(|name| self.names.intern(&name));
        let bytes = ask::params_of(function).map(|all| all.iter().map(|bytes| *bytes as u32).collect());
        let at = self.kernels.all.len() as u32;
        self.kernels.all.push(Kernel { bytes, name });
        self.kernels.by_function.insert(function, at);
        at
    }
}

/// What was found among the arguments of a launch.
#[derive(Clone, Copy, Default)]
struct Found {
    name: Option<Name>,
    /// The last word that is an address of freed memory.
    stale: Option<Word>,
    is_without_information: bool,
}

impl Kernel {
    /// Finds the memory whose addresses are among the arguments.
    ///
    /// # Safety
    /// Arguments as of `cuLaunchKernel`.
    #[inline]
    unsafe fn arguments(
        &self,
        params: *const *const c_void,
        extra: *const *const c_void,
        index: &Index,
        act: Act,
        accesses: &mut Accesses,
    ) -> Found {
        let mut search = Search::new(index, act, accesses);
        let mut is_without_information = false;
        match &self.bytes {
            Some(all) if !params.is_null() => {
                for (argument, bytes) in all.iter().enumerate() {
                    // SAFETY: as many arguments as the kernel takes.
                    let place = unsafe { *params.add(argument) }.addr();
                    // SAFETY: so long is this one.
                    unsafe { search.look_at(place, *bytes, argument as u32) };
                }
            }
            // SAFETY: the caller's list.
            _ if !extra.is_null() => match unsafe { buffer_of(extra) } {
                // SAFETY: so long is the buffer.
                Some((place, bytes)) => unsafe { search.look_at(place, bytes as u32, BUFFERED) },
                None => is_without_information = true,
            },
            Some(all) if all.is_empty() => {}
            _ if params.is_null() => {}
            _ => is_without_information = true,
        }
        search.look_up();
        Found { name: self.name, stale: search.stale, is_without_information }
    }
}

/// So many addresses are asked for before the first answer is used: their loads wait for memory together.
const AT_ONCE: usize = 16;

/// A search for memory whose addresses are among some words.
struct Search<'a> {
    index: &'a Index,
    act: Act,
    /// The words that may be addresses, and are not looked up yet.
    words: [Word; AT_ONCE],
    count: usize,
    /// What was found, each once.
    accesses: &'a mut Accesses,
    /// The numbers of that by their lowest bits: most are new, and need not be compared.
    met: u64,
    /// The last word that is an address of freed memory.
    stale: Option<Word>,
}

impl<'a> Search<'a> {
    #[inline]
    fn new(index: &'a Index, act: Act, accesses: &'a mut Accesses) -> Self {
        Self { index, act, words: [Word::default(); AT_ONCE], count: 0, accesses, met: 0, stale: None }
    }

    /// Looks at an argument.
    ///
    /// # Safety
    /// So many bytes are there.
    #[inline]
    unsafe fn look_at(&mut self, place: usize, bytes: u32, argument: u32) {
        // Pointers are aligned in an argument; where the host keeps that need not be.
        for word in (0..bytes as usize / 8).map(|word| place + 8 * word) {
            // SAFETY: inside the argument.
            let value = unsafe { std::ptr::with_exposed_provenance::<u64>(word).read_unaligned() };
            if self.index.may_have(value) {
                if self.count == AT_ONCE {
                    self.look_up();
                }
                self.words[self.count] = Word { value, argument, bytes };
                self.count += 1;
            }
        }
    }

    /// Looks the words up.
    #[inline]
    fn look_up(&mut self) {
        let Self { index, words, accesses, .. } = self;
        let words = &words[..std::mem::take(&mut self.count).min(AT_ONCE)];
        let mut numbers = [0; AT_ONCE];
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = *index.number(word.value);
        }
        for (word, number) in words.iter().zip(numbers) {
            let Some(entry) = index.touched(word.value, number) else { continue };
            let (bit, memory) = (1 << (entry.memory.id.0 & 63), entry.memory);
            let is_known = self.met & bit != 0 && accesses.iter().any(|it| it.memory == memory);
            if is_known || !(entry.is_live || word.bytes <= FILLED_MAX) {
                continue;
            }
            self.met |= bit;
            if !entry.is_live {
                self.stale = Some(*word);
            }
            accesses.push(Access { memory, act: self.act, part: Part::WHOLE });
            if entry.kind == Kind::Mapped && entry.is_live {
                add_joined(index, entry, self.act, accesses);
                self.met = u64::MAX;
            }
        }
    }
}

/// Who gets an address in a range of several mappings may use all behind it.
#[cold]
fn add_joined(index: &Index, entry: &Entry, act: Act, accesses: &mut Accesses) {
    for Entry { memory, .. } in index.joined(entry).take(JOINED_MAX) {
        if !accesses.iter().any(|it| it.memory == *memory) {
            accesses.push(Access { memory: *memory, act, part: Part::WHOLE });
        }
    }
}

/// Arguments that come as one buffer.
///
/// # Safety
/// A list of keys and values that ends in null.
unsafe fn buffer_of(extra: *const *const c_void) -> Option<(usize, usize)> {
    let (mut start, mut bytes) = (None, None);
    for pair in 0..8 {
        // SAFETY: not behind the end.
        let key = unsafe { *extra.add(2 * pair) }.addr();
        if key == 0 {
            break;
        }
        // SAFETY: a value follows each key.
        let value = unsafe { *extra.add(2 * pair + 1) };
        match key {
            BUFFER => start = Some(value.addr()),
            // SAFETY: it is the address of the size.
            BUFFER_BYTES => bytes = Some(unsafe { *value.cast::<usize>() }),
            _ => {}
        }
    }
    start.zip(bytes)
}
