//! The addresses of known memory among a kernel's arguments.
//!
//! The sizes of a kernel's parameters are known for each function, and from them which words may be addresses. Each
//! word of eight bytes is looked up. Arguments that come as one buffer are searched whole. All words are prefetched
//! before the first is looked up, so that the cache misses overlap: those of the index, and those of the code that
//! takes the accesses. This module knows no call and no order.

mod unused;

use std::ffi::c_void;

use millpond_core::op::{Access, Act, Memory, Name};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::abi::Function;
use crate::ask;
use crate::index::{Entry, Index, Kind};
use unused::is_unused;

/// The accesses of an operation.
pub(crate) type Accesses = SmallVec<[Access; 2]>;

/// `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`
const BUFFER: usize = 1;
const BUFFER_BYTES: usize = 2;

/// Arguments longer than this are structures that programs often fill only in part. The rest of such a structure may
/// hold old addresses of freed memory (also of memory that a node captured earlier frees). Freed addresses in them are
/// ignored, in launches and in nodes.
const FILLED_MAX: u32 = 64;

/// The number of bits in [`Kernel`]'s `pointers`: the bit of a word is its index modulo this.
const NOTED: u32 = u64::BITS;

/// A word of an argument that is an address of freed memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stale {
    pub(crate) value: u64,
    /// The argument's index; [`BUFFERED`] if the arguments come as one buffer.
    pub(crate) argument: u32,
    /// The argument's size.
    pub(crate) bytes: u32,
}

/// A word of the arguments that may be an address.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    value: u64,
    /// The index's number for the address.
    number: u32,
    /// The word's index among the words that are searched.
    at: u32,
}

/// Stands for an argument's index if the arguments come as one buffer.
pub(crate) const BUFFERED: u32 = u32::MAX;

/// At most this many further mappings of a range count as used.
const JOINED_MAX: usize = 64;

/// The place of eight bytes of the parameters.
#[derive(Clone, Copy, Debug)]
struct Where {
    argument: u32,
    /// In bytes from the start of the argument.
    offset: u32,
    /// The argument's size.
    bytes: u32,
}

/// A kernel's parameters and name.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The words of its parameters, if their sizes are known.
    words: Option<Box<[Where]>>,
    name: Option<Name>,
    /// The bits of words that were once the start of live memory ([`NOTED`]): these words are pointers. Any other word
    /// may be two small numbers side by side (`0x4_0000_0003`), and such a value can lie inside an allocation of some
    /// GiB.
    pointers: u64,
}

impl Kernel {
    /// A kernel with this name. `bytes` are the sizes of its parameters, if they are known.
    pub(crate) fn new(name: Option<Name>, text: &str, bytes: Option<&[usize]>) -> Self {
        let count = bytes.map_or(0, <[usize]>::len);
        let is_used = |&(argument, _): &(usize, &usize)| !is_unused(text, count, argument);
        let words_of = |(argument, bytes): (usize, &usize)| {
            let (argument, bytes) = (argument as u32, *bytes as u32);
            // A pointer is aligned within its argument. The host's copy of the argument need not be aligned.
            (0..bytes / 8).map(move |word| Where { argument, offset: 8 * word, bytes })
        };
        Self {
            words: bytes.map(|all| all.iter().enumerate().filter(is_used).flat_map(words_of).collect()),
            name,
            pointers: 0,
        }
    }
}

/// The kernels that were launched.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    all: Vec<Kernel>,
    by_function: FxHashMap<Function, u32>,
    last: Option<(Function, u32)>,
}

impl Kernels {
    /// Returns the kernel's index in the list, if it was launched before.
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

    /// Returns the kernel at an index of the list.
    #[inline]
    pub(crate) fn at(&mut self, at: u32) -> Option<&mut Kernel> {
        self.all.get_mut(at as usize)
    }

    /// Adds a kernel, and returns its index in the list.
    pub(crate) fn add(&mut self, function: Function, kernel: Kernel) -> u32 {
        let at = self.all.len() as u32;
        self.all.push(kernel);
        self.by_function.insert(function, at);
        at
    }

    /// Forgets all kernels: a handle may belong to another function from now on.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Kernel {
    /// Returns the kernel's name.
    #[inline]
    pub(crate) fn name(&self) -> Option<Name> {
        self.name
    }

    /// Finds the memory whose addresses are among the arguments. Returns `false` if it is not known where the arguments
    /// are.
    ///
    /// # Safety
    /// Arguments as of `cuLaunchKernel`.
    #[inline]
    pub(crate) unsafe fn arguments(
        &mut self,
        params: *const *const c_void,
        extra: *const *const c_void,
        search: &mut Search,
        known: &mut Known<'_>,
    ) -> bool {
        search.begin(self.pointers);
        // SAFETY: the caller's promise.
        let is_known = unsafe { self.search(params, extra, search, known) };
        self.pointers = search.pointers;
        is_known
    }

    /// # Safety
    /// As of [`arguments`](Self::arguments).
    #[inline]
    unsafe fn search(
        &self,
        params: *const *const c_void,
        extra: *const *const c_void,
        search: &mut Search,
        known: &mut Known<'_>,
    ) -> bool {
        match &self.words {
            Some(all) if !params.is_null() => {
                let mut asking = Asking { search, known, count: 0, layout: Layout::Apart(all) };
                for (at, Where { argument, offset, .. }) in all.iter().enumerate() {
                    // SAFETY: as many arguments as the kernel takes.
                    let place = unsafe { params.add(*argument as usize) };
                    // SAFETY: as above.
                    let place = unsafe { place.read() }.addr();
                    // The driver did not read an argument without an address either.
                    if place != 0 {
                        // SAFETY: the offset lies within the argument.
                        unsafe { asking.look_at(place + *offset as usize, at) };
                    }
                }
                asking.finish();
                true
            }
            // SAFETY: the caller's list.
            _ if !extra.is_null() => match unsafe { buffer_of(extra) } {
                Some((place, bytes)) => {
                    let mut asking = Asking { search, known, count: 0, layout: Layout::Buffer(bytes as u32) };
                    for at in 0..if place == 0 { 0 } else { bytes / 8 } {
                        // SAFETY: the word lies within the buffer.
                        unsafe { asking.look_at(place + 8 * at, at) };
                    }
                    asking.finish();
                    true
                }
                None => false,
            },
            words => params.is_null() || words.as_ref().is_some_and(|all| all.is_empty()),
        }
    }
}

/// The number of words that are prefetched before the first is looked up.
const AT_ONCE: usize = 16;

/// The size of the table of numbers met: two numbers of one launch rarely share an entry.
const MET: usize = 512;

/// The array that the consumer reads by number, so that it can be prefetched: the first element, and the bytes from one
/// to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) first: *const u8,
    pub(crate) step: usize,
}

/// The inputs of a search, and the list for its results.
pub(crate) struct Known<'a> {
    pub(crate) index: &'a mut Index,
    /// The array of the code that takes the accesses.
    pub(crate) ahead: Ahead,
    /// The act that a kernel is assumed to do.
    pub(crate) act: Act,
    pub(crate) accesses: &'a mut Accesses,
}

/// The layout of the arguments' words.
#[derive(Clone, Copy)]
enum Layout<'a> {
    /// Each argument has its own address.
    Apart(&'a [Where]),
    /// All arguments are in one buffer of this many bytes.
    Buffer(u32),
}

impl Layout<'_> {
    /// Returns the index and the size of the argument that a word is in.
    fn of(self, word: u32) -> (u32, u32) {
        match self {
            Layout::Apart(all) => all.get(word as usize).map_or((0, 0), |it| (it.argument, it.bytes)),
            Layout::Buffer(bytes) => (BUFFERED, bytes),
        }
    }
}

/// The lowest bit above a number.
const LAUNCH: u64 = 1 << 32;

/// A search for memory whose addresses are among a launch's arguments. It is reused from launch to launch.
#[derive(Debug)]
pub(crate) struct Search {
    /// Words that may be addresses, and are not looked up yet.
    words: [Word; AT_ONCE],
    /// The numbers met, at the index of their low bits, with the launch in the high half.
    met: Box<[u64; MET]>,
    /// The count of launches, in the high half: the low half holds a number.
    launch: u64,
    /// The last word with an address of freed memory.
    stale: Option<Stale>,
    /// The words that are pointers, as the kernel's launches have shown so far.
    pointers: u64,
    /// `true` if the search is for a graph's node. A node refers to memory by address each time that it runs.
    is_for_node: bool,
    /// For a node: memory whose addresses are in structures that may be filled only in part.
    pointed_at: Vec<Memory>,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            words: [Word::default(); AT_ONCE],
            met: Box::new([0; MET]),
            launch: 0,
            stale: None,
            pointers: 0,
            is_for_node: false,
            pointed_at: Vec::new(),
        }
    }
}

/// The arguments of one launch, word by word.
struct Asking<'a, 'k> {
    search: &'a mut Search,
    known: &'a mut Known<'k>,
    /// The number of words that are not looked up yet.
    count: usize,
    layout: Layout<'a>,
}

impl Asking<'_, '_> {
    /// Prefetches a word's entries, and looks the words up once [`AT_ONCE`] are collected.
    ///
    /// # Safety
    /// Eight bytes at `place` are readable.
    #[inline(always)]
    unsafe fn look_at(&mut self, place: usize, at: usize) {
        // SAFETY: the caller's promise.
        let value = unsafe { std::ptr::with_exposed_provenance::<u64>(place).read_unaligned() };
        let Known { index, ahead, .. } = &*self.known;
        if !index.may_have(value) {
            return;
        }
        let number = index.number(value);
        ask_ahead(index.place_of(number));
        ask_ahead(ahead.first.wrapping_add(number as usize * ahead.step));
        self.search.words[self.count % AT_ONCE] = Word { value, number, at: at as u32 };
        self.count += 1;
        if self.count == AT_ONCE {
            self.search.look_up(self.known, std::mem::take(&mut self.count), self.layout);
        }
    }

    #[inline(always)]
    fn finish(self) {
        self.search.look_up(self.known, self.count, self.layout);
    }
}

impl Search {
    #[inline]
    fn begin(&mut self, pointers: u64) {
        self.stale = None;
        self.pointers = pointers;
        self.pointed_at.clear();
        self.launch = self.launch.wrapping_add(LAUNCH);
        if self.launch == 0 {
            // The count of launches wraps around.
            (*self.met, self.launch) = ([0; MET], LAUNCH);
        }
    }

    /// Returns the last word with an address of freed memory.
    #[inline]
    pub(crate) fn stale(&self) -> Option<Stale> {
        self.stale
    }

    /// Sets whether the next search is for a graph's node.
    #[inline]
    pub(crate) fn set_for_node(&mut self, is_for_node: bool) {
        self.is_for_node = is_for_node;
    }

    /// Returns memory whose addresses are in structures that may be filled only in part. The node's runs use this
    /// memory until it is freed. Afterwards such an address is taken for an old one that the node does not use.
    pub(crate) fn pointed_at(&self) -> &[Memory] {
        &self.pointed_at
    }

    /// Looks up the first `count` words.
    #[inline]
    fn look_up(&mut self, known: &mut Known<'_>, count: usize, layout: Layout<'_>) {
        let count = count.min(AT_ONCE);
        known.accesses.reserve(count);
        let (all, mut len) = (known.accesses.as_mut_ptr(), known.accesses.len());
        for at in 0..count {
            let Word { value, number, at: word } = self.words[at];
            let entry = known.index.by_number(number).filter(|entry| entry.is_plainly_at(value) & !self.is_for_node);
            let Some(entry) = entry else {
                // SAFETY: `len` elements were written.
                unsafe { known.accesses.set_len(len) };
                return (at..count).for_each(|at| self.look_up_any(known, self.words[at], layout));
            };
            self.pointers |= u64::from(entry.start == value) << (word % NOTED);
            // SAFETY: one more for each word at most, for which there is room.
            let place = unsafe { all.add(len) };
            // SAFETY: as above.
            unsafe { place.write(Access::whole(entry.memory(), known.act)) };
            // SAFETY: `len` elements were written.
            let before = unsafe { std::slice::from_raw_parts(all, len) };
            len += usize::from(self.is_new(number, before));
        }
        // SAFETY: as above.
        unsafe { known.accesses.set_len(len) };
    }

    /// Looks up a word that is no simple case: no address at all, an address of freed memory, of a mapping, or of a
    /// grain that several allocations share.
    #[cold]
    fn look_up_any(&mut self, known: &mut Known<'_>, word: Word, layout: Layout<'_>) {
        let Known { index, act, accesses, .. } = known;
        let Some(entry) = index.touched(word.value, word.number) else { return };
        let (argument, bytes) = layout.of(word.at);
        let is_stale = !entry.is_allocated;
        let bit = 1 << (word.at % NOTED);
        match (is_stale, entry.start == word.value) {
            (true, _) if bytes > FILLED_MAX => return,
            (true, false) if self.pointers & bit == 0 && entry.kind != Kind::Node => return,
            (false, true) => self.pointers |= bit,
            _ => {}
        }
        if index.used(word.value, ask::is_of_host).is_none() {
            return;
        }
        let Some(entry) = index.find(word.value) else { return };
        // In graphs, an alloc node's memory is allocated and freed by nodes.
        if self.is_for_node && bytes > FILLED_MAX && entry.kind != Kind::Node {
            self.pointed_at.push(entry.memory());
            return self.pointed_at.extend(index.joined(entry).take(JOINED_MAX).map(Entry::memory));
        }
        if !self.is_new(entry.id().0, accesses) {
            return;
        }
        accesses.push(Access::whole(entry.memory(), *act));
        if is_stale {
            self.stale = Some(Stale { value: word.value, argument, bytes });
        } else if entry.kind == Kind::Mapped {
            // A kernel that gets an address in a range of several mappings may use all mappings behind it.
            for joined in index.joined(entry).take(JOINED_MAX) {
                if self.is_new(joined.id().0, accesses) {
                    accesses.push(Access::whole(joined.memory(), *act));
                }
            }
        }
    }

    /// Returns `true` if the number is met for the first time in this launch. Its memory then becomes one of the
    /// accesses.
    #[inline]
    fn is_new(&mut self, number: u32, accesses: &[Access]) -> bool {
        let this = self.launch | u64::from(number);
        let last = std::mem::replace(&mut self.met[number as usize % MET], this);
        // Another number may have overwritten this one's entry.
        last < self.launch || (last != this && is_none_of(number, accesses))
    }
}

#[cold]
fn is_none_of(number: u32, accesses: &[Access]) -> bool {
    accesses.iter().all(|access| access.memory.id.0 != number)
}

/// Prefetches a cache line.
#[inline]
fn ask_ahead(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: any address may be prefetched; nothing is read.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) place, options(nostack, readonly, preserves_flags));
    }
}

/// Finds the address and the size of arguments that come as one buffer.
///
/// # Safety
/// `extra` is a list of keys and values that ends in null.
unsafe fn buffer_of(extra: *const *const c_void) -> Option<(usize, usize)> {
    let (mut start, mut bytes) = (None, None);
    for pair in 0..8 {
        // SAFETY: the end of the list was not reached.
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
