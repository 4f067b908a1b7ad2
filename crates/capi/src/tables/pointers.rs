//! Finds the buffer at an address.
//!
//! The simple version is a map from addresses to buffers behind a lock. But every allocation and free of every thread
//! comes through here, and between two of them the program has used the near caches for itself. So the cost of a lookup
//! is the number of cache lines and pages that it touches. Here that is one. An address is hashed to a bucket, which
//! has its own lock beside the few buffers that it has room for. All buckets together are 1 MiB. (A tree by address
//! needs no hash, but touches three lines and pages; the last is a different one for each 50 KiB of addresses.) If a
//! bucket is full, a buffer goes into a map of the bucket's own, so any number of buffers works.
//!
//! A thread that holds a bucket's lock owns the buffers that it removes from the bucket (one-place). A buffer is
//! removed only when its free has been accepted ([`Pointers::free`]), so that no other thread sees a refused free. If
//! two threads free one pointer, one takes the buffer, and the other finds nothing.
//!
//! The library decides which memory is live at an address. Memory that a launch leaves live is here a moment later than
//! there, and memory that a graph frees stays here until it is looked up. A buffer whose memory has ended counts as
//! none, and never replaces one whose memory is live.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use millpond::Buffer;
use millpond::raw::RawMemory;
use millpond_driver::prefetch;
use rustc_hash::FxHashMap;

/// The log2 of the alignment of allocations.
const GRAIN_BITS: u32 = 9;
const BUCKET_BITS: u32 = 13;
/// The buffers that a bucket has room for. With four thousand live buffers, four in a thousand find no room.
const ROOM: usize = 3;

/// The bit of a bucket's state that is set while a thread holds it. Other bits: one for each place that is full, and
/// `FAR` if `far` is used.
const HELD: u32 = 1 << 31;
const FAR: u32 = 1 << ROOM;
/// The shift of the bits for places whose buffers have other users than their own stream. Those users are recorded
/// elsewhere.
const SHARED_SHIFT: u32 = 8;

/// The buffers of some addresses.
#[repr(C, align(128))] // No cache line is shared with another bucket.
struct Bucket {
    state: AtomicU32,
    places: UnsafeCell<Places>,
}

struct Places {
    near: [MaybeUninit<Buffer<u8>>; ROOM],
    /// The buffers that there was no room for.
    far: Option<Box<Far>>,
}

/// Buffers by address, each with `true` if its users are recorded elsewhere.
type Far = FxHashMap<u64, (Buffer<u8>, bool)>;

// SAFETY: only the thread that holds the bucket reaches the places (one-place), and buffers may be sent between
// threads.
unsafe impl Sync for Bucket {}

/// Holds a bucket, for some nanoseconds. `state` is the state without the hold bit, which is stored at the release.
struct Held<'a> {
    bucket: &'a Bucket,
    state: u32,
}

/// The result of freeing the buffer at an address.
pub(crate) enum Outcome {
    /// The buffer was freed and removed.
    Freed,
    /// The buffer was not freed and is still there; this is its memory.
    Kept(RawMemory),
    /// There is no buffer.
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

    /// Returns the buffer in a place, if the place is full.
    #[inline]
    fn near(&self, place: usize) -> Option<&Buffer<u8>> {
        // SAFETY: the bit says that a buffer is there.
        (self.state & 1 << place != 0).then(|| unsafe { self.places().near[place].assume_init_ref() })
    }

    /// Returns the place of the buffer at an address.
    #[inline]
    fn find(&self, address: u64) -> Option<usize> {
        (0..ROOM).find(|&place| self.near(place).is_some_and(|buffer| buffer.address() == address))
    }

    /// Calls `free` with the buffer at an address. The buffer stays in its place unless it was freed.
    #[inline(always)] // The closure is the hot path of a free.
    fn free(&mut self, address: u64, free: impl FnOnce(&mut Buffer<u8>) -> bool) -> Outcome {
        let Some(place) = self.find(address) else {
            return if self.state & FAR == 0 { Outcome::Unknown } else { self.free_far(address, free) };
        };
        // SAFETY: the bit says that a buffer is there.
        let buffer = unsafe { self.places_mut().near[place].assume_init_mut() };
        if !free(buffer) {
            return Outcome::of_kept(buffer);
        }
        // The buffer in that place is empty now, so there is nothing to drop.
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

    /// Marks a place as vacant.
    #[inline]
    fn vacate(&mut self, place: usize) {
        self.state &= !(1 << place | 1 << place << SHARED_SHIFT);
    }

    #[inline(always)] // The result is built in the caller's place, not copied there.
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

    /// Keeps one of two buffers at one address, and returns the other one, whose memory has ended.
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

    /// Notes that the users of the buffer at an address are recorded elsewhere. Returns `false` if the buffer is not
    /// here.
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

    /// Prefetches the bucket of an address that will be looked up soon.
    #[inline]
    pub(crate) fn expect(&self, address: u64) {
        prefetch(self.bucket(address));
    }

    /// Puts a buffer at its address, which is not null. Two buffers at one address are never live at once. If another
    /// buffer is there, the one whose memory has ended is returned, to be dropped after the bucket's lock is released.
    /// That may be the new one: a thread may come late with the memory that a launch left, after another thread's
    /// launch.
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

    /// Removes the buffer at an address. The flag is `true` if its users were recorded.
    #[inline(always)] // As for `take`.
    pub(crate) fn remove(&self, address: u64) -> Option<(Buffer<u8>, bool)> {
        self.hold(address).take(address)
    }

    /// Calls `free` with the buffer at an address, while no other thread can look it up. `free` returns `true` if it
    /// freed the buffer, which it then leaves empty.
    #[inline(always)] // As for `take`.
    pub(crate) fn free(&self, address: u64, free: impl FnOnce(&mut Buffer<u8>) -> bool) -> Outcome {
        self.hold(address).free(address, free)
    }

    /// Removes the buffer at an address if `is_it` returns `true` for it.
    pub(crate) fn remove_if(&self, address: u64, is_it: impl FnOnce(&Buffer<u8>) -> bool) -> Option<Buffer<u8>> {
        let mut bucket = self.hold(address);
        let is_it = bucket.all().find(|buffer| buffer.address() == address).is_some_and(is_it);
        if is_it { bucket.take(address).map(|(buffer, _)| buffer) } else { None }
    }

    /// Removes the buffer that owns this memory, if it is there.
    pub(crate) fn take(&self, memory: &RawMemory) -> Option<Buffer<u8>> {
        self.remove_if(memory.address(), |buffer| memory.is_in(buffer))
    }

    /// Removes all buffers for which `goes` returns `true`.
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

    /// Returns the memory that begins at an address.
    pub(crate) fn peek(&self, address: u64) -> Option<RawMemory> {
        let bucket = self.hold(address);
        bucket.all().find(|buffer| buffer.address() == address)?.raw()
    }

    /// Returns `true` if the buffer at an address was allocated in a capture.
    pub(crate) fn is_captured(&self, address: u64) -> bool {
        self.hold(address).all().any(|buffer| buffer.address() == address && buffer.is_captured())
    }

    /// Notes that the users of the buffer at an address are recorded elsewhere: by `note`, which runs while the buffer
    /// cannot be removed.
    pub(crate) fn share(&self, address: u64, note: impl FnOnce()) -> bool {
        let mut bucket = self.hold(address);
        let is_here = bucket.share(address);
        if is_here {
            note();
        }
        is_here
    }

    /// Returns the live memory that an address lies in. This searches all buffers.
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
        // So many that some buckets overflow, whatever the hash is.
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
