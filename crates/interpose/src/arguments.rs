//! The addresses of known memory among a kernel's arguments.
//!
//! How long a kernel's parameters are is known for each function. Each eight bytes of them are looked up; arguments
//! that come as one buffer are all looked at. Knows no call and no order.

use std::ffi::c_void;

use millpond_core::op::{Access, Act, Name, Part};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::abi::Function;
use crate::index::{Entry, Index, Kind};

/// What an operation uses.
pub(crate) type Accesses = SmallVec<[Access; 2]>;

/// `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`
const BUFFER: usize = 1;
const BUFFER_BYTES: usize = 2;

/// Longer arguments are structures that programs fill in part. What is left of others in the rest may be addresses of
/// memory that is freed: those do not count.
const FILLED_MAX: u32 = 64;

/// A word of an argument that may be an address.
#[derive(Clone, Copy, Default)]
pub(crate) struct Word {
    pub(crate) value: u64,
    /// Which argument it is in; [`BUFFERED`] where they come as one buffer.
    pub(crate) argument: u32,
    /// How long that is.
    pub(crate) bytes: u32,
}

/// No argument by itself.
pub(crate) const BUFFERED: u32 = u32::MAX;

/// So many mappings behind an address count.
const JOINED_MAX: usize = 64;

/// What a kernel takes, and what it is called.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// How many bytes each parameter has, where that is known.
    pub(crate) bytes: Option<Box<[u32]>>,
    pub(crate) name: Option<Name>,
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
    pub(crate) fn find(&mut self, function: Function) -> Option<u32> {
        match self.last {
            Some((last, at)) if last == function => Some(at),
            _ => {
                let at = *self.by_function.get(&function)?;
                self.last = Some((function, at));
                Some(at)
            }
        }
    }

    /// One of the list.
    #[inline]
    pub(crate) fn at(&self, at: u32) -> Option<&Kernel> {
        self.all.get(at as usize)
    }

    /// A kernel was met.
    pub(crate) fn add(&mut self, function: Function, kernel: Kernel) -> u32 {
        let at = self.all.len() as u32;
        self.all.push(kernel);
        self.by_function.insert(function, at);
        at
    }

    /// Functions may be others from now on.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// What was found among the arguments of a launch.
#[derive(Clone, Copy, Default)]
pub(crate) struct Found {
    pub(crate) name: Option<Name>,
    /// The last word that is an address of freed memory.
    pub(crate) stale: Option<Word>,
    pub(crate) is_without_information: bool,
}

impl Kernel {
    /// Finds the memory whose addresses are among the arguments.
    ///
    /// # Safety
    /// Arguments as of `cuLaunchKernel`.
    #[inline]
    pub(crate) unsafe fn arguments(
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
                    let place = unsafe { params.add(argument) };
                    // SAFETY: as above.
                    let place = unsafe { place.read() }.addr();
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
        let key = unsafe { extra.add(2 * pair) };
        // SAFETY: as above.
        let key = unsafe { key.read() }.addr();
        if key == 0 {
            break;
        }
        // SAFETY: a value follows each key.
        let value = unsafe { extra.add(2 * pair + 1) };
        // SAFETY: as above.
        let value = unsafe { value.read() };
        match key {
            BUFFER => start = Some(value.addr()),
            // SAFETY: it is the address of the size.
            BUFFER_BYTES => bytes = Some(unsafe { *value.cast::<usize>() }),
            _ => {}
        }
    }
    start.zip(bytes)
}
