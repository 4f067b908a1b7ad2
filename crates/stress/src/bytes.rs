//! The content of memory, and kernels that check the bytes, write others, take their time, and report when they have
//! run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millpond_runner::Kernel;

use crate::finding::finding;
use crate::ground::{Done, Ground};
use crate::sharing::Doubt;

/// The content of memory, by words of eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// The content is not known.
    Unknown,
    /// Words that are derived from a number.
    Words(u64),
    /// One byte, everywhere.
    Bytes(u8),
}

/// A range of words of memory: its first word, and the number of all words of the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of {
    pub(crate) first: usize,
    pub(crate) all: usize,
}

impl Of {
    /// Returns the range of all words.
    pub(crate) fn whole(bytes: &[u8]) -> Self {
        Of { first: 0, all: bytes.len() / 8 }
    }
}

impl Content {
    fn word(self, at: usize) -> Option<u64> {
        match self {
            Content::Unknown => None,
            Content::Words(tag) => Some(tag.wrapping_add((at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))),
            Content::Bytes(byte) => Some(u64::from_ne_bytes([byte; 8])),
        }
    }

    /// Returns some words of the content.
    pub(crate) fn bytes(self, first: usize, words: usize) -> Vec<u8> {
        (first..first + words).flat_map(|at| self.word(at).unwrap_or_default().to_ne_bytes()).collect()
    }

    /// Writes the content.
    pub(crate) fn fill(self, bytes: &mut [u8], of: Of) {
        for at in places(bytes.len() / 8, of) {
            if let Some(word) = self.word(of.first + at) {
                bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_ne_bytes());
            }
        }
    }

    /// Describes the first word that differs from the content.
    pub(crate) fn wrong(self, bytes: &[u8], of: Of) -> Option<String> {
        let found = |at: usize| u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        let is_wrong = |at: &usize| self.word(of.first + at).is_some_and(|word| word != found(*at));
        let at = places(bytes.len() / 8, of).find(is_wrong)?;
        let right = self.word(of.first + at).unwrap_or(0);
        Some(format!("word {} of {} is {:#x}, and {right:#x} was written", of.first + at, of.all, found(at)))
    }

    /// Encodes the content for another process.
    pub(crate) fn to_text(self) -> String {
        match self {
            Content::Unknown => "u".into(),
            Content::Words(tag) => format!("w{tag}"),
            Content::Bytes(byte) => format!("b{byte}"),
        }
    }

    /// Decodes the content that another process sent.
    pub(crate) fn of_text(text: &str) -> Self {
        let number = || text[1..].parse::<u64>().unwrap_or_default();
        match text.as_bytes().first() {
            Some(b'w') => Content::Words(number()),
            Some(b'b') => Content::Bytes(number() as u8),
            _ => Content::Unknown,
        }
    }

    /// Reports a finding if the bytes differ from the content that was written there.
    pub(crate) fn check(self, bytes: &[u8], of: Of, ground: &Ground, who: &str) {
        if self == Content::Unknown {
            return;
        }
        if let Some(wrong) = self.wrong(bytes, of) {
            finding(&format!("{who}: {wrong}"));
        }
        ground.figures.words.fetch_add(places(bytes.len() / 8, of).count() as u64, Ordering::Relaxed);
    }
}

/// Returns the words that are written and checked, counted from the first of the range: all words of small memory, and
/// one in 64 and the last of large memory.
fn places(words: usize, of: Of) -> impl Iterator<Item = usize> {
    let step = if of.all <= 4096 { 1 } else { 64 };
    let last = of.all.checked_sub(1).filter(|last| step > 1 && last % step != 0);
    let first = of.first.next_multiple_of(step);
    (first..of.all)
        .step_by(step)
        .chain(last)
        .skip_while(move |at| *at < of.first)
        .map(move |at| at - of.first)
        .take_while(move |at| *at < words)
}

/// A kernel that reads or writes one piece of memory, or reads one piece and writes another.
pub(crate) struct Look {
    pub(crate) ground: Arc<Ground>,
    /// The number of the life that it uses.
    pub(crate) life: u32,
    /// The expected content: of the memory that it reads, or else of the memory that it writes.
    pub(crate) before: Content,
    /// Set if the expected content may be missing.
    pub(crate) doubt: Option<Doubt>,
    /// The content that it leaves in the memory that it writes.
    pub(crate) after: Content,
    /// The flag that is set when it has run.
    pub(crate) done: Option<Done>,
    /// Its duration in microseconds.
    pub(crate) micros: u64,
    /// The range of words that it uses.
    pub(crate) of: Of,
}

impl Look {
    /// Returns the kernel in the runner's form.
    pub(crate) fn kernel(self) -> Kernel {
        Box::new(move |reads, writes| {
            for bytes in reads {
                self.read(bytes);
            }
            for bytes in writes.iter_mut() {
                self.write(bytes, reads.is_empty());
            }
            if let Some(done) = &self.done {
                done.store(true, Ordering::Release);
            }
        })
    }

    fn who(&self, when: &str) -> String {
        format!("a kernel of a{}, {when}", self.life)
    }

    fn look(&self, bytes: &[u8], when: &str) {
        let is_missing = |doubt: &Doubt| self.before.wrong(bytes, self.of).is_some() && doubt.is_true();
        if !self.doubt.as_ref().is_some_and(is_missing) {
            self.before.check(bytes, self.of, &self.ground, &self.who(when));
        }
    }

    fn write(&self, bytes: &mut [u8], looks: bool) {
        self.ground.enter(bytes, true, self.life);
        let of = if looks { self.of } else { Of::whole(bytes) };
        if looks {
            self.look(bytes, "at its start");
        }
        if bytes.len() / 8 < of.all {
            // The bytes are the same at the end, but a kernel that runs at the same time must see others.
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
            pause(self.micros);
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
        }
        self.after.fill(bytes, of);
        pause(self.micros);
        self.after.check(bytes, of, &self.ground, &self.who("after it has written"));
        self.ground.leave(bytes, true, self.life);
    }

    fn read(&self, bytes: &[u8]) {
        self.ground.enter(bytes, false, self.life);
        self.look(bytes, "at its start");
        pause(self.micros);
        self.look(bytes, "at its end");
        self.ground.leave(bytes, false, self.life);
    }
}

/// Waits for some time.
pub(crate) fn pause(micros: u64) {
    let until = Instant::now() + Duration::from_micros(micros);
    match micros {
        0 => {}
        1..60 => {
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        _ => std::thread::sleep(Duration::from_micros(micros)),
    }
}
