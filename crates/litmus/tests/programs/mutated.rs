//! Programs that are nearly those of the corpus: a line or a word is left out, doubled, moved, or replaced by another.
//!
//! They have shapes that no author of programs has in mind. Each is made from a number and is the same every time.
//! Depends on lines and words, not on the language.

use crate::files::corpus;

/// Random numbers, the same for a seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..4).for_each(|_| random.0 ^= random.below(2) as u64);
        random
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % n as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// The corpus, as lines without the expected findings.
pub(crate) struct Mutated {
    programs: Vec<Vec<String>>,
    lines: Vec<String>,
}

/// Returns the lines of a program that are neither blank nor a comment, without the expected findings.
pub(crate) fn statements(text: &str) -> Vec<String> {
    let line = |line: &str| line.split(['#', '!']).next().unwrap_or_default().trim_end().to_owned();
    text.lines().map(line).filter(|line| !line.is_empty()).collect()
}

impl Mutated {
    pub(crate) fn new() -> Self {
        let programs: Vec<Vec<String>> = corpus().iter().map(|(_, text)| statements(text)).collect();
        Mutated { lines: programs.concat(), programs }
    }

    /// Returns the program of a number: one of the corpus, changed at one to four places.
    pub(crate) fn program(&self, number: u64) -> Vec<String> {
        let random = &mut Random::new(number);
        let mut lines = random.pick(&self.programs);
        for _ in 0..1 + random.below(4) {
            if !lines.is_empty() {
                self.change(random, &mut lines);
            }
        }
        lines
    }

    fn change(&self, random: &mut Random, lines: &mut Vec<String>) {
        let (at, to) = (random.below(lines.len()), random.below(lines.len()));
        match random.below(10) {
            0..3 => drop(lines.remove(at)),
            3..5 => lines.insert(to, lines[at].clone()),
            5..7 => lines.swap(at, to),
            _ if random.one_in(3) => lines.insert(at, random.pick(&self.lines)),
            _ => {
                let other = random.pick(lines);
                let others: Vec<&str> = other.split(' ').collect();
                let mut words: Vec<&str> = lines[at].split(' ').collect();
                let word = random.below(words.len());
                words[word] = random.pick(&others);
                lines[at] = words.join(" ");
            }
        }
    }
}
