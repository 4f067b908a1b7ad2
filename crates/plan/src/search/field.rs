//! A part of a problem, prepared for search: dense numbers and flat tables.
//!
//! Buffers and cliques are numbered within the part. Cliques are called *sections* here (on a line each is a stretch of
//! steps with the same live buffers). All tables are constant; this module does not know the progress of a plan.

use millpond_core::plan::{Problem, Sharing, bits};

use crate::cover::cover;

/// Lists of numbers in one vector.
pub(super) struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    fn new(lists: impl Iterator<Item = Vec<u32>>) -> Self {
        let mut flat = Self { starts: vec![0], items: Vec::new() };
        for list in lists {
            flat.items.extend(list);
            flat.starts.push(flat.items.len() as u32);
        }
        flat
    }

    /// Returns list number `at`.
    #[inline]
    pub(super) fn list(&self, at: usize) -> &[u32] {
        &self.items[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

/// Sets of buffers, each stored as the words from its first to its last member.
pub(super) struct Rows {
    words: Vec<u64>,
    /// For each row, its start in `words` and the index of its first word in a whole set.
    starts: Vec<(u32, u32)>,
}

impl Rows {
    fn new(buffers: usize, rows: impl Iterator<Item = impl IntoIterator<Item = u32>>) -> Self {
        let mut flat = Self { words: Vec::new(), starts: Vec::new() };
        let mut whole = vec![0; bits::words(buffers)];
        for row in rows {
            whole.fill(0);
            row.into_iter().for_each(|i| bits::put(&mut whole, i as usize));
            let first = whole.iter().position(|&word| word != 0).unwrap_or(0);
            let last = whole.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
            flat.starts.push((flat.words.len() as u32, first as u32));
            flat.words.extend(&whole[first..last]);
        }
        flat.starts.push((flat.words.len() as u32, 0));
        flat
    }

    /// Returns row `at`: the index of its first word, and its words.
    #[inline]
    pub(super) fn row(&self, at: usize) -> (usize, &[u64]) {
        let (start, first) = self.starts[at];
        (first as usize, &self.words[start as usize..self.starts[at + 1].0 as usize])
    }

    /// Returns the members of row `at` that are in `set`, ascending.
    #[inline]
    pub(super) fn within<'a>(&'a self, at: usize, set: &'a [u64]) -> impl Iterator<Item = usize> + 'a {
        let (first, words) = self.row(at);
        words.iter().zip(&set[first..]).enumerate().flat_map(move |(word, (row, set))| {
            bits::ones_of(row & set).map(move |bit| (first + word) * bits::WORD + bit)
        })
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }
}

/// The constant tables of a search.
pub(crate) struct Field {
    /// The position of each buffer in the part.
    places: Vec<u32>,
    /// The size of each buffer in bytes.
    pub(super) bytes: Vec<u64>,
    /// The alignment of each buffer.
    pub(super) alignment: Vec<u64>,
    /// The buffers that conflict with each buffer.
    pub(super) conflicts: Rows,
    /// The members of each section.
    pub(super) members: Rows,
    /// The sections of each buffer.
    pub(super) sections: Lists,
    /// The bytes of each section's members.
    pub(super) weight: Vec<u64>,
}

/// The largest number of section members that a search holds in memory.
const MEMBERS: usize = 1 << 24;

/// The largest number of buffers of a part that is searched. The table of their conflicts alone takes up to 32 MB.
const BUFFERS: usize = 1 << 14;

impl Field {
    /// Builds the tables of `part`. Returns `None` if they would be too large for a search, or if there is no line.
    pub(crate) fn new(problem: &Problem, part: &[u32]) -> Option<Self> {
        let Sharing::Line(lifetimes) = problem.sharing() else { return None };
        if part.len() > BUFFERS {
            return None;
        }
        let cliques = cover(lifetimes, part, MEMBERS)?;
        // Buffers are numbered by birth, so that conflicting buffers have close numbers and rows are short.
        let n = part.len();
        let mut places: Vec<u32> = (0..n as u32).collect();
        places.sort_by_key(|&place| lifetimes[part[place as usize] as usize].lower);
        let mut number = vec![0; n];
        places.iter().enumerate().for_each(|(k, &place)| number[place as usize] = k as u32);
        let number = |i: &u32| number[part.binary_search(i).expect("a clique lies within its part")];
        let original = |k: usize| part[places[k] as usize] as usize;
        let mut sections = vec![Vec::new(); n];
        for (section, clique) in cliques.iter().enumerate() {
            clique.iter().for_each(|i| sections[number(i) as usize].push(section as u32));
        }
        let conflicting = |k| (0..n).filter(move |&l| problem.conflict(original(k), original(l))).map(|l| l as u32);
        let bytes = |i: usize| problem.buffers()[i].bytes;
        Some(Self {
            bytes: (0..n).map(|k| bytes(original(k))).collect(),
            alignment: (0..n).map(|k| problem.buffers()[original(k)].alignment).collect(),
            weight: cliques.iter().map(|clique| clique.iter().map(|&i| bytes(i as usize)).sum()).collect(),
            conflicts: Rows::new(n, (0..n).map(conflicting)),
            members: Rows::new(n, cliques.iter().map(|clique| clique.iter().map(number))),
            sections: Lists::new(sections.into_iter()),
            places,
        })
    }

    /// Returns a plan of the search in the order of the part.
    pub(super) fn in_order(&self, floors: &[u64]) -> Vec<u64> {
        let mut offsets = vec![0; floors.len()];
        self.places.iter().zip(floors).for_each(|(&place, &floor)| offsets[place as usize] = floor);
        offsets
    }

    /// Returns a divisor of every offset and top of a plan that rests on byte 0: the greatest common divisor of the
    /// sizes, and of the alignments that do not divide it anyway.
    pub(crate) fn unit(&self) -> u64 {
        let sizes = self.bytes.iter().fold(0, |unit, &bytes| common(unit, bytes));
        self.alignment.iter().fold(sizes, |unit, &to| if unit % to == 0 { unit } else { common(unit, to) })
    }

    /// Returns the number of buffers.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Returns the greatest common divisor.
fn common(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common(b, a % b) }
}
