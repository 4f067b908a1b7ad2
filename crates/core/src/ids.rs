//! Numbers that cannot be mixed up: one newtype for each kind of thing, and points in the order.
//!
//! Knows nothing but integers. Handles of a driver are never used as keys: they are recycled, these are not
//! (or carry a generation that tells the lives apart).

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
    /// A dense, recycled index of a chain of points (a stream incarnation, a chain of a graph launch).
    ChainIndex(u32), "chain "
}
/// A stream as the program knows it: counted up from 0 on each device, and recycled long after its end
/// ([`RecycledNumbers`]). Where streams of several devices meet, their devices' numbers are in the high bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId(pub u32);

impl StreamId {
    /// What is done by the host itself, without a stream.
    pub const HOST: StreamId = StreamId(u32::MAX);
    /// The legacy default stream of the first device (CUDA: `cudaStreamLegacy`); it is there without being made.
    pub const LEGACY: StreamId = StreamId(0);
    /// Numbers of streams lie below this; what is above names the device, where that is not the first.
    pub const DEVICE_SHIFT: u32 = 24;

    /// Stands for all devices beyond the first 254.
    pub const FAR_DEVICE: u32 = 255;

    /// The stream as one of a device, counted from 1, for messages about several; one that is so already stays.
    #[must_use]
    pub fn of_device(self, device: u32) -> StreamId {
        match self {
            Self(number) if number >> Self::DEVICE_SHIFT == 0 => {
                Self(number | device.min(Self::FAR_DEVICE) << Self::DEVICE_SHIFT)
            }
            _ => self,
        }
    }

    /// The device that it names, where it names one.
    pub fn device(self) -> Option<u32> {
        match self.0 >> Self::DEVICE_SHIFT {
            0 => None,
            _ if self == Self::HOST => None,
            device => Some(device),
        }
    }

    /// Its number on its device, where it names one.
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
    /// An allocation's place in its device's table; recycled, distinguished by a generation.
    AllocId(u32), "allocation "
}
id! {
    /// A pool of a device, never used again.
    PoolId(u32), "pool "
}
id! {
    /// A block of a pool's virtual heap; recycled when neighbours are merged.
    BlockId(u32), "block "
}
id! {
    /// A physical chunk of a pool; recycled after it is destroyed.
    ChunkId(u32), "chunk "
}
id! {
    /// A host thread of a program, chosen by whoever records it: any small number.
    HostId(u32), "host thread "
}
id! {
    /// A process of a program; host threads are of process 0 where nothing else is said.
    ProcessId(u32), "process "
}
id! {
    /// A device of a program.
    DeviceId(u32), "device "
}
id! {
    /// An event of a program; recycled after its end.
    EventId(u32), "event "
}
id! {
    /// A node of one graph: dense, counted from 0, not used again when the node is removed.
    NodeId(u32), "node "
}
id! {
    /// A graph, as whoever builds graphs counts them; never used again.
    GraphId(u32), "graph "
}
id! {
    /// An instantiated graph; never used again.
    ExecId(u32), "instance "
}
id! {
    /// An offer of memory to other processes; never used again.
    TicketId(u32), "ticket "
}

/// The position of an operation in its chain, counted from 1; 0 is before the first.
pub type Seq = u64;

/// One point of the order: the operation with number `seq` in the chain `chain`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Point {
    /// The chain.
    pub chain: ChainIndex,
    /// The position in it.
    pub seq: Seq,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, op {}", self.chain, self.seq)
    }
}

/// Numbers of things that come and go. One is given again once [`RESTING`](Self::RESTING) others have come back after
/// it: in a program that makes few, messages name each thing by a number of its own. `T` is kept with a number that
/// rests.
#[derive(Debug)]
pub struct RecycledNumbers<T = ()> {
    /// How many there were ever at once.
    made: u32,
    /// Those that came back, the oldest first.
    resting: VecDeque<(u32, T)>,
}

impl<T> Default for RecycledNumbers<T> {
    fn default() -> Self {
        Self::beginning_at(0)
    }
}

impl<T> RecycledNumbers<T> {
    /// So many numbers came back after one that is given again.
    pub const RESTING: usize = 1024;

    /// The lowest number is `first`.
    pub fn beginning_at(first: u32) -> Self {
        Self { made: first, resting: VecDeque::new() }
    }

    /// Whether there is one below `end`.
    pub fn has_one(&self, end: u32) -> bool {
        self.made < end || self.resting.len() > Self::RESTING
    }

    /// How many numbers were made so far.
    pub fn made(&self) -> u32 {
        self.made
    }

    /// A number below `end` that nothing has, and what came back with it.
    pub fn take(&mut self, end: u32) -> Option<(u32, Option<T>)> {
        if self.resting.len() > Self::RESTING || self.made >= end {
            return self.resting.pop_front().map(|(number, kept)| (number, Some(kept)));
        }
        self.made += 1;
        Some((self.made - 1, None))
    }

    /// What had the number is gone.
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
