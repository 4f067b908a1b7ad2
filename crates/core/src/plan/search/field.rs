//! A part of a problem, laid out for search: dense numbers, flat tables.
//!
//! Buffers are numbered within the part, and so are its cliques, here called *sections* (on a line each is a stretch of
//! steps with one set of live buffers). Knows nothing of a plan's progress: all of it is constant.

use crate::plan::conflicts::Conflicts;
use crate::plan::problem::Problem;
use crate::plan::{bits, cliques};

/// Lists of numbers, end to end.
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

    /// List number `at`.
    #[inline]
    pub(super) fn list(&self, at: usize) -> &[u32] {
        &self.items[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// How many lists there are.
    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }
}

/// The constant tables of a search.
pub(in crate::plan) struct Field {
    /// Bytes of each buffer.
    pub(super) bytes: Vec<u64>,
    /// Alignment of each buffer.
    pub(super) alignment: Vec<u64>,
    /// The pairs that conflict.
    pub(super) conflicts: Conflicts,
    /// The buffers that conflict with each.
    pub(super) neighbours: Lists,
    /// The members of each section.
    pub(super) members: Lists,
    /// The sections of each buffer.
    pub(super) sections: Lists,
    /// The bytes of each section's members.
    pub(super) weight: Vec<u64>,
}

/// The most section members that a search holds in memory.
const MEMBERS: usize = 1 << 24;

/// The most buffers of a part in which a search is worth its tables; their conflicts alone take 32 MB.
const BUFFERS: usize = 1 << 14;

impl Field {
    /// The tables of `part`; `None` where they would be too large to search in.
    pub(in crate::plan) fn new(problem: &Problem, part: &[u32]) -> Option<Self> {
        if part.len() > BUFFERS {
            return None;
        }
        let cliques = cliques::cover(problem, part, MEMBERS)?;
        let number = |i: &u32| part.binary_search(i).expect("a clique lies within its part") as u32;
        let members = Lists::new(cliques.iter().map(|clique| clique.iter().map(number).collect()));
        let mut sections = vec![Vec::new(); part.len()];
        for section in 0..members.len() {
            members.list(section).iter().for_each(|&k| sections[k as usize].push(section as u32));
        }
        let conflicts = Conflicts::from_fn(part.len(), |k, l| problem.conflict(part[k] as usize, part[l] as usize));
        let neighbours = (0..part.len()).map(|k| bits::ones(conflicts.row(k)).map(|l| l as u32).collect());
        let need = |k: &u32| problem.buffers()[part[*k as usize] as usize];
        Some(Self {
            bytes: part.iter().map(|&i| problem.buffers()[i as usize].bytes).collect(),
            alignment: part.iter().map(|&i| problem.buffers()[i as usize].alignment).collect(),
            weight: (0..members.len()).map(|s| members.list(s).iter().map(|k| need(k).bytes).sum()).collect(),
            neighbours: Lists::new(neighbours),
            conflicts,
            members,
            sections: Lists::new(sections.into_iter()),
        })
    }

    /// Every offset and top of a plan that rests on byte 0 is a multiple of this: the greatest common divisor of the
    /// sizes, and of the alignments that do not divide it anyway.
    pub(in crate::plan) fn unit(&self) -> u64 {
        let sizes = self.bytes.iter().fold(0, |unit, &bytes| common(unit, bytes));
        self.alignment.iter().fold(sizes, |unit, &to| if unit % to == 0 { unit } else { common(unit, to) })
    }

    /// The highest byte that buffers at `offsets` use.
    pub(in crate::plan) fn height(&self, offsets: &[u64]) -> u64 {
        offsets.iter().zip(&self.bytes).map(|(offset, bytes)| offset + bytes).max().unwrap_or(0)
    }

    /// How many buffers.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// The greatest common divisor.
fn common(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common(b, a % b) }
}
