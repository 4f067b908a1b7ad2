//! One place in a pool's heap that holds one allocation after another.
//!
//! An [`Allocation`] is made when a block leaves the heap and goes when the block returns to it. In between it passes
//! from the program to a stream's shelf and back without any shared lock, one *life* after the other, told apart by a
//! generation. Knows its pool by reference; nothing of streams but their names in sites.
//!
//! Invariant **one-owner**: an allocation is with exactly one of: a live buffer, a shelf, or (freed) nobody. The
//! pool's table refers to it only to answer questions about pointers and views.

use std::sync::{Arc, Weak};

use millpond_core::check::{Act, Fault, History, Kind, Site, Subject, Use, Violation};
use millpond_core::ids::{AllocId, BlockId, StreamId};
use millpond_core::units::{Bytes, Range};
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::pool::PoolShared;
use crate::stream::StreamShared;

/// A lock held for some tens of nanoseconds: one atomic to take it, a plain store to give it back.
pub(crate) type Light<T> = SpinMutex<T, spin::Yield>;
/// Holds a [`Light`] lock.
pub(crate) type LightGuard<'a, T> = SpinMutexGuard<'a, T>;

/// Where an allocation is: its fixed part. Its lives pass through [`life`](Allocation::life).
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) id: AllocId,
    /// Its place in the pool's table.
    pub(crate) index: u32,
    pub(crate) block: BlockId,
    /// Its addresses, rounded up to the pool's grain.
    pub(crate) range: Range,
    pub(crate) pool: Arc<PoolShared>,
    /// The stream that allocated it last: where a drop frees it.
    pub(crate) home: Weak<StreamShared>,
    life: Light<Life>,
}

/// One life of an allocation.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) generation: u32,
    /// Bytes as asked for.
    pub(crate) bytes: u64,
    pub(crate) history: History,
    /// The free, once it has happened.
    pub(crate) freed: Option<Use>,
    pub(crate) name: Option<Arc<str>>,
}

impl Allocation {
    /// A block that just left the heap, with its first life.
    pub(crate) fn new(fixed: Fixed, generation: u32, bytes: u64, born: Use) -> Self {
        let Fixed { id, index, block, range, pool, home } = fixed;
        let life = Life { generation, bytes, history: History::new(born), freed: None, name: None };
        Self { id, index, block, range, pool, home, life: Light::new(life) }
    }

    /// The present life, to look at or to change.
    #[inline]
    pub(crate) fn life(&self) -> LightGuard<'_, Life> {
        self.life.lock()
    }

    /// A new life begins, in a block taken from a shelf; its generation.
    #[inline]
    pub(crate) fn begin(&self, bytes: u64, born: Use) -> u32 {
        let mut life = self.life();
        debug_assert!(life.freed.is_some(), "one-owner: what lies on a shelf is freed");
        life.generation = life.generation.wrapping_add(1);
        life.bytes = bytes;
        life.history.restart(born);
        life.freed = None;
        life.name = None;
        life.generation
    }

    /// What a violation says it is about.
    pub(crate) fn subject(&self, life: &Life) -> Subject {
        Subject { id: self.id, bytes: life.bytes, name: life.name.as_deref().map(str::to_owned) }
    }

    /// The allocation in words: its name, size, and where it was made or freed.
    pub(crate) fn describe(&self, life: &Life) -> String {
        let place = |site: Site| match site.place.to_string() {
            place if place.is_empty() => String::new(),
            place => format!(" at {place}"),
        };
        let name = life.name.as_deref().map_or_else(|| self.id.to_string(), |name| format!("`{name}` ({})", self.id));
        match life.freed {
            Some(free) => format!("{name}, {}, freed on {}{}", Bytes(life.bytes), free.site.stream, place(free.site)),
            None => {
                let born = life.history.born().site;
                format!("{name}, {}, allocated on {}{}", Bytes(life.bytes), born.stream, place(born))
            }
        }
    }
}

/// The fixed part of an allocation, to make one of.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) id: AllocId,
    pub(crate) index: u32,
    pub(crate) block: BlockId,
    pub(crate) range: Range,
    pub(crate) pool: Arc<PoolShared>,
    pub(crate) home: Weak<StreamShared>,
}

/// Puts a fault into words: both sides, and how far `knows` says the later side comes after the earlier one's stream.
#[cold]
pub(crate) fn violation(subject: Subject, fault: Fault, later: Site, known: Option<u64>) -> Violation {
    Violation { kind: fault.kind, subject, earlier: fault.earlier.site, later, known }
}

/// The fault of touching a life that was freed.
#[cold]
pub(crate) fn freed_fault(free: Use, act: Act) -> Fault {
    let kind = if act == Act::Free { Kind::DoubleFree } else { Kind::UseAfterFree };
    Fault { kind, earlier: free }
}

/// The site of an operation.
#[inline]
pub(crate) fn site(act: Act, stream: StreamId, op: u64, caller: &'static std::panic::Location<'static>) -> Site {
    Site { act, stream, op, place: millpond_core::check::Place::Source(caller) }
}
