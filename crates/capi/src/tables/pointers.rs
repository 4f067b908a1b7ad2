//! Which buffer is at an address.
//!
//! Simple version: a map from addresses to buffers behind a lock. Departures: every allocation and free of every thread
//! comes through here, and between two of them a program has used the near caches for itself; so what a look costs is
//! the cache lines and pages that it touches. They are one: an address is hashed to a bucket, which has its own lock
//! beside the few buffers that it has room for, and all buckets together are 1 MiB. (A tree by address needs no hash
//! and has three lines and pages to touch, of which the last is some other for each 50 KiB of addresses.) Where a
//! bucket has no room the buffer goes to a map of the bucket's own, so that nothing depends on how many there are.
//!
//! Whoever holds a bucket's lock owns what it removes from the bucket (one-place). A buffer leaves with a free that is
//! accepted and no sooner ([`Pointers::free`]), so that no other thread sees a free that is refused. Two frees of one
//! pointer: one takes the buffer, the other finds nothing.
//!
//! What lives at an address is the library's to say: what a launch leaves live is here a moment later than there, and
//! what a graph frees is here until it is looked for. A buffer whose life has ended counts as none, and never takes the
//! place of one whose life goes on.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use millpond::Buffer;
use millpond::raw::RawMemory;
use millpond_driver::prefetch;
use rustc_hash::FxHashMap;

/// Allocations begin at multiples of this, as a power of two.
const GRAIN_BITS: u32 = 9;
const BUCKET_BITS: u32 = 13;
/// Buffers that a bucket has room for: with four thousand live ones, four in a thousand find none.
const ROOM: usize = 3;

/// Of a bucket's state: who is at it holds it; beside it a bit for each place that is full, and whether `far` is used.
const HELD: u32 = 1 << 31;
const FAR: u32 = 1 << ROOM;
/// A bit for each place whose buffer has other users than its own stream, which are recorded elsewhere.
const SHARED_SHIFT: u32 = 8;

/// The buffers of some addresses.
#[repr(C, align(128))] // No cache line is shared with another bucket.
struct Bucket {
    state: AtomicU32,
    places: UnsafeCell<Places>,
}

struct Places {
    near: [MaybeUninit<Buffer<u8>>; ROOM],
    /// What there was no room for.
    far: Option<Box<Far>>,
}

/// Buffers by address, and whether their users are recorded elsewhere.
type Far = FxHashMap<u64, (Buffer<u8>, bool)>;

// SAFETY: the places are reached only by who holds the bucket (one-place), and buffers may be sent between threads.
unsafe impl Sync for Bucket {}

/// Holds a bucket, for some nanoseconds. The state without the hold is here, to be left behind.
struct Held<'a> {
    bucket: &'a Bucket,
    state: u32,
}

/// What became of the buffer at an address that was to be freed.
pub(crate) enum Outcome {
    /// It was freed, and has left.
    Freed,
    /// It was not, and is in its place; this is what it is.
    Kept(RawMemory),
    /// There is none.
    Unknown,
}

impl Outcome {
    #[cold]
    fn of_kept(buffer: &Buffer<u8>) -> Self {
        buffer.raw().map_or(Outcome::Unknown, Outcome::Kept)
    }
}

/// The buckets.
pub(crate) struct Pointers {
    buckets: [Bucket; 1 << BUCKET_BITS],
}

/// All buffers of the C side.
pub(crate) static POINTERS: Pointers = Pointers { buckets: [const { Bucket::new() }; 1 << BUCKET_BITS] };

impl Bucket {
    const fn new() -> Self {
        let places = Places { near: [const { MaybeUninit::uninit() }; ROOM], far: None };
        Self { state: AtomicU32::new(0), places: UnsafeCell::new(places) }
    }

    #[inline]
    fn hold(&self) -> Held<'_> {
        loop {
            let state = self.state.load(Ordering::Relaxed);
            let take = |state| self.state.compare_exchange(state, state | HELD, Ordering::Acquire, Ordering::Relaxed);
            if state & HELD == 0 && take(state).is_ok() {
                return Held { bucket: self, state };
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.bucket.state.store(self.state, Ordering::Release);
    }
}

impl Held<'_> {
    #[inline]
    fn places(&self) -> &Places {
        // SAFETY: one-place: this thread holds the bucket.
        unsafe { &*self.bucket.places.get() }
    }

    #[inline]
    fn places_mut(&mut self) -> &mut Places {
        // SAFETY: one-place: this thread holds the bucket.
        unsafe { &mut *self.bucket.places.get() }
    }

    /// The buffer in a place, if it is full.
    #[inline]
    fn near(&self, place: usize) -> Option<&Buffer<u8>> {
        // SAFETY: the bit says that a buffer is there.
        (self.state & 1 << place != 0).then(|| unsafe { self.places().near[place].assume_init_ref() })
    }

    /// The place of the buffer at an address.
    #[inline]
    fn find(&self, address: u64) -> Option<usize> {
        (0..ROOM).find(|&place| self.near(place).is_some_and(|buffer| buffer.address() == address))
    }

    /// Asks `free` for the buffer at an address, which stays in its place unless it was freed.
    #[inline(always)] // What it calls is the hot path of a free.
    fn free(&mut self, address: u64, free: impl FnOnce(&mut Buffer<u8>) -> bool) -> Outcome {
        let Some(place) = self.find(address) else {
            return if self.state & FAR == 0 { Outcome::Unknown } else { self.free_far(address, free) };
        };
        // SAFETY: the bit says that a buffer is there.
        let buffer = unsafe { self.places_mut().near[place].assume_init_mut() };
        if !free(buffer) {
            return Outcome::of_kept(buffer);
        }
        // What is left there is empty: there is nothing to drop.
        self.vacate(place);
        Outcome::Freed
    }

    #[cold]
    fn free_far(&mut self, address: u64, free: impl FnOnce(&mut Buffer<u8>) -> bool) -> Outcome {
        let Some((buffer, _)) = self.places_mut().far.as_mut().and_then(|far| far.get_mut(&address)) else {
            return Outcome::Unknown;
        };
        if !free(buffer) {
            return Outcome::of_kept(buffer);
        }
        drop(self.take_far(address));
        Outcome::Freed
    }

    /// Nothing is in a place any more.
    #[inline]
    fn vacate(&mut self, place: usize) {
        self.state &= !(1 << place | 1 << place << SHARED_SHIFT);
    }

    #[inline(always)] // What it returns is made in its caller's place, not copied there.
    fn take(&mut self, address: u64) -> Option<(Buffer<u8>, bool)> {
        let Some(place) = self.find(address) else {
            return if self.state & FAR == 0 { None } else { self.take_far(address) };
        };
        let is_shared = self.state & 1 << place << SHARED_SHIFT != 0;
        self.vacate(place);
        // SAFETY: the bit said that a buffer is there, and it is taken once.
        Some((unsafe { self.places().near[place].assume_init_read() }, is_shared))
    }

    #[inline(always)] // As for `take`.
    fn put(&mut self, buffer: Buffer<u8>) {
        let place = (self.state & (FAR - 1)).trailing_ones() as usize;
        if place == ROOM {
            return self.put_far(buffer);
        }
        self.places_mut().near[place].write(buffer);
        self.state |= 1 << place;
    }

    /// Puts one of two buffers at one address: the other one, whose life has ended.
    #[cold]
    fn put_one(&mut self, (there, is_shared): (Buffer<u8>, bool), new: Buffer<u8>) -> Buffer<u8> {
        if there.gives_way_to(&new) {
            self.put(new);
            return there;
        }
        let address = there.address();
        self.put(there);
        if is_shared {
            self.share(address);
        }
        new
    }

    #[cold]
    fn take_far(&mut self, address: u64) -> Option<(Buffer<u8>, bool)> {
        let far = self.places_mut().far.as_mut()?;
        let (taken, is_empty) = (far.remove(&address), far.is_empty());
        if is_empty {
            self.state &= !FAR;
        }
        taken
    }

    #[cold]
    fn put_far(&mut self, buffer: Buffer<u8>) {
        self.state |= FAR;
        self.places_mut().far.get_or_insert_default().insert(buffer.address(), (buffer, false));
    }

    /// Notes that the users of the buffer at an address are recorded elsewhere, if it is here.
    fn share(&mut self, address: u64) -> bool {
        if let Some(place) = self.find(address) {
            self.state |= 1 << place << SHARED_SHIFT;
            return true;
        }
        let far = self.places_mut().far.as_mut().and_then(|far| far.get_mut(&address));
        far.map(|(_, is_shared)| *is_shared = true).is_some()
    }

    fn all(&self) -> impl Iterator<Item = &Buffer<u8>> {
        let far = self.places().far.iter().flat_map(|far| far.values().map(|(buffer, _)| buffer));
        (0..ROOM).filter_map(|place| self.near(place)).chain(far)
    }
}

impl Pointers {
    #[inline]
    fn bucket(&self, address: u64) -> &Bucket {
        let hash = (address >> GRAIN_BITS).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - BUCKET_BITS);
        &self.buckets[hash as usize]
    }

    #[inline]
    fn hold(&self, address: u64) -> Held<'_> {
        self.bucket(address).hold()
    }

    /// An address will be looked up soon.
    #[inline]
    pub(crate) fn expect(&self, address: u64) {
        prefetch(self.bucket(address));
    }

    /// Puts a buffer at its address, which is not null. Two lives at one address never go on at once: where another
    /// buffer is there, the one whose life has ended comes back to be dropped, behind the bucket's lock. That may be
    /// the new one, of a thread that comes late with what a launch left, after another thread's launch.
    #[inline(always)] // As for `take`.
    pub(crate) fn insert(&self, buffer: Buffer<u8>) -> Option<Buffer<u8>> {
        let mut bucket = self.hold(buffer.address());
        match bucket.take(buffer.address()) {
            None => {
                bucket.put(buffer);
                None
            }
            Some(there) => Some(bucket.put_one(there, buffer)),
        }
    }

    /// Takes the buffer at an address out, and whether its users were recorded.
    #[inline(always)] // As for `take`.
    pub(crate) fn remove(&self, address: u64) -> Option<(Buffer<u8>, bool)> {
        self.hold(address).take(address)
    }

    /// Asks `free` for the buffer at an address, while no other thread can look: it says whether it was freed, and
    /// leaves it empty then.
    #[inline(always)] // As for `take`.
    pub(crate) fn free(&self, address: u64, free: impl FnOnce(&mut Buffer<u8>) -> bool) -> Outcome {
        self.hold(address).free(address, free)
    }

    /// Takes the buffer at an address out, where `is_it` says so of it.
    pub(crate) fn remove_if(&self, address: u64, is_it: impl FnOnce(&Buffer<u8>) -> bool) -> Option<Buffer<u8>> {
        let mut bucket = self.hold(address);
        let is_it = bucket.all().find(|buffer| buffer.address() == address).is_some_and(is_it);
        if is_it { bucket.take(address).map(|(buffer, _)| buffer) } else { None }
    }

    /// Takes the buffer out that owns this memory, if it is there.
    pub(crate) fn take(&self, memory: &RawMemory) -> Option<Buffer<u8>> {
        self.remove_if(memory.address(), |buffer| memory.is_in(buffer))
    }

    /// Takes out all buffers of which `goes` says so.
    #[cold]
    pub(crate) fn extract(&self, goes: impl Fn(&Buffer<u8>) -> bool) -> Vec<Buffer<u8>> {
        let mut gone = Vec::new();
        for bucket in &self.buckets {
            let mut bucket = bucket.hold();
            let addresses: Vec<u64> = bucket.all().filter(|it| goes(it)).map(Buffer::address).collect();
            gone.extend(addresses.into_iter().filter_map(|it| bucket.take(it)).map(|(buffer, _)| buffer));
        }
        gone
    }

    /// The memory that starts at an address.
    pub(crate) fn peek(&self, address: u64) -> Option<RawMemory> {
        let bucket = self.hold(address);
        bucket.all().find(|buffer| buffer.address() == address)?.raw()
    }

    /// Whether the buffer at an address was allocated in a capture.
    pub(crate) fn is_captured(&self, address: u64) -> bool {
        self.hold(address).all().any(|buffer| buffer.address() == address && buffer.is_captured())
    }

    /// Notes that the users of the buffer at an address are recorded elsewhere: by `note`, while it cannot leave.
    pub(crate) fn share(&self, address: u64, note: impl FnOnce()) -> bool {
        let mut bucket = self.hold(address);
        let is_here = bucket.share(address);
        if is_here {
            note();
        }
        is_here
    }

    /// The live memory that an address lies in. One that is not its start costs a look at everything that there is.
    #[cold]
    pub(crate) fn containing(&self, address: u64) -> Option<RawMemory> {
        let is_in = |buffer: &&Buffer<u8>| address.wrapping_sub(buffer.address()) < buffer.bytes() && buffer.is_live();
        self.buckets.iter().find_map(|bucket| bucket.hold().all().find(is_in)?.raw())
    }
}

const _: () = assert!(size_of::<Bucket>() == 128);

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
        let around = |address| device.memory_around(address).map(|memory| memory.address());
        assert_eq!((around(start + (6 << 20) - 1), around(start + (6 << 20))), (Some(start), None));
        assert!(POINTERS.remove(start + 512).is_none() && POINTERS.remove(start + 1).is_none());
        assert!(POINTERS.remove(u64::MAX).is_none() && POINTERS.remove(0).is_none());
        let (buffer, shared) = POINTERS.remove(start).expect("it is there");
        assert!(!shared && POINTERS.remove(start).is_none());
        assert!(POINTERS.insert(buffer).is_none());
        assert!(POINTERS.share(start, || ()) && !POINTERS.share(start + 512, || ()));
        let (buffer, shared) = POINTERS.remove(start).expect("it is there");
        assert!(shared);
        stream.free(buffer).expect("a right free");
        assert_eq!(around(start + 1), None, "it is free");
    }

    #[test]
    fn what_a_bucket_has_no_room_for_is_found_as_well() {
        let device = Device::host(HostConfig::default()).expect("a host device");
        let stream = device.stream().expect("a stream");
        static POINTERS: Pointers = Pointers { buckets: [const { Bucket::new() }; 1 << BUCKET_BITS] };
        // So many that some buckets overflow, whatever the hash.
        let alloc = |_| stream.alloc::<u8>(&device.default_pool(), 512).expect("memory");
        let buffers: Vec<_> = (0..(ROOM + 1) << BUCKET_BITS).map(alloc).collect();
        let addresses: Vec<_> = buffers.iter().map(Buffer::address).collect();
        assert!(buffers.into_iter().all(|buffer| POINTERS.insert(buffer).is_none()));
        assert!(POINTERS.buckets.iter().any(|bucket| bucket.hold().state & FAR != 0));
        for &address in &addresses {
            assert_eq!(POINTERS.peek(address).map(|memory| memory.address()), Some(address));
        }
        assert!(addresses.iter().skip(1).step_by(2).all(|&address| POINTERS.share(address, || ())));
        for (number, &address) in addresses.iter().enumerate() {
            let (buffer, is_shared) = POINTERS.remove(address).expect("it is there");
            assert_eq!((buffer.address(), is_shared), (address, number % 2 == 1));
        }
        assert!(addresses.iter().all(|&address| POINTERS.remove(address).is_none()));
        assert!(POINTERS.buckets.iter().all(|bucket| bucket.hold().state == 0), "nothing is left");
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
