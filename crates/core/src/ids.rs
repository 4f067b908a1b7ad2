//! Number types that cannot be mixed up: one newtype for each kind of thing, and points of the order.
//!
//! Depends on integers only. Driver handles are never used as keys, because the driver reuses them. These numbers are
//! not reused, or carry a generation that tells the uses apart.

use std::collections::VecDeque;
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($raw:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $raw);

        impl $name {
            /// The number as an index into a table.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

pub(crate) use id;

id! {
    /// The dense index of a chain of points (a stream, a chain of a graph launch). It is used again after the chain
    /// has ended.
    ChainIndex(u32), "chain "
}
/// A stream as the program knows it. Each device counts its streams from 0 and uses a number again long after the
/// stream's end ([`RecycledNumbers`]). Where streams of several devices meet, the high bits hold the device's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId(pub u32);

impl StreamId {
    /// Stands for the host itself, for what is done without a stream.
    pub const HOST: StreamId = StreamId(u32::MAX);
    /// The legacy default stream of the first device (CUDA: `cudaStreamLegacy`). It always exists.
    pub const LEGACY: StreamId = StreamId(0);
    /// The number of low bits that hold the stream's number on its device. The bits above hold the device's number,
    /// or 0.
    pub const DEVICE_SHIFT: u32 = 24;

    /// Stands for all devices beyond the first 254.
    pub const FAR_DEVICE: u32 = 255;

    /// Adds the device's number, counted from 1, for messages about several devices. A stream that has one already is
    /// returned unchanged.
    #[must_use]
    pub fn of_device(self, device: u32) -> StreamId {
        match self {
            Self(number) if number >> Self::DEVICE_SHIFT == 0 => {
                Self(number | device.min(Self::FAR_DEVICE) << Self::DEVICE_SHIFT)
            }
            _ => self,
        }
    }

    /// Returns the number of the stream's device, if the stream carries one.
    pub fn device(self) -> Option<u32> {
        match self.0 >> Self::DEVICE_SHIFT {
            0 => None,
            _ if self == Self::HOST => None,
            device => Some(device),
        }
    }

    /// Returns the stream without its device's number.
    #[must_use]
    pub fn on_its_device(self) -> StreamId {
        self.device().map_or(self, |_| Self(self.0 & ((1 << Self::DEVICE_SHIFT) - 1)))
    }

    /// The number as an index into a table.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HOST => f.write_str("the host"),
            Self(number) => match self.device() {
                None => write!(f, "stream {number}"),
                Some(Self::FAR_DEVICE) => write!(f, "{} of another device", self.on_its_device()),
                Some(device) => write!(f, "{} of device {device}", self.on_its_device()),
            },
        }
    }
}

id! {
    /// An allocation's index in its device's table. It is recycled; a generation tells the allocations apart.
    AllocId(u32), "allocation "
}
id! {
    /// A pool of a device. The number is never used again.
    PoolId(u32), "pool "
}
id! {
    /// A block of a pool's virtual heap. The number is recycled when neighbours are merged.
    BlockId(u32), "block "
}
id! {
    /// A physical chunk of a pool. The number is recycled after the chunk is destroyed.
    ChunkId(u32), "chunk "
}
id! {
    /// A host thread of a program, as a caller of a driver. The recorder chooses the number of the thread; any below
    /// 2^24 will do. The bits above it number the driver ([`driver`](Self::driver)); they are 0 in most programs.
    HostId(u32), "host thread "
}

/// The number of bits of a [`HostId`] that number the thread.
const THREAD_BITS: u32 = 24;
/// The number that stands in place of a driver for a call that has returned.
const RETURNED: u8 = u8::MAX;

impl HostId {
    /// Returns a thread as a caller of a driver, by their numbers. 255 is not the number of a driver.
    pub fn calling(driver: u8, thread: u32) -> Self {
        HostId(u32::from(driver) << THREAD_BITS | thread & ((1 << THREAD_BITS) - 1))
    }

    /// Returns the thread as one whose call has returned. Captures judged the call when it was made, and one that has
    /// begun since then does not forbid it.
    pub fn returned(self) -> Self {
        Self::calling(RETURNED, self.0)
    }

    /// Returns `true` if the call has [returned](Self::returned).
    pub fn has_returned(self) -> bool {
        self.driver() == u32::from(RETURNED)
    }

    /// Returns the number of the driver that the thread calls. Captures forbid unsafe calls of their own driver only.
    /// All CUDA devices of a process have one driver, 0. Each host device of the library has its own.
    pub fn driver(self) -> u32 {
        self.0 >> THREAD_BITS
    }

    /// Returns the number of the thread.
    pub fn thread(self) -> u32 {
        self.0 & ((1 << THREAD_BITS) - 1)
    }
}
id! {
    /// A process of a program. Host threads belong to process 0 unless stated otherwise.
    ProcessId(u32), "process "
}
id! {
    /// A device of a program.
    DeviceId(u32), "device "
}
id! {
    /// An event of a program. The number is recycled after the event is destroyed.
    EventId(u32), "event "
}
id! {
    /// A node of one graph. Numbers are dense and start at 0; the number of a removed node is not used again.
    NodeId(u32), "node "
}
id! {
    /// A graph, numbered by the code that builds graphs. The number is never used again.
    GraphId(u32), "graph "
}
id! {
    /// An executable graph (`cudaGraphExec_t`). The number is never used again.
    ExecId(u32), "instance "
}
id! {
    /// The right to import memory from another process. The number is never used again.
    TicketId(u32), "ticket "
}

/// The position of an operation in its chain, counted from 1; 0 is before the first.
pub type Seq = u64;

/// A point of the order: the operation with position `seq` in the chain `chain`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Point {
    /// Its chain.
    pub chain: ChainIndex,
    /// Its position in the chain.
    pub seq: Seq,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, op {}", self.chain, self.seq)
    }
}

/// Numbers that are used again. A number that is given back rests until more than [`RESTING`](Self::RESTING) numbers
/// rest, so that in a small program every message names each thing by a number of its own. If no fresh number is
/// left, the rest is cut short. `T` is stored with a resting number.
#[derive(Debug)]
pub struct RecycledNumbers<T = ()> {
    /// The next fresh number.
    made: u32,
    /// The numbers that rest, in the order in which they were given back.
    resting: VecDeque<(u32, T)>,
}

impl<T> Default for RecycledNumbers<T> {
    fn default() -> Self {
        Self::beginning_at(0)
    }
}

impl<T> RecycledNumbers<T> {
    /// A number is given again once more than this many numbers rest.
    pub const RESTING: usize = 1024;

    /// Makes an empty set whose lowest number is `first`.
    pub fn beginning_at(first: u32) -> Self {
        Self { made: first, resting: VecDeque::new() }
    }

    /// Returns `true` if a number below `end` can be taken without cutting a rest short.
    pub fn has_one(&self, end: u32) -> bool {
        self.made < end || self.resting.len() > Self::RESTING
    }

    /// Returns the next fresh number, which is one more than the highest number ever taken.
    pub fn made(&self) -> u32 {
        self.made
    }

    /// Takes a number below `end` that is not in use, and returns it with the value it was given back with.
    pub fn take(&mut self, end: u32) -> Option<(u32, Option<T>)> {
        if self.resting.len() > Self::RESTING || self.made >= end {
            return self.resting.pop_front().map(|(number, kept)| (number, Some(kept)));
        }
        self.made += 1;
        Some((self.made - 1, None))
    }

    /// Gives a number back: nothing uses it any more.
    pub fn give_back(&mut self, number: u32, kept: T) {
        self.resting.push_back((number, kept));
    }
}

#[cfg(test)]
mod tests {
    use super::RecycledNumbers;

    #[test]
    fn a_number_rests_before_it_is_given_again() {
        let mut numbers = RecycledNumbers::beginning_at(7);
        for round in 0..5000 {
            let (number, kept) = numbers.take(u32::MAX).unwrap();
            assert_eq!(kept, (round > 1024).then(|| round - 1025), "what had it 1025 ago");
            assert_eq!(number, 7 + round % 1025);
            numbers.give_back(number, round);
        }
        assert_eq!(numbers.made(), 7 + 1025);
    }

    #[test]
    fn numbers_that_run_out_rest_no_longer() {
        let mut numbers = RecycledNumbers::beginning_at(6);
        let taken: Vec<_> = std::iter::from_fn(|| numbers.take(8)).map(|(number, _)| number).collect();
        assert_eq!(taken, [6, 7]);
        numbers.give_back(7, ());
        assert_eq!((numbers.take(8), numbers.take(8)), (Some((7, Some(()))), None));
    }
}
