//! Operations as data: a kind and three numbers, which whoever runs it reads as it needs.
//!
//! Any list of operations is a program: what an operation has no object for is left out. So a program stays one
//! whatever is taken away from it, which is all that shrinking does.

use crate::random::Random;
use crate::settings::Setting;

macro_rules! kinds {
    ($($kind:ident $weight:literal),* $(,)?) => {
        /// What an operation is.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs)] // Each is what `thread`, `work` and `graphs` make of it.
        pub enum Kind { $($kind),* }

        /// All kinds, with how often they come where a setting says nothing else.
        pub const KINDS: &[(Kind, u32)] = &[$((Kind::$kind, $weight)),*];
    };
}

kinds! {
    Open 6, Share 0, UseShared 0, Close 4, DropDevice 0,
    MakePool 4, DropPool 3, SetPool 2, Trim 2, Look 2,
    Alloc 30, Write 24, Read 16, Copy 5, WritePart 12, ReadPart 8, Free 18, Drop 5, FreeNow 2, FreeAddress 1, Stale 2,
    Give 0, Take 0, Tell 0, Hear 0,
    Record 6, Wait 10, RecordExternal 2, WaitExternal 3,
    SyncEvent 2, IsOver 2, SyncStream 3, IsIdle 1, SyncDevice 2,
    Hold 0, Owning 0, Panic 0, Fail 0, Mend 0, Grant 0,
    Spawn 0, Lend 0, Redeem 0, Work 0, Return 0, Ask 0, Borrow 0, Repay 0, Flood 0, Kill 0, HangUp 0,
    Capture 0, Build 0, Clone 0, Launch 0, Upload 0, Update 0, DropExec 0, TrimGraphs 0,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What it is.
    pub kind: Kind,
    /// Mostly which stream.
    pub a: u32,
    /// Mostly which buffer.
    pub b: u32,
    /// The rest.
    pub c: u32,
}

/// The operations of each thread.
#[derive(Clone, Debug)]
pub struct Program {
    /// What they run in.
    pub setting: &'static Setting,
    /// Which program of the setting it is.
    pub seed: u64,
    /// The lists.
    pub threads: Vec<Vec<Op>>,
}

impl Program {
    /// The program of a seed.
    pub fn random(setting: &'static Setting, seed: u64) -> Self {
        let mut random = Random::new(crate::random::mix(seed ^ 0x5EED));
        let weight = |kind| setting.weight_of(kind) as u64;
        let total: u64 = KINDS.iter().map(|(kind, _)| weight(*kind)).sum();
        let mut op = || {
            let mut at = random.below(total);
            let kind = KINDS.iter().map(|(kind, _)| *kind).find(|kind| match at.checked_sub(weight(*kind)) {
                Some(rest) => {
                    at = rest;
                    false
                }
                None => true,
            });
            let (kind, numbers) = (kind.expect("below the total"), random.number());
            Op { kind, a: numbers as u16 as u32, b: (numbers >> 16) as u16 as u32, c: (numbers >> 32) as u32 }
        };
        let threads = (0..setting.threads).map(|_| (0..setting.ops).map(|_| op()).collect()).collect();
        Self { setting, seed, threads }
    }

    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The program with only those operations whose places, counted through all threads, are in the list.
    pub fn keep(&self, places: &[usize]) -> Self {
        let mut at = 0;
        let kept = |op: &Op| {
            at += 1;
            places.binary_search(&(at - 1)).is_ok().then_some(*op)
        };
        let mut kept = kept;
        let threads = self.threads.iter().map(|ops| ops.iter().filter_map(&mut kept).collect()).collect();
        Self { threads, ..*self }
    }
}
