//! The operations of each stream, counted; and the list of those to delay.
//!
//! A stream has the number that it has for the checker, too, as long as no stream was destroyed: 0 is the legacy
//! default stream of the first device, the others are numbered as they come. Numbers are not used again.

use std::fmt::Write;

use rustc_hash::FxHashMap;

use crate::abi::Stream;

/// What a device does in a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    Kernel,
    Copy,
    Fill,
    Graph,
}

impl Work {
    /// Returns the letter for the command: a small one for an operation that goes into a capture.
    fn letter(self, is_captured: bool) -> u8 {
        let letter = match self {
            Work::Kernel => b'K',
            Work::Copy => b'C',
            Work::Fill => b'F',
            Work::Graph => b'G',
        };
        if is_captured { letter.to_ascii_lowercase() } else { letter }
    }
}

/// What names a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Key {
    /// By its handle.
    Made(Stream),
    /// The legacy default stream of a device.
    Legacy(i32),
    /// The default stream of a thread, on a device.
    PerThread(i32, i32),
}

/// The operations of one stream.
#[derive(Debug, Default)]
struct Operations {
    /// The letter of each.
    letters: Vec<u8>,
    /// The listed ones that have not come yet, the next one last: their numbers and times in nanoseconds.
    listed: Vec<(u32, u64)>,
}

/// An operation, as the command names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    pub(crate) stream: u32,
    /// Its number in its stream, from 1.
    pub(crate) number: u32,
    /// How late it is to be, if it is listed.
    pub(crate) nanoseconds: Option<u64>,
}

/// The streams of a process.
#[derive(Debug)]
pub(crate) struct Counted {
    numbers: FxHashMap<Key, u32>,
    next: u32,
    streams: Vec<Operations>,
    /// The list, by stream.
    listed: FxHashMap<u32, Vec<(u32, u64)>>,
}

impl Counted {
    /// Reads the command's list: a line for each operation, with the stream, the number of the operation in the stream,
    /// and the nanoseconds.
    pub(crate) fn new(list: &str) -> Self {
        let mut listed = FxHashMap::<u32, Vec<(u32, u64)>>::default();
        for line in list.lines() {
            let mut words = line.split(' ');
            let mut word = || words.next()?.parse::<u64>().ok();
            if let (Some(stream), Some(number), Some(time)) = (word(), word(), word())
                && let (Ok(stream), Ok(number)) = (u32::try_from(stream), u32::try_from(number))
            {
                listed.entry(stream).or_default().push((number, time));
            }
        }
        listed.values_mut().for_each(|of_stream| of_stream.sort_unstable_by(|a, b| b.cmp(a)));
        Self { numbers: FxHashMap::default(), next: 1, streams: Vec::new(), listed }
    }

    /// Counts an operation.
    #[inline]
    pub(crate) fn next(&mut self, key: Key, work: Work, is_captured: bool) -> Option<Point> {
        let stream = match self.numbers.get(&key) {
            Some(number) => *number,
            None => self.add(key),
        };
        let operations = self.streams.get_mut(stream as usize)?;
        operations.letters.push(work.letter(is_captured));
        let number = operations.letters.len() as u32;
        let listed = operations.listed.pop_if(|listed| listed.0 == number);
        Some(Point { stream, number, nanoseconds: listed.map(|listed| listed.1) })
    }

    /// Numbers a stream that was made.
    pub(crate) fn make(&mut self, stream: Stream) {
        self.add(Key::Made(stream));
    }

    /// Forgets the handle of a stream.
    pub(crate) fn end(&mut self, stream: Stream) {
        self.numbers.remove(&Key::Made(stream));
    }

    #[cold]
    fn add(&mut self, key: Key) -> u32 {
        let number = match key {
            Key::Legacy(0) => 0,
            _ => self.next,
        };
        self.next = self.next.max(number.saturating_add(1));
        self.numbers.insert(key, number);
        while self.streams.len() <= number as usize {
            let listed = self.listed.remove(&(self.streams.len() as u32)).unwrap_or_default();
            self.streams.push(Operations { letters: Vec::new(), listed });
        }
        number
    }

    /// Returns the lines for the command: each stream that has operations, with the letters of these.
    pub(crate) fn lines(&self) -> String {
        let mut lines = String::new();
        for (number, operations) in self.streams.iter().enumerate().filter(|(_, it)| !it.letters.is_empty()) {
            let _ = writeln!(lines, "points\t{number}\t{}", String::from_utf8_lossy(&operations.letters));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_operations_are_found_by_stream_and_number() {
        let mut counted = Counted::new("2 1 50\n1 3 7\n1 1 9\nnonsense\n4294967296 1 1\n");
        let (one, two) = (Stream(0x10), Stream(0x20));
        counted.make(one);
        counted.make(two);
        let found = |stream, number, time| Some(Point { stream, number, nanoseconds: Some(time) });
        assert_eq!(counted.next(Key::Made(one), Work::Kernel, false), found(1, 1, 9));
        let other = |stream, number| Some(Point { stream, number, nanoseconds: None });
        assert_eq!(counted.next(Key::Made(one), Work::Copy, true), other(1, 2));
        assert_eq!(counted.next(Key::Made(two), Work::Graph, false), found(2, 1, 50));
        assert_eq!(counted.next(Key::Legacy(0), Work::Fill, false), other(0, 1));
        assert_eq!(counted.next(Key::Made(one), Work::Kernel, false), found(1, 3, 7));
        assert_eq!(counted.lines(), "points\t0\tF\npoints\t1\tKcK\npoints\t2\tG\n");
    }

    #[test]
    fn a_handle_that_is_given_out_again_is_another_stream() {
        let mut counted = Counted::new("2 1 5");
        let key = Key::Made(Stream(0x10));
        let mut streams = |key, work| counted.next(key, work, false).map(|it| (it.stream, it.nanoseconds));
        assert_eq!(streams(key, Work::Kernel), Some((1, None)));
        counted.end(Stream(0x10));
        let mut streams = |key, work| counted.next(key, work, false).map(|it| (it.stream, it.nanoseconds));
        assert_eq!(streams(key, Work::Kernel), Some((2, Some(5))));
        assert_eq!(streams(Key::PerThread(1, 0), Work::Kernel), Some((3, None)));
        assert_eq!(streams(Key::PerThread(2, 0), Work::Copy), Some((4, None)));
        assert_eq!(counted.lines(), "points\t1\tK\npoints\t2\tK\npoints\t3\tK\npoints\t4\tC\n");
    }
}
