//! What kernels do: they look whether the bytes are right, write others, take their time, and say when they are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use millpond::{Buffer, Device, Pool, Stream};

use crate::finding::finding;
use crate::oracle::{Done, Oracle, Use};
use crate::party::Doubt;

/// What is in a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// It is not known.
    Unknown,
    /// Words that follow from a number.
    Words(u64),
    /// One byte, everywhere.
    Bytes(u8),
}

impl Content {
    /// The word at a place.
    fn word(self, at: usize) -> Option<u64> {
        match self {
            Content::Unknown => None,
            Content::Words(tag) => Some(tag.wrapping_add((at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))),
            Content::Bytes(byte) => Some(u64::from_ne_bytes([byte; 8])),
        }
    }

    /// So many words of it.
    pub(crate) fn words(self, len: usize) -> Vec<u64> {
        let mut words = vec![0; len];
        self.fill(&mut words);
        words
    }

    pub(crate) fn fill(self, words: &mut [u64]) {
        self.fill_part(words, (0, words.len()));
    }

    /// Writes what is at these words of so many, from `part.0` on.
    fn fill_part(self, words: &mut [u64], part: (usize, usize)) {
        for at in places_in(words.len(), part) {
            if let Some(word) = self.word(part.0 + at) {
                words[at] = word;
            }
        }
    }

    /// So many words of it, from a place on.
    pub(crate) fn words_from(self, from: usize, len: usize) -> Vec<u64> {
        (from..from + len).map(|at| self.word(at).unwrap_or_default()).collect()
    }

    /// The first word that is another, in words.
    pub(crate) fn wrong(self, words: &[u64]) -> Option<String> {
        self.wrong_part(words, (0, words.len()))
    }

    fn wrong_part(self, words: &[u64], part: (usize, usize)) -> Option<String> {
        let is_wrong = |at: &usize| self.word(part.0 + at).is_some_and(|word| word != words[*at]);
        let at = places_in(words.len(), part).find(is_wrong)?;
        let right = self.word(part.0 + at).unwrap_or(0);
        Some(format!("word {} of {} is {:#x}, and {right:#x} was written", part.0 + at, part.1, words[at]))
    }

    /// For another process.
    pub(crate) fn to_text(self) -> String {
        match self {
            Content::Unknown => "u".into(),
            Content::Words(tag) => format!("w{tag}"),
            Content::Bytes(byte) => format!("b{byte}"),
        }
    }

    /// What another process said.
    pub(crate) fn of_text(text: &str) -> Self {
        let number = || text[1..].parse::<u64>().unwrap_or_default();
        match text.as_bytes().first() {
            Some(b'w') => Content::Words(number()),
            Some(b'b') => Content::Bytes(number() as u8),
            _ => Content::Unknown,
        }
    }

    /// Whether this is what is there.
    pub(crate) fn check(self, words: &[u64], oracle: &Oracle, who: &str) {
        self.check_part(words, (0, words.len()), oracle, who);
    }

    /// As `check`, of words from `part.0` on, of `part.1`.
    pub(crate) fn check_part(self, words: &[u64], part: (usize, usize), oracle: &Oracle, who: &str) {
        if self == Content::Unknown {
            return;
        }
        if let Some(wrong) = self.wrong_part(words, part) {
            finding(&format!("{who}: {wrong}"));
        }
        oracle.figures.words.fetch_add(places_in(words.len(), part).count() as u64, Ordering::Relaxed);
    }
}

/// Which words of a buffer are written and looked at: all of a small one, one in 64 and the last of a large one.
fn places(len: usize) -> impl Iterator<Item = usize> {
    let step = if len <= 4096 { 1 } else { 64 };
    (0..len).step_by(step).chain(len.checked_sub(1).filter(|last| step > 1 && last % step != 0))
}

/// Of `len` words from `first` on, of a buffer of `all`: those, from the first of them.
fn places_in(len: usize, (first, all): (usize, usize)) -> impl Iterator<Item = usize> {
    places(all).skip_while(move |at| *at < first).take_while(move |at| *at < first + len).map(move |at| at - first)
}

/// A kernel that uses one buffer.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// Where it says what it does.
    pub(crate) oracle: Arc<Oracle>,
    /// Whose memory.
    pub(crate) life: u64,
    /// What it finds.
    pub(crate) before: Content,
    /// Whether that may be missing.
    pub(crate) doubt: Option<Doubt>,
    /// What it leaves.
    pub(crate) after: Content,
    /// Set when it has run.
    pub(crate) done: Option<Done>,
    /// How long it takes.
    pub(crate) micros: u64,
    /// Where it uses only some words: the first of them, and how many the buffer has.
    pub(crate) part: Option<(usize, usize)>,
}

impl Kernel {
    /// One that takes no time.
    pub(crate) fn new(oracle: &Arc<Oracle>, life: u64, before: Content, after: Content) -> Self {
        Self { oracle: Arc::clone(oracle), life, before, doubt: None, after, done: None, micros: 0, part: None }
    }

    fn who(&self, when: &str) -> String {
        format!("a kernel of b{}, {when}", self.life)
    }

    /// Looks at what it finds.
    fn look(&self, words: &[u64], when: &str) {
        let part = self.part.unwrap_or((0, words.len()));
        let is_wrong = self.before.wrong_part(words, part).is_some();
        if !is_wrong || self.doubt.as_ref().is_none_or(|doubt| !doubt.is_true()) {
            self.before.check_part(words, part, &self.oracle, &self.who(when));
        }
    }

    /// Looks and writes.
    pub(crate) fn write(&self, words: &mut [u64]) {
        self.oracle.enter(words, true, self.life);
        self.look(words, "at its start");
        let part = self.part.unwrap_or((0, words.len()));
        if self.part.is_some() {
            // The same is there at the end: whoever comes meanwhile must see something else.
            places_in(words.len(), part).for_each(|at| words[at] = !words[at]);
            pause(self.micros);
        }
        self.after.fill_part(words, part);
        pause(self.micros);
        self.after.check_part(words, part, &self.oracle, &self.who("after it has written"));
        self.oracle.leave(words, true, self.life);
        self.end();
    }

    /// Looks.
    pub(crate) fn read(&self, words: &[u64]) {
        self.oracle.enter(words, false, self.life);
        self.look(words, "at its start");
        pause(self.micros);
        self.look(words, "at its end");
        self.oracle.leave(words, false, self.life);
        self.end();
    }

    /// Says that it has run.
    pub(crate) fn end(&self) {
        if let Some(done) = &self.done {
            done.store(true, Ordering::Release);
        }
    }
}

/// Takes time.
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

/// What a kernel owns, and calls the library for when it is dropped.
#[derive(Debug)]
pub(crate) struct Cargo {
    /// Where it says what it does.
    pub(crate) oracle: Arc<Oracle>,
    /// A buffer, its number and what was done to it.
    pub(crate) buffer: Option<(Buffer<u64>, u64, Vec<Use>)>,
    /// A stream.
    pub(crate) stream: Option<Stream>,
    /// A pool.
    pub(crate) pool: Option<Pool>,
    /// A device.
    pub(crate) device: Option<Device>,
    /// What it does, bit by bit.
    pub(crate) acts: u32,
    /// The device of its kernel.
    pub(crate) at: usize,
    /// How far its kernel is.
    pub(crate) stage: Arc<AtomicU8>,
}

/// A kernel that is not in a queue.
pub(crate) const NEW: u8 = 0;
/// A kernel in a queue: where it is dropped there, the device is lost, and the drop may wait.
pub(crate) const QUEUED: u8 = 1;
/// A kernel that has begun to run.
pub(crate) const RUN: u8 = 2;

impl Cargo {
    /// Nothing as yet.
    pub(crate) fn new(oracle: &Arc<Oracle>, at: usize, acts: u32) -> Self {
        let (buffer, stream, pool, device, stage) = Default::default();
        oracle.owners.fetch_add(1, Ordering::AcqRel);
        Self { oracle: Arc::clone(oracle), buffer, stream, pool, device, acts, at, stage }
    }
}

impl Drop for Cargo {
    fn drop(&mut self) {
        let does = |bit: u32| self.acts >> bit & 1 == 1;
        let waits = self.stage.load(Ordering::Acquire) == QUEUED && self.oracle.lost[self.at].load(Ordering::Acquire);
        // Whatever they answer: nothing may panic or hang.
        if let Some(stream) = &self.stream {
            if does(0) {
                let _ = stream.record().map(|event| event.is_over());
            }
            if let Some(pool) = self.pool.as_ref().filter(|_| does(1)) {
                drop(stream.alloc::<u64>(pool, 100));
            }
            if does(2) {
                let _ = stream.launch((), |()| ());
            }
            if waits && does(3) {
                let _ = stream.synchronize();
            }
        }
        if let Some(pool) = self.pool.as_ref().filter(|_| does(4)) {
            let _ = pool.trim_to(0);
        }
        if let Some(device) = &self.device {
            if does(5) {
                drop(device.stream());
            }
            if waits && does(6) {
                let _ = device.synchronize();
            }
        }
        let release = |cargo: &mut Self| {
            if let Some((buffer, life, uses)) = cargo.buffer.take() {
                cargo.oracle.release(life, buffer.address(), &uses);
                match &cargo.stream {
                    Some(stream) if cargo.acts >> 7 & 1 == 1 => drop(stream.free(buffer)),
                    _ => drop(buffer),
                }
            }
        };
        match self.acts >> 8 & 3 {
            0 => {
                drop(self.stream.take());
                drop(self.pool.take());
                drop(self.device.take());
                release(self);
            }
            1 => {
                release(self);
                drop(self.device.take());
                drop(self.pool.take());
                drop(self.stream.take());
            }
            _ => {
                drop(self.pool.take());
                release(self);
                drop(self.stream.take());
                drop(self.device.take());
            }
        }
        self.oracle.owners.fetch_sub(1, Ordering::AcqRel);
    }
}
