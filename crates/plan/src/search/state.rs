//! The state of a search: the floor of each buffer, the bytes that the sections still have to take, and the trail to go
//! back.
//!
//! Every unplaced buffer has a *floor*: no plan that agrees with the decisions so far puts it lower. There are two
//! moves, and both only raise floors: a buffer **sits** on its floor, or it **waits** for another buffer to carry it.
//! The unplaced bytes of a section have to fit between the lowest of its floors and the capacity. If they do not, the
//! move was wrong.
//!
//! Invariants: **floors only rise** between two undos; **trail**: undoing to a point restores every field but the
//! failure counts; **key**: two states with the same placed set, floors and waiting flags have the same key (and
//! different states have the same key with probability 2^-128). This module does not choose moves.

use super::Verdict;
use super::field::Field;
use super::reasons::Reasons;
use millpond_core::plan::bits;
use millpond_core::units::round_up;

/// A change that can be undone.
enum Undo {
    Floor { buffer: u32, floor: u64, waits: bool },
    Base { section: u32, base: u64, low: u32 },
    Sit { buffer: u32 },
}

/// The state of a search for a plan within `capacity`.
pub(super) struct State<'f> {
    pub(super) field: &'f Field,
    pub(super) capacity: u64,
    /// The lowest offset left to each buffer; for a placed buffer, its offset.
    pub(super) floor: Vec<u64>,
    /// `true` for a buffer that waits: it sits only when another buffer has come to carry it.
    pub(super) waits: Vec<bool>,
    /// The unplaced buffers, as bits.
    pub(super) loose: Vec<u64>,
    /// The number of unplaced buffers of the island being searched. `key` identifies the island's state.
    pub(super) left: usize,
    pub(super) key: u128,
    /// For each section: the unplaced bytes (`rest`), the lowest floor (`base`), and the number of buffers that could
    /// be the next from below (`low`).
    pub(super) rest: Vec<u64>,
    pub(super) base: Vec<u64>,
    pub(super) low: Vec<u32>,
    /// For each section, the number of lines of search that it ended. Older ones count less.
    pub(super) failures: Vec<f64>,
    pub(super) failure: f64,
    /// The decisions that the floors follow from, and, after a failed move, those of the failure.
    pub(super) reasons: Reasons,
    trail: Vec<Undo>,
    stale: Vec<u32>,
    is_stale: Vec<bool>,
}

/// The lowest positions of the unplaced buffers that conflict with a certain buffer.
pub(super) struct Above {
    /// The lowest of their floors.
    pub(super) floor: u64,
    /// The lowest of their tops, each on its floor.
    pub(super) top: u64,
    /// The buffer with this top, if there is any.
    pub(super) carrier: Option<u32>,
}

/// The weight of a failure relative to the one before it.
const FRESHER: f64 = 1.001;

/// Above this, the counts are scaled down, so that they stay finite.
const SCALE: f64 = 1e100;

impl<'f> State<'f> {
    /// Starts with nothing placed. Returns `None` if a section or a single buffer does not fit `capacity`.
    pub(super) fn new(field: &'f Field, capacity: u64) -> Option<Self> {
        let (n, sections) = (field.len(), field.members.len());
        let mut state = Self {
            field,
            capacity,
            floor: vec![0; n],
            waits: vec![false; n],
            loose: bits::full(n),
            left: n,
            key: 0,
            rest: field.weight.clone(),
            base: vec![0; sections],
            low: vec![0; sections],
            failures: vec![1.0; sections],
            failure: 1.0,
            reasons: Reasons::new(n),
            trail: Vec::new(),
            stale: (0..sections as u32).collect(),
            is_stale: vec![true; sections],
        };
        let fits = field.bytes.iter().all(|&bytes| bytes <= capacity) && state.settle(true);
        state.trail.clear();
        state.reset();
        fits.then_some(state)
    }

    /// Goes back to the state in which nothing is placed.
    pub(super) fn reset(&mut self) {
        self.undo(0);
        self.left = self.field.len();
        self.key = (0..self.field.len() as u32).fold(0, |key, i| key ^ self.print(i));
    }

    /// Returns a point that [`undo`](Self::undo) can go back to.
    pub(super) fn point(&self) -> usize {
        self.trail.len()
    }

    /// Returns the plan. All buffers must be placed.
    pub(super) fn found(&self) -> Verdict {
        let tops = self.floor.iter().zip(&self.field.bytes).map(|(floor, bytes)| floor + bytes);
        Verdict::Found { offsets: self.field.in_order(&self.floor), height: tops.max().unwrap_or(0) }
    }

    /// Returns the part of the key that `buffer`, which is not placed, adds.
    pub(super) fn print(&self, buffer: u32) -> u128 {
        print(buffer, self.floor[buffer as usize], self.waits[buffer as usize])
    }

    /// Puts `buffer` on its floor. Returns `true` if the rest may still fit.
    pub(super) fn sit(&mut self, buffer: u32) -> bool {
        let (i, field) = (buffer as usize, self.field);
        debug_assert!(bits::has(&self.loose, i) && !self.waits[i]);
        self.trail.push(Undo::Sit { buffer });
        self.key ^= print(buffer, self.floor[i], false);
        bits::take(&mut self.loose, i);
        self.left -= 1;
        for &section in field.sections.list(i) {
            self.rest[section as usize] -= field.bytes[i];
            self.touch(section);
        }
        let top = self.floor[i] + field.bytes[i];
        let mut fits = true;
        let (first, row) = field.conflicts.row(i);
        for (word, row) in row.iter().enumerate() {
            for bit in bits::ones_of(row & self.loose[first + word]) {
                let j = (first + word) * bits::WORD + bit;
                fits = fits && self.carry(i, top, j);
            }
        }
        self.settle(fits)
    }

    /// Buffer `i` now sits below `j`, with its top at `top`. Returns `true` if `j` still fits.
    fn carry(&mut self, i: usize, top: u64, j: usize) -> bool {
        let carried = round_up(top, self.field.alignment[j]);
        if carried.is_some_and(|carried| carried < self.floor[j] || (carried == self.floor[j] && !self.waits[j])) {
            return true;
        }
        // That `j` is above `i` follows from the position of `i`, and, if `j` could be below it, from the floor of `j`.
        let could_be_below = self.field.bytes[j] <= self.floor[i];
        self.reasons.begin(could_be_below.then_some(j));
        bits::put(&mut self.reasons.draft, i);
        self.raise(j as u32, carried, false)
    }

    /// Decides that `buffer` waits: raises its floor to the lowest top of a buffer that could carry it. Returns `true`
    /// if the rest may still fit.
    pub(super) fn wait(&mut self, buffer: u32) -> bool {
        self.reasons.begin(None);
        self.lift(buffer)
    }

    /// As [`wait`](Self::wait), for a buffer that waits already: raises its floor because of the decisions since.
    pub(super) fn wait_on(&mut self, buffer: u32) -> bool {
        let mut reason = std::mem::take(&mut self.reasons.draft);
        reason.fill(0);
        self.explain_wait(buffer, &mut reason);
        self.reasons.draft = reason;
        self.lift(buffer)
    }

    fn lift(&mut self, buffer: u32) -> bool {
        bits::put(&mut self.reasons.draft, buffer as usize);
        let above = self.above(buffer);
        let floor = above.carrier.and_then(|_| round_up(above.top, self.field.alignment[buffer as usize]));
        let fits = self.raise(buffer, floor, true);
        self.settle(fits)
    }

    /// Adds to `reason` why `buffer`, if it is not on its floor, is at or above the lowest top of the others: it is not
    /// below its floor, the placed buffers are too low to carry it, and the others are not lower.
    pub(super) fn explain_wait(&self, buffer: u32, reason: &mut [u64]) {
        let top = self.above(buffer).top;
        self.explain_around(buffer, reason, |bytes| bytes < top);
    }

    /// Adds to `reason` why `buffer` may as well be on its floor: all others are above it there.
    pub(super) fn explain_sit(&self, buffer: u32, reason: &mut [u64]) {
        self.explain_around(buffer, reason, |_| true);
    }

    /// Adds why `buffer` is not below its floor, the placed buffers around it, and why the others are not below their
    /// floors, for those whose bytes satisfy `counts`.
    fn explain_around(&self, buffer: u32, reason: &mut [u64], counts: impl Fn(u64) -> bool) {
        let i = buffer as usize;
        bits::join(reason, self.reasons.row(i));
        let (first, row) = self.field.conflicts.row(i);
        for (at, row) in row.iter().enumerate() {
            reason[first + at] |= row & !self.loose[first + at];
        }
        for j in self.field.conflicts.within(i, &self.loose) {
            if counts(self.field.bytes[j]) {
                bits::join(reason, self.reasons.row(j));
            }
        }
    }

    /// Blames all decisions that the state of the island with these `sections` follows from.
    pub(super) fn blame_island(&mut self, sections: &[u32]) {
        let mut island = vec![0; self.loose.len()];
        for &section in sections {
            let members = self.field.members.within(section as usize, &self.loose);
            members.for_each(|i| bits::put(&mut island, i));
        }
        self.reasons.blame_all(bits::ones(&island));
        // If no buffer waits, the floors describe the whole state. A waiting buffer relies on being carried by the
        // island alone, which follows from the positions of the buffers around the island.
        if bits::ones(&island).any(|i| self.waits[i]) {
            for i in bits::ones(&island) {
                let (first, row) = self.field.conflicts.row(i);
                for (at, row) in row.iter().enumerate() {
                    self.reasons.blame[first + at] |= row & !self.loose[first + at];
                }
            }
        }
    }

    /// Returns the lowest positions of the unplaced buffers that conflict with `buffer`.
    pub(super) fn above(&self, buffer: u32) -> Above {
        let mut above = Above { floor: u64::MAX, top: u64::MAX, carrier: None };
        for j in self.field.conflicts.within(buffer as usize, &self.loose) {
            above.floor = above.floor.min(self.floor[j]);
            let top = self.floor[j] + self.field.bytes[j];
            if top < above.top || above.carrier.is_none() {
                (above.top, above.carrier) = (top, Some(j as u32));
            }
        }
        above
    }

    /// Undoes all changes since `point`.
    pub(super) fn undo(&mut self, point: usize) {
        while self.trail.len() > point {
            match self.trail.pop().expect("longer than at the point") {
                Undo::Floor { buffer, floor, waits } => {
                    let i = buffer as usize;
                    self.key ^= print(buffer, self.floor[i], self.waits[i]) ^ print(buffer, floor, waits);
                    self.floor[i] = floor;
                    self.waits[i] = waits;
                    self.reasons.take_back(i);
                }
                Undo::Base { section, base, low } => {
                    self.base[section as usize] = base;
                    self.low[section as usize] = low;
                }
                Undo::Sit { buffer } => {
                    let i = buffer as usize;
                    bits::put(&mut self.loose, i);
                    self.left += 1;
                    self.key ^= print(buffer, self.floor[i], false);
                    for &section in self.field.sections.list(i) {
                        self.rest[section as usize] += self.field.bytes[i];
                    }
                }
            }
        }
    }

    /// Sets the floor of `buffer`, with the draft as its reason; `None` is above every floor. Returns `true` if the
    /// buffer still fits below the capacity.
    fn raise(&mut self, buffer: u32, floor: Option<u64>, waits: bool) -> bool {
        let i = buffer as usize;
        let highest = self.capacity - self.field.bytes[i];
        let Some(floor) = floor.filter(|&floor| floor <= highest) else {
            self.reasons.blame_draft();
            return false;
        };
        self.reasons.set(i);
        self.trail.push(Undo::Floor { buffer, floor: self.floor[i], waits: self.waits[i] });
        self.key ^= print(buffer, self.floor[i], self.waits[i]) ^ print(buffer, floor, waits);
        self.waits[i] = waits;
        let before = std::mem::replace(&mut self.floor[i], floor);
        if before != floor {
            for at in 0..self.field.sections.list(i).len() {
                let section = self.field.sections.list(i)[at];
                let s = section as usize;
                // Neither the lowest floor nor the number of floors low enough to be next changes.
                let line = self.capacity - self.rest[s];
                let same = before > self.base[s] && (before > line || floor <= line);
                if !same {
                    self.touch(section);
                }
            }
        }
        true
    }

    fn touch(&mut self, section: u32) {
        if !self.is_stale[section as usize] {
            self.is_stale[section as usize] = true;
            self.stale.push(section);
        }
    }

    /// Updates the stale sections. Returns `true` if `fits` and the rest of each section fits between its base and the
    /// capacity. Otherwise the remaining sections are left as they were, because the move will be undone.
    fn settle(&mut self, mut fits: bool) -> bool {
        while let Some(section) = self.stale.pop() {
            let s = section as usize;
            self.is_stale[s] = false;
            if !fits || self.rest[s] == 0 {
                continue;
            }
            // A member above this line cannot be the next from below: the rest would not fit above it.
            let Some(line) = self.capacity.checked_sub(self.rest[s]) else {
                fits = self.fail(s);
                continue;
            };
            let (mut base, mut low) = (u64::MAX, 0);
            for k in self.field.members.within(s, &self.loose) {
                base = base.min(self.floor[k]);
                low += u32::from(self.floor[k] <= line);
            }
            if (base, low) != (self.base[s], self.low[s]) {
                self.trail.push(Undo::Base { section, base: self.base[s], low: self.low[s] });
                (self.base[s], self.low[s]) = (base, low);
            }
            if low == 0 {
                fits = self.fail(s);
            }
        }
        fits
    }

    #[cold]
    fn fail(&mut self, section: usize) -> bool {
        self.reasons.blame_all(self.field.members.within(section, &self.loose));
        self.failures[section] += self.failure;
        self.failure *= FRESHER;
        if self.failure > SCALE {
            self.failures.iter_mut().for_each(|count| *count /= SCALE);
            self.failure /= SCALE;
        }
        false
    }
}

/// Returns the part of the key that an unplaced buffer adds: two hashes, one for each half.
fn print(buffer: u32, floor: u64, waits: bool) -> u128 {
    let who = u64::from(buffer) << 1 | u64::from(waits);
    let low = finalize(floor ^ who.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let high =
        finalize(floor.wrapping_mul(0xA076_1D64_78BD_642F).wrapping_add(who.wrapping_mul(0xE703_7ED1_A0B4_28DB)));
    u128::from(high) << 64 | u128::from(low)
}

/// A bijection of 64 bits in which every output bit depends on every input bit.
pub(super) fn finalize(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}
