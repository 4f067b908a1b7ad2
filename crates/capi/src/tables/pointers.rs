//! Finds the buffer at an address.
//!
//! The simple version is a map from addresses to buffers behind a lock. But every allocation and free of every thread
//! comes through here, and between two of them the program has used the near caches for itself. So the cost of a lookup
//! is the number of cache lines and pages that it touches. Here that is one pair of lines. An address is hashed to a
//! bucket, which has its own lock beside the few buffers that it has room for. All buckets together are 2 MiB. (A tree
//! by address needs no hash, but touches three lines and pages; the last is a different one for each 50 KiB of
//! addresses.) If a bucket is full, a buffer goes into a map of the bucket's own, so any number of buffers works.
//!
//! The simple lock of a bucket is a spin lock. Its compare-and-swap takes 8 ns, where a pair in Rust takes 24
//! (docs/decisions/0007-locks-with-owners.md). Departure: the lock is a [`BiasedLock`]. A thread whose memory comes to
//! the same addresses again and again owns their buckets and enters them by plain stores. For all others it is the spin
//! lock.
//!
//! A thread that holds a bucket's lock owns the buffers that it removes from the bucket (one-place). A buffer is
//! removed only when its free has been accepted ([`Pointers::free`]), so that no other thread sees a refused free. If
//! two threads free one pointer, one takes the buffer, and the other finds nothing.
//!
//! The library decides which memory is live at an address. Memory that a launch leaves live is here a moment later than
//! there, and memory that a graph frees stays here until it is looked up. A buffer whose memory has ended counts as
//! none, and never replaces one whose memory is live.

use millpond::Buffer;
use millpond::raw::{Freeing, RawMemory};
use millpond_driver::{BiasedLock, BiasedLockGuard, prefetch};
use rustc_hash::FxHashMap;

/// The log2 of the alignment of allocations.
const GRAIN_BITS: u32 = 9;
const BUCKET_BITS: u32 = 14;
/// The buffers that a bucket has room for. With four thousand live buffers, nine in a thousand find no room.
const ROOM: usize = 2;

/// The flag of a bucket that is set while `far` has a buffer. Other flags: one for each place whose buffer has other
/// users than its own stream. Those users are recorded elsewhere.
const FAR: u32 = 1 << ROOM;

/// The buffers of some addresses, behind a lock that is held for some nanoseconds.
#[repr(align(128))] // No cache line is shared with another bucket.
struct Bucket(BiasedLock<Places>);

#[repr(C)]
struct Places {
    /// A place whose buffer is empty is vacant.
    near: [Buffer<u8>; ROOM],
    /// The buffers that there was no room for.
    far: Option<Box<Far>>,
    flags: u32,
}

/// Buffers by address, each with `true` if its users are recorded elsewhere.
type Far = FxHashMap<u64, (Buffer<u8>, bool)>;

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
        Self(BiasedLock::new(Places { near: [const { Buffer::vacant() }; ROOM], far: None, flags: 0 }))
    }

    #[inline]
    fn hold(&self) -> BiasedLockGuard<'_, Places> {
        self.0.lock()
    }
}

impl Places {
    /// Returns the place of the buffer at an address.
    #[inline]
    fn find(&self, address: u64) -> Option<usize> {
        self.near.iter().position(|buffer| buffer.begins_at(address))
    }

    /// Frees the buffer at an address if that is plainly right. Otherwise the buffer stays in its place.
    fn free(&mut self, address: u64, freeing: &mut Freeing<'_>) -> Outcome {
        if self.free_near(address, freeing) {
            return Outcome::Freed;
        }
        match self.find(address) {
            Some(place) => Outcome::of_kept(&self.near[place]),
            None if self.flags & FAR == 0 => Outcome::Unknown,
            None => self.free_far(address, freeing),
        }
    }

    /// Frees the buffer at an address if it is in a place and that is plainly right. The place is vacant then.
    #[inline(always)] // The hot path of a free is one function.
    fn free_near(&mut self, address: u64, freeing: &mut Freeing<'_>) -> bool {
        let Some(place) = self.find(address) else { return false };
        let is_freed = freeing.try_free(&mut self.near[place]);
        if is_freed {
            self.flags &= !(1 << place);
        }
        is_freed
    }

    #[cold]
    #[inline(never)]
    fn free_far(&mut self, address: u64, freeing: &mut Freeing<'_>) -> Outcome {
        let Some((buffer, _)) = self.far.as_mut().and_then(|far| far.get_mut(&address)) else {
            return Outcome::Unknown;
        };
        if !freeing.try_free(buffer) {
            return Outcome::of_kept(buffer);
        }
        drop(self.take_far(address));
        Outcome::Freed
    }

    #[inline(always)] // The result is built in the caller's place, not copied there.
    fn take(&mut self, address: u64) -> Option<(Buffer<u8>, bool)> {
        let Some(place) = self.find(address) else {
            return if self.flags & FAR == 0 { None } else { self.take_far(address) };
        };
        let is_shared = self.flags & 1 << place != 0;
        self.flags &= !(1 << place);
        Some((std::mem::replace(&mut self.near[place], Buffer::vacant()), is_shared))
    }

    /// Returns a vacant place for a buffer at an address, unless one at that address may be here.
    #[inline(always)] // As for `take`.
    fn vacancy(&mut self, address: u64) -> Option<&mut Buffer<u8>> {
        if self.flags & FAR != 0 || self.find(address).is_some() {
            return None;
        }
        self.near.iter_mut().find(|place| place.is_vacant())
    }

    /// Puts a buffer at its address, where no other is.
    fn put(&mut self, buffer: Buffer<u8>) {
        match self.near.iter_mut().find(|place| place.is_vacant()) {
            Some(place) => *place = buffer,
            None => {
                self.flags |= FAR;
                self.far.get_or_insert_default().insert(buffer.address(), (buffer, false));
            }
        }
    }

    /// Puts a buffer where another one may be, and returns the one of the two whose memory has ended.
    fn exchange(&mut self, new: Buffer<u8>) -> Option<Buffer<u8>> {
        let address = new.address();
        let Some((there, is_shared)) = self.take(address) else {
            self.put(new);
            return None;
        };
        if there.gives_way_to(&new) {
            self.put(new);
            return Some(there);
        }
        self.put(there);
        if is_shared {
            self.share(address);
        }
        Some(new)
    }

    #[cold]
    #[inline(never)]
    fn take_far(&mut self, address: u64) -> Option<(Buffer<u8>, bool)> {
        let far = self.far.as_mut()?;
        let (taken, is_empty) = (far.remove(&address), far.is_empty());
        if is_empty {
            self.flags &= !FAR;
        }
        taken
    }

    /// Notes that the users of the buffer at an address are recorded elsewhere. Returns `false` if the buffer is not
    /// here.
    fn share(&mut self, address: u64) -> bool {
        if let Some(place) = self.find(address) {
            self.flags |= 1 << place;
            return true;
        }
        let far = self.far.as_mut().and_then(|far| far.get_mut(&address));
        far.map(|(_, is_shared)| *is_shared = true).is_some()
    }

    fn all(&self) -> impl Iterator<Item = &Buffer<u8>> {
        let far = self.far.iter().flat_map(|far| far.values().map(|(buffer, _)| buffer));
        self.near.iter().filter(|place| !place.is_vacant()).chain(far)
    }
}

impl Pointers {
    #[inline]
    fn bucket(&self, address: u64) -> &Bucket {
        let hash = (address >> GRAIN_BITS).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - BUCKET_BITS);
        &self.buckets[hash as usize]
    }

    #[inline]
    fn hold(&self, address: u64) -> BiasedLockGuard<'_, Places> {
        self.bucket(address).hold()
    }

    /// Prefetches the bucket of an address that will be looked up soon.
    #[inline]
    pub(crate) fn expect(&self, address: u64) {
        prefetch(self.bucket(address));
    }

    /// Puts a buffer at its address, which is not null. If another buffer is there, the one whose memory has ended is
    /// dropped.
    #[inline(always)] // As for `take`.
    pub(crate) fn insert(&self, buffer: Buffer<u8>) {
        if let Some(mut bucket) = self.bucket(buffer.address()).0.own_and_keep(())
            && let Some(place) = bucket.vacancy(buffer.address())
        {
            *place = buffer;
            return;
        }
        drop(self.exchange(buffer));
    }

    /// Puts a buffer at its address, which is not null. Two buffers at one address are never live at once. If another
    /// buffer is there, the one whose memory has ended is returned, to be dropped after the locks are released. That
    /// may be the new one: a thread may come late with the memory that a launch left, after another thread's launch.
    #[cold]
    #[inline(never)]
    pub(crate) fn exchange(&self, buffer: Buffer<u8>) -> Option<Buffer<u8>> {
        self.hold(buffer.address()).exchange(buffer)
    }

    /// Removes the buffer at an address. The flag is `true` if its users were recorded.
    #[inline(always)] // As for `take`.
    pub(crate) fn remove(&self, address: u64) -> Option<(Buffer<u8>, bool)> {
        self.hold(address).take(address)
    }

    /// Frees the buffer at an address as [`free`](Self::free), if this thread owns its bucket. Returns `false` if it
    /// was not freed; nothing has happened then.
    #[inline(always)] // As for `take`.
    pub(crate) fn free_own(&self, address: u64, freeing: &mut Freeing<'_>) -> bool {
        match self.bucket(address).0.own_and_keep(()) {
            Some(mut bucket) => bucket.free_near(address, freeing),
            None => false,
        }
    }

    /// Frees the buffer at an address if that is plainly right, while no other thread can look it up.
    pub(crate) fn free(&self, address: u64, freeing: &mut Freeing<'_>) -> Outcome {
        self.hold(address).free(address, freeing)
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

    /// Returns the live memory that an address lies in. This searches all buffers, and ends the ownership of buckets
    /// that another thread owns.
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
        POINTERS.insert(buffer);
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
        POINTERS.insert(buffer);
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
        buffers.into_iter().for_each(|buffer| POINTERS.insert(buffer));
        assert!(POINTERS.buckets.iter().any(|bucket| bucket.hold().flags & FAR != 0));
        for &address in &addresses {
            assert_eq!(POINTERS.peek(address).map(|memory| memory.address()), Some(address));
        }
        assert!(addresses.iter().skip(1).step_by(2).all(|&address| POINTERS.share(address, || ())));
        for (number, &address) in addresses.iter().enumerate() {
            let (buffer, is_shared) = POINTERS.remove(address).expect("it is there");
            assert_eq!((buffer.address(), is_shared), (address, number % 2 == 1));
        }
        assert!(addresses.iter().all(|&address| POINTERS.remove(address).is_none()));
        assert!(POINTERS.buckets.iter().all(|bucket| bucket.hold().flags == 0), "nothing is left");
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
