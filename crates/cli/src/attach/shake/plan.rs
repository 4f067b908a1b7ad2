//! The delays of a seed: a pure function of the seed, of the operations that the program has, and of the time that all
//! delays may take together.
//!
//! A bug shows if one operation is late and those that should have waited for it are not. So seeds differ in what they
//! leave alone: an even seed delays some streams and none of the others, an odd one any operations, but few. They
//! differ in how long they delay as well: a long delay shows most, short ones leave room for many.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The times that delays take, in nanoseconds: of one seed, from the first to the second.
const TIMES: [(u64, u64); 4] =
    [(5_000_000, 40_000_000), (5_000_000, 40_000_000), (500_000, 5_000_000), (20_000, 500_000)];

/// A delay before an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Delay {
    pub(super) stream: u32,
    /// The operation's number in its stream, from 1.
    pub(super) number: u32,
    pub(super) nanoseconds: u64,
}

/// The operations of a program by stream, each a letter: the kind of its work, a small letter in a capture.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Points(BTreeMap<u32, Vec<u8>>);

/// Which operations may be delayed.
#[derive(Clone, Debug, Default)]
pub(super) struct Which {
    pub(super) only_copies: bool,
    /// The only streams; all if there is none.
    pub(super) only_streams: BTreeSet<u32>,
    /// Also operations of captures.
    pub(super) graphs: bool,
}

/// Returns the noun for a kind of work.
fn noun(letter: u8, is_one: bool) -> &'static str {
    match (letter.to_ascii_uppercase(), is_one) {
        (b'K', true) => "kernel",
        (b'K', false) => "kernels",
        (b'C', true) => "copy",
        (b'C', false) => "copies",
        (b'F', true) => "fill",
        (b'F', false) => "fills",
        (_, true) => "launch of a graph",
        (_, false) => "launches of graphs",
    }
}

impl Points {
    /// Adds the operations of a stream of one process. Processes count together: a stream has as many as in the process
    /// that has most.
    pub(super) fn add(&mut self, stream: u32, letters: &str) {
        let known = self.0.entry(stream).or_default();
        if known.len() < letters.len() {
            *known = letters.bytes().collect();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.values().all(Vec::is_empty)
    }

    /// Returns the numbers of the operations of a stream that may be delayed.
    pub(super) fn of<'a>(&'a self, stream: u32, which: &'a Which) -> impl Iterator<Item = u32> + 'a {
        let is_named = which.only_streams.is_empty() || which.only_streams.contains(&stream);
        let letters = self.0.get(&stream).filter(|_| is_named).map_or(&[][..], |letters| letters);
        let may_be = |letter: u8| {
            (which.graphs || letter.is_ascii_uppercase()) && (!which.only_copies || letter.eq_ignore_ascii_case(&b'C'))
        };
        (1..).zip(letters).filter(move |(_, letter)| may_be(**letter)).map(|(number, _)| number)
    }

    /// Returns the streams that have operations that may be delayed.
    pub(super) fn streams(&self, which: &Which) -> Vec<u32> {
        self.0.keys().copied().filter(|stream| self.of(*stream, which).next().is_some()).collect()
    }

    /// Returns the number of operations that may be delayed.
    pub(super) fn count(&self, which: &Which) -> usize {
        self.0.keys().map(|stream| self.of(*stream, which).count()).sum()
    }

    /// Returns the operation that a delay is before, in words.
    pub(super) fn what(&self, delay: Delay) -> String {
        let letter = self.0.get(&delay.stream).and_then(|letters| letters.get(delay.number as usize - 1));
        let captured = if letter.is_some_and(u8::is_ascii_lowercase) { " in a capture" } else { "" };
        letter.map_or_else(|| "an operation".to_owned(), |letter| format!("a {}{captured}", noun(*letter, true)))
    }

    /// Returns a line for each stream: what it has.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(stream, letters): (&u32, &Vec<u8>)| {
            let name = if *stream == 0 { " (the legacy default stream)" } else { "" };
            let mut parts = Vec::new();
            for (kinds, captured) in [("KCFG", ""), ("kcfg", " in captures")] {
                for kind in kinds.bytes() {
                    let count = letters.iter().filter(|letter| **letter == kind).count();
                    if count > 0 {
                        parts.push(format!("{count} {}{captured}", noun(kind, count == 1)));
                    }
                }
            }
            format!("stream {stream}{name}: {}", parts.join(", "))
        };
        self.0.iter().filter(|(_, letters)| !letters.is_empty()).map(line).collect()
    }
}

/// Returns a number that looks random, the same for the same words.
fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0x9E37_79B9_7F4A_7C15, |state, word| {
        // The mixer of SplitMix64.
        let mut mixed = (state ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    })
}

/// Returns a number between `first` and `last`, of which each size is equally likely: as many below a hundred as above.
fn between(first: u64, last: u64, random: u64) -> u64 {
    let part = random as f64 / u64::MAX as f64;
    let times = (last as f64 / first as f64).powf(part);
    (first as f64 * times) as u64
}

/// Returns the delays of a seed, by stream and number. Together they take no more than `total` nanoseconds.
pub(super) fn choose(points: &Points, which: &Which, seed: u64, total: u64) -> Vec<Delay> {
    let (first, last) = TIMES[(seed / 2 % 4) as usize];
    let streams = points.streams(which);
    let chosen: Vec<u32> = match seed % 2 {
        0 => some(&streams, seed),
        _ => streams,
    };
    // One in two to one in sixteen operations.
    let part = u64::MAX >> (1 + hash(&[seed, 1]) % if seed.is_multiple_of(2) { 2 } else { 4 });
    let all = chosen.iter().flat_map(|stream| points.of(*stream, which).map(|number| (*stream, number)));
    let mut all: Vec<(u64, u32, u32)> =
        all.map(|(stream, number)| (hash(&[seed, 2, stream.into(), number.into()]), stream, number)).collect();
    all.sort_unstable();
    let wanted = all.iter().take_while(|it| it.0 <= part).count().max(1);
    let mut left = total;
    let mut delays = Vec::new();
    for (random, stream, number) in all.into_iter().take(wanted) {
        let nanoseconds = between(first, last, hash(&[random, 3])).min(total);
        if nanoseconds > 0 && nanoseconds <= left {
            left -= nanoseconds;
            delays.push(Delay { stream, number, nanoseconds });
        }
    }
    delays.sort_unstable();
    delays
}

/// Returns some of the streams, but not all of several.
fn some(streams: &[u32], seed: u64) -> Vec<u32> {
    let is_slow = |stream: &&u32| hash(&[seed, 4, u64::from(**stream)]).is_multiple_of(2);
    let slow: Vec<u32> = streams.iter().filter(is_slow).copied().collect();
    match slow.len() {
        some if some > 0 && (some < streams.len() || some == 1) => slow,
        _ => streams.iter().min_by_key(|stream| hash(&[seed, 5, u64::from(**stream)])).copied().into_iter().collect(),
    }
}

/// Returns delays in the form that the preloaded library reads.
pub(super) fn listed(delays: &[Delay]) -> String {
    let mut text = String::new();
    for Delay { stream, number, nanoseconds } in delays {
        let _ = writeln!(text, "{stream} {number} {nanoseconds}");
    }
    text
}

/// Returns the sum of the times of delays, in nanoseconds.
pub(super) fn sum(delays: &[Delay]) -> u64 {
    delays.iter().map(|delay| delay.nanoseconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(streams: &[(u32, &str)]) -> Points {
        let mut points = Points::default();
        streams.iter().for_each(|(stream, letters)| points.add(*stream, letters));
        points
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_seed_has_the_same_delays_each_time_and_seeds_differ() {
        let points = points(&[(1, &"KC".repeat(50)), (2, &"KF".repeat(50))]);
        let of = |seed| choose(&points, &Which::default(), seed, 1000 * MS);
        let all: BTreeSet<Vec<Delay>> = (0..20).map(of).collect();
        assert_eq!(all.len(), 20);
        assert_eq!((0..20).map(of).collect::<BTreeSet<_>>(), all);
    }

    #[test]
    fn the_budget_is_kept_and_there_is_always_a_delay() {
        for (count, total) in [(1, 100 * MS), (3, MS), (10_000, 500 * MS), (10_000, 50_000)] {
            let points = points(&[(0, &"K".repeat(count)), (3, &"C".repeat(count))]);
            for seed in 0..200 {
                let delays = choose(&points, &Which::default(), seed, total);
                assert!(!delays.is_empty() && sum(&delays) <= total, "{count} {total} {seed}: {}", sum(&delays));
            }
        }
        assert!(choose(&Points::default(), &Which::default(), 1, MS).is_empty());
    }

    #[test]
    fn each_operation_of_two_streams_is_late_alone_in_some_of_twenty_seeds() {
        let points = points(&[(1, "KKK"), (2, "CCC")]);
        let plans: Vec<_> = (0..20).map(|seed| choose(&points, &Which::default(), seed, 128 * MS)).collect();
        for (stream, other) in [(1, 2), (2, 1)] {
            for number in 1..=3 {
                let is_late = |it: &&Delay| (it.stream, it.number) == (stream, number) && it.nanoseconds > 5 * MS;
                let is_good =
                    |plan: &&Vec<Delay>| plan.iter().any(|it| is_late(&it)) && plan.iter().all(|it| it.stream != other);
                assert!(plans.iter().any(|plan| is_good(&plan)), "stream {stream}, operation {number}");
            }
        }
    }

    #[test]
    fn only_what_is_wanted_is_delayed() {
        let points = points(&[(1, "KCkcG"), (2, "CCC")]);
        let numbers = |which: &Which| points.of(1, which).collect::<Vec<_>>();
        assert_eq!(numbers(&Which::default()), [1, 2, 5]);
        assert_eq!(numbers(&Which { only_copies: true, ..Which::default() }), [2]);
        assert_eq!(numbers(&Which { graphs: true, only_copies: true, ..Which::default() }), [2, 4]);
        assert_eq!(numbers(&Which { only_streams: [2].into(), ..Which::default() }), [0; 0]);
        assert_eq!(points.streams(&Which { only_streams: [2, 7].into(), ..Which::default() }), [2]);
        assert_eq!(points.count(&Which::default()), 6);
        let line = "stream 1: 1 kernel, 1 copy, 1 launch of a graph, 1 kernel in captures, 1 copy in captures";
        assert_eq!(points.lines(), [line, "stream 2: 3 copies"]);
        assert_eq!(points.what(Delay { stream: 1, number: 4, nanoseconds: 0 }), "a copy in a capture");
    }

    #[test]
    fn a_list_is_a_line_for_each_delay() {
        let delays = [Delay { stream: 1, number: 2, nanoseconds: 3 }, Delay { stream: 4, number: 5, nanoseconds: 6 }];
        assert_eq!((listed(&delays).as_str(), sum(&delays)), ("1 2 3\n4 5 6\n", 9));
    }
}
