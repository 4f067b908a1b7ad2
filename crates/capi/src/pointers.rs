//! Which buffer is at an address.
//!
//! Simple version: a map from addresses to buffers behind a lock. Departures: every allocation and free of every thread
//! comes through here, so there is no lock and no hashing. Allocations begin at multiples of 512 B, which leaves 38
//! bits of a 47-bit address: a tree of three levels with one place for each multiple, made where it is first needed and
//! never taken away. A place costs 40 B of memory for each 512 B of address that was ever the start of an allocation,
//! rounded up to the system's pages; memory that the system hands out zeroed costs nothing until it is touched.
//!
//! A place is taken by one compare-and-swap; who has taken it owns the buffer (one-place). Two frees of one pointer:
//! one takes the place, the other finds it empty.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use millpond::{Buffer, RawMemory};

/// Allocations begin at multiples of this.
const GRAIN_BITS: u32 = 9;
const LEAF_BITS: u32 = 12;
const MIDDLE_BITS: u32 = 12;
const ROOT_BITS: u32 = 14;
const LEAF: usize = 1 << LEAF_BITS;
const MIDDLE: usize = 1 << MIDDLE_BITS;
const ROOT: usize = 1 << ROOT_BITS;

const EMPTY: u32 = 0;
const FULL: u32 = 1;
/// Full, and other streams than the buffer's own were recorded as users.
const SHARED: u32 = 2;
/// Somebody is at it, for some nanoseconds.
const BUSY: u32 = 3;

struct Place {
    state: AtomicU32,
    buffer: UnsafeCell<MaybeUninit<Buffer<u8>>>,
}

// SAFETY: the buffer is reached only by the thread that has brought the state to BUSY (one-place), and buffers may be
// sent between threads.
unsafe impl Sync for Place {}

struct Leaf([Place; LEAF]);
struct Middle([AtomicPtr<Leaf>; MIDDLE]);

/// The tree.
pub(crate) struct Pointers {
    root: [AtomicPtr<Middle>; ROOT],
}

/// All buffers of the C side.
pub(crate) static POINTERS: Pointers = Pointers { root: [const { AtomicPtr::new(std::ptr::null_mut()) }; ROOT] };

/// A node that was made, or that another thread made meanwhile.
#[cold]
fn make<T>(at: &AtomicPtr<T>) -> &T {
    let layout = Layout::new::<T>();
    // SAFETY: the layout has a size.
    let fresh = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if fresh.is_null() {
        handle_alloc_error(layout);
    }
    match at.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: zeros are a node without children, or empty places; it is never taken away.
        Ok(_) => unsafe { &*fresh },
        Err(theirs) => {
            // SAFETY: it was allocated above with this layout, and nobody has seen it.
            unsafe { std::alloc::dealloc(fresh.cast(), layout) };
            // SAFETY: published nodes are never taken away.
            unsafe { &*theirs }
        }
    }
}

#[inline]
fn node<T>(at: &AtomicPtr<T>) -> Option<&T> {
    // SAFETY: null, or a published node, which is never taken away.
    unsafe { at.load(Ordering::Acquire).as_ref() }
}

impl Place {
    #[inline]
    fn buffer(&self) -> *mut Buffer<u8> {
        self.buffer.get().cast()
    }

    /// Brings a full place to BUSY: what it was.
    #[inline]
    fn hold(&self) -> Option<u32> {
        loop {
            match self.state.load(Ordering::Relaxed) {
                EMPTY => return None,
                BUSY => spin_loop(),
                full => {
                    if self.state.compare_exchange(full, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                        return Some(full);
                    }
                }
            }
        }
    }

    /// What a held place has, to be left there.
    fn peek(&self) -> Option<RawMemory> {
        let full = self.hold()?;
        // SAFETY: one-place: this thread holds the place, and it was full.
        let memory = unsafe { &*self.buffer() }.raw();
        self.state.store(full, Ordering::Release);
        memory
    }
}

impl Pointers {
    #[inline]
    fn path(address: u64) -> (usize, usize, usize) {
        let number = (address >> GRAIN_BITS) as usize;
        let root = (number >> (LEAF_BITS + MIDDLE_BITS)) & (ROOT - 1);
        (root, (number >> LEAF_BITS) & (MIDDLE - 1), number & (LEAF - 1))
    }

    #[inline]
    fn find_place(&self, address: u64) -> Option<&Place> {
        let (root, middle, leaf) = Self::path(address);
        if address & ((1 << GRAIN_BITS) - 1) != 0 || address >> (GRAIN_BITS + LEAF_BITS + MIDDLE_BITS + ROOT_BITS) != 0
        {
            return None;
        }
        Some(&node(&node(&self.root[root])?.0[middle])?.0[leaf])
    }

    /// Puts a buffer at its address. What lay there before is of a life that is over; it comes back to be dropped.
    #[inline]
    pub(crate) fn insert(&self, buffer: Buffer<u8>) -> Option<Buffer<u8>> {
        let (root, middle, leaf) = Self::path(buffer.address());
        let at = &self.root[root];
        let at = &node(at).unwrap_or_else(|| make(at)).0[middle];
        let place = &node(at).unwrap_or_else(|| make(at)).0[leaf];
        let stale = match place.state.compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => None,
            Err(_) => self.displace(place),
        };
        // SAFETY: one-place: this thread holds the place, and nothing is in it.
        unsafe { place.buffer().write(buffer) };
        place.state.store(FULL, Ordering::Release);
        stale
    }

    /// Cold: a life that ended without passing here, such as that of a graph's allocation which a launch has freed.
    #[cold]
    fn displace(&self, place: &Place) -> Option<Buffer<u8>> {
        loop {
            if place.hold().is_some() {
                // SAFETY: one-place: this thread holds the place, and it was full.
                return Some(unsafe { place.buffer().read() });
            }
            if place.state.compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return None;
            }
        }
    }

    /// Takes the buffer at an address out, and whether its users were recorded.
    #[inline]
    pub(crate) fn remove(&self, address: u64) -> Option<(Buffer<u8>, bool)> {
        let place = self.find_place(address)?;
        let full = place.hold()?;
        // SAFETY: one-place: this thread holds the place, and it was full.
        let buffer = unsafe { place.buffer().read() };
        place.state.store(EMPTY, Ordering::Release);
        Some((buffer, full == SHARED))
    }

    /// The memory that starts at an address.
    pub(crate) fn peek(&self, address: u64) -> Option<RawMemory> {
        self.find_place(address)?.peek()
    }

    /// Notes that the users of the buffer at an address are recorded elsewhere: by `note`, while it cannot leave.
    pub(crate) fn share(&self, address: u64, note: impl FnOnce()) -> bool {
        let held = self.find_place(address).and_then(|place| place.hold().map(|_| place));
        let Some(place) = held else { return false };
        note();
        place.state.store(SHARED, Ordering::Release);
        true
    }

    /// The memory that an address lies in. One that is not its start costs a search downwards.
    pub(crate) fn containing(&self, address: u64) -> Option<RawMemory> {
        let within = |memory: &RawMemory| address - memory.address() < memory.bytes().max(1);
        if let Some(memory) = self.peek(address) {
            return Some(memory);
        }
        let (mut root, mut middle, mut leaf) = Self::path(address);
        loop {
            if let Some(branch) = node(&self.root[root]) {
                loop {
                    if let Some(places) = node(&branch.0[middle]) {
                        let below = places.0[..=leaf].iter().rev().find_map(Place::peek);
                        if let Some(memory) = below {
                            return Some(memory).filter(within);
                        }
                    }
                    leaf = LEAF - 1;
                    match middle.checked_sub(1) {
                        Some(next) => middle = next,
                        None => break,
                    }
                }
            }
            (middle, leaf) = (MIDDLE - 1, LEAF - 1);
            root = root.checked_sub(1)?;
        }
    }
}

const _: () = assert!(size_of::<Place>() == 40);

#[cfg(test)]
mod tests {
    use super::*;
    use millpond::{Device, HostConfig};

    #[test]
    fn a_buffer_is_found_by_its_start_and_by_what_lies_in_it() {
        let device = Device::host(HostConfig::default()).expect("a host device");
        let stream = device.stream().expect("a stream");
        let buffer = stream.alloc::<u8>(&device.default_pool(), 6 << 20).expect("memory");
        let start = buffer.address();
        assert!(POINTERS.insert(buffer).is_none());
        let found = |address| POINTERS.containing(address).map(|memory| memory.address());
        assert_eq!(found(start), Some(start));
        assert_eq!(found(start + 1), Some(start));
        assert_eq!(found(start + (6 << 20) - 1), Some(start));
        assert_eq!(found(start + (6 << 20)), None);
        assert!(POINTERS.remove(start + 512).is_none() && POINTERS.remove(start + 1).is_none());
        assert!(POINTERS.remove(u64::MAX).is_none() && POINTERS.remove(0).is_none());
        let (buffer, shared) = POINTERS.remove(start).expect("it is there");
        assert!(!shared && POINTERS.remove(start).is_none());
        POINTERS.insert(buffer);
        assert!(POINTERS.share(start, || ()) && !POINTERS.share(start + 512, || ()));
        assert!(POINTERS.remove(start).expect("it is there").1);
    }

    #[test]
    fn of_two_threads_that_remove_one_buffer_one_gets_it() {
        let device = Device::host(HostConfig::default()).expect("a host device");
        let stream = device.stream().expect("a stream");
        for _ in 0..200 {
            let buffer = stream.alloc::<u8>(&device.default_pool(), 512).expect("memory");
            let address = buffer.address();
            POINTERS.insert(buffer);
            let take = || std::thread::spawn(move || POINTERS.remove(address).is_some());
            let (left, right) = (take(), take());
            let got = [left.join().expect("no panic"), right.join().expect("no panic")];
            assert_eq!(got.iter().filter(|it| **it).count(), 1);
        }
    }
}
