//! The encoding of each kind of field.
//!
//! Depends on no operation. A number that moves in small steps is written as a difference from the last one, and a
//! text is written when it is first used: see `state`.

use smallvec::SmallVec;

use super::bytes::{fold, put_number, short, unfold};
use super::frame::Reason;
use super::state::{In, Last, Out, REMEMBERED, put_name, take_name};
use crate::ids::{AllocId, DeviceId, EventId, ExecId, GraphId, HostId, NodeId, PoolId, ProcessId, StreamId, TicketId};
use crate::op::{Access, Act, CaptureMode, EventKind, Memory, Name, NodeOp, Part, Reach, Space, StreamRole, Trust};

/// The most entries of a list. Longer lists are cut, so that their accesses, of at most 10 bytes each, fit in a
/// frame.
const LIST_MAX: usize = 1 << 24;

/// The most accesses that are written by the fast path.
const AT_ONCE: usize = 64;

/// A kind of field.
pub(super) trait Field: Sized {
    fn put(&self, out: &mut Out<'_>);
    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason>;

    /// Writes the first entries that the fast path can write. Returns the number of them.
    #[inline]
    fn put_quickly(_all: &[Self], _out: &mut Out<'_>) -> usize {
        0
    }
}

/// Returns the number that differs from `last` by an encoded difference, or an error if it exceeds 32 bits.
fn moved(last: u32, folded: u64) -> Result<u32, Reason> {
    let sum = i64::from(last).checked_add(unfold(folded)).ok_or(Reason::Field)?;
    u32::try_from(sum).map_err(|_| Reason::Field)
}

#[inline]
fn step(last: u32, now: u32) -> u64 {
    fold(i64::from(now) - i64::from(last))
}

macro_rules! plain {
    ($($id:ident),*) => {$(
        impl Field for $id {
            #[inline]
            fn put(&self, out: &mut Out<'_>) {
                put_number(out.bytes, u64::from(self.0));
            }

            #[inline]
            fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
                from.small().map($id)
            }
        }
    )*};
}

plain!(DeviceId, ExecId, GraphId, HostId, NodeId, PoolId, ProcessId, StreamId, TicketId);

/// The encoding of values that one number distinguishes.
macro_rules! choice {
    ($($kind:ident { $($number:literal $value:ident),* })*) => {$(
        impl Field for $kind {
            #[inline]
            fn put(&self, out: &mut Out<'_>) {
                out.bytes.push(match self { $($kind::$value => $number),* });
            }

            #[inline]
            fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
                match from.number()? {
                    $($number => Ok($kind::$value),)*
                    _ => Err(Reason::Field),
                }
            }
        }
    )*};
}

choice! {
    StreamRole { 0 Blocking, 1 NonBlocking, 2 PerThread, 3 Legacy }
    EventKind { 0 Completion, 1 Progress, 2 Asked }
    CaptureMode { 0 Global, 1 ThreadLocal, 2 Relaxed }
    Reach { 0 None, 1 Read, 2 ReadWrite }
    Trust { 0 None, 1 Races, 2 Order }
}

/// A field without meaning, kept for the format: written as 0, read as 0 or 1 (it was how a launch started: in order
/// or early).
pub(super) struct Gone;

impl Field for Gone {
    #[inline]
    fn put(&self, out: &mut Out<'_>) {
        out.bytes.push(0);
    }

    #[inline]
    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
        match from.number()? {
            0 | 1 => Ok(Gone),
            _ => Err(Reason::Field),
        }
    }
}
/// The number of managed memory: the one after the last device's.
const MANAGED: u64 = u32::MAX as u64 + 2;

/// The host is 1 and the first device 0, because programs with a single device once needed no device numbers.
impl Field for Space {
    fn put(&self, out: &mut Out<'_>) {
        put_number(
            out.bytes,
            match self {
                Space::Device(DeviceId(0)) => 0,
                Space::Host => 1,
                Space::Managed => MANAGED,
                Space::Device(DeviceId(number)) => u64::from(*number) + 1,
            },
        );
    }

    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
        match from.number()? {
            1 => Ok(Space::Host),
            MANAGED => Ok(Space::Managed),
            number => match u32::try_from(number.saturating_sub(1)) {
                Ok(number) => Ok(Space::Device(DeviceId(number))),
                Err(_) => Err(Reason::Field),
            },
        }
    }
}

impl Field for bool {
    #[inline]
    fn put(&self, out: &mut Out<'_>) {
        out.bytes.push(u8::from(*self));
    }

    #[inline]
    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
        match from.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Reason::Field),
        }
    }
}

impl Field for u64 {
    #[inline]
    fn put(&self, out: &mut Out<'_>) {
        put_number(out.bytes, *self);
    }

    #[inline]
    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
        from.number()
    }
}

impl Field for EventId {
    #[inline]
    fn put(&self, out: &mut Out<'_>) {
        put_number(out.bytes, step(out.last.event, self.0));
        out.last.event = self.0;
    }

    #[inline]
    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
        from.last.event = moved(from.last.event, from.bytes.number().ok_or(Reason::Short)?)?;
        Ok(EventId(from.last.event))
    }
}

/// Writes the number as the difference from the last one, with two bits below it, and the generation as the
/// difference from the last one of that number.
#[inline]
fn put_memory(out: &mut Out<'_>, memory: Memory, bits: u64) {
    let Memory { id, generation } = memory;
    put_number(out.bytes, step(out.last.memory, id.0) << 2 | bits);
    out.last.memory = id.0;
    let last = &mut out.last.generations[id.index() % REMEMBERED];
    // Generations are compared as they are, wrapping, so no difference is too large.
    put_number(out.bytes, fold(generation.wrapping_sub(*last).cast_signed()));
    *last = generation;
}

#[inline]
fn take_memory(from: &mut In<'_, '_>) -> Result<(Memory, u64), Reason> {
    let number = from.number()?;
    from.last.memory = moved(from.last.memory, number >> 2)?;
    let id = AllocId(from.last.memory);
    let folded = from.number()?;
    let last = &mut from.last.generations[id.index() % REMEMBERED];
    *last = last.wrapping_add_signed(unfold(folded));
    Ok((Memory { id, generation: *last }, number & 3))
}

impl Field for Memory {
    #[inline]
    fn put(&self, out: &mut Out<'_>) {
        put_memory(out, *self, 0);
    }

    #[inline]
    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
        match take_memory(from)? {
            (memory, 0) => Ok(memory),
            _ => Err(Reason::Field),
        }
    }
}

/// The two bits below its memory: `1` for a write, and `2` for an access to a part, whose bounds follow.
impl Field for Access {
    /// Writes up to [`AT_ONCE`] accesses to all bytes whose numbers are near each other and whose generation is the
    /// last one, as is nearly always so. Each is written as one whole word, whose unused rest the next one
    /// overwrites, so that nothing branches on the length.
    #[inline]
    fn put_quickly(all: &[Self], out: &mut Out<'_>) -> usize {
        let some = &all[..all.len().min(AT_ONCE)];
        let start = out.bytes.len();
        out.bytes.resize(start + 8 * some.len(), 0);
        let (room, mut at) = (&mut out.bytes[start..], 0);
        let Last { memory: last, generations, .. } = &mut *out.last;
        let mut done = 0;
        for Access { memory, act, part } in some {
            let moved = step(*last, memory.id.0) << 2 | u64::from(*act != Act::Read);
            let before = generations[memory.id.index() % REMEMBERED];
            if moved >> 28 != 0 || memory.generation != before || !part.is_whole() {
                break;
            }
            let (word, count) = short(moved as u32);
            room[at..at + 8].copy_from_slice(&word);
            // The difference of the generation is the 0 after it.
            at += count + 1;
            *last = memory.id.0;
            done += 1;
        }
        out.bytes.truncate(start + at);
        done
    }

    #[inline]
    fn put(&self, out: &mut Out<'_>) {
        let is_part = !self.part.is_whole();
        put_memory(out, self.memory, u64::from(is_part) << 1 | u64::from(self.act != Act::Read));
        if is_part {
            put_number(out.bytes, self.part.from());
            put_number(out.bytes, self.part.to());
        }
    }

    #[inline]
    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
        let (memory, bits) = take_memory(from)?;
        let act = if bits & 1 == 1 { Act::Write } else { Act::Read };
        if bits & 2 == 0 {
            return Ok(Access::whole(memory, act));
        }
        let part = Part::new(from.number()?, from.number()?).ok_or(Reason::Field)?;
        Ok(Access { memory, act, part })
    }
}

impl<T: Field> Field for SmallVec<[T; 2]> {
    #[inline]
    fn put(&self, out: &mut Out<'_>) {
        put_number(out.bytes, self.len().min(LIST_MAX) as u64);
        let all = &self[..self.len().min(LIST_MAX)];
        let done = T::put_quickly(all, out);
        all[done..].iter().for_each(|one| one.put(out));
    }

    #[inline]
    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
        let count = from.number()?;
        // Each entry has at least one byte. So no memory is reserved for entries that cannot be there.
        if count > from.bytes.left() as u64 {
            return Err(Reason::Short);
        }
        (0..count).map(|_| T::take(from)).collect()
    }
}

/// `None` is 0, the first device is 1.
impl Field for Option<DeviceId> {
    fn put(&self, out: &mut Out<'_>) {
        put_number(out.bytes, self.map_or(0, |device| u64::from(device.0) + 1));
    }

    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
        match from.number()?.checked_sub(1) {
            None => Ok(None),
            Some(number) => u32::try_from(number).map(|number| Some(DeviceId(number))).map_err(|_| Reason::Field),
        }
    }
}

impl Field for Option<Name> {
    #[inline]
    fn put(&self, out: &mut Out<'_>) {
        match self {
            None => out.bytes.push(0),
            Some(name) => put_name(out, *name, 1),
        }
    }

    #[inline]
    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
        match from.number()? {
            0 => Ok(None),
            number => take_name(from, number - 1).map(Some),
        }
    }
}

impl Field for Name {
    fn put(&self, out: &mut Out<'_>) {
        put_name(out, *self, 0);
    }

    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
        let number = from.number()?;
        take_name(from, number)
    }
}

impl Field for Box<NodeOp> {
    fn put(&self, out: &mut Out<'_>) {
        let code = |out: &mut Out<'_>, code| out.bytes.push(code);
        match &**self {
            NodeOp::Kernel(accesses) => (code(out, 0), accesses.put(out)).1,
            NodeOp::Copy(accesses) => (code(out, 1), accesses.put(out)).1,
            NodeOp::Fill(accesses) => (code(out, 2), accesses.put(out)).1,
            NodeOp::HostFunction(accesses) => (code(out, 3), accesses.put(out)).1,
            NodeOp::Empty => code(out, 4),
            NodeOp::EventRecord(event) => (code(out, 5), event.put(out)).1,
            NodeOp::EventWait(event) => (code(out, 6), event.put(out)).1,
            NodeOp::Alloc { memory, bytes } => (code(out, 7), memory.put(out), bytes.put(out)).2,
            NodeOp::Free(memory) => (code(out, 8), memory.put(out)).1,
            NodeOp::Child(graph) => (code(out, 9), graph.put(out)).1,
        }
    }

    fn take(from: &mut In<'_, '_>) -> Result<Self, Reason> {
        Ok(Box::new(match from.number()? {
            0 => NodeOp::Kernel(Field::take(from)?),
            1 => NodeOp::Copy(Field::take(from)?),
            2 => NodeOp::Fill(Field::take(from)?),
            3 => NodeOp::HostFunction(Field::take(from)?),
            4 => NodeOp::Empty,
            5 => NodeOp::EventRecord(Field::take(from)?),
            6 => NodeOp::EventWait(Field::take(from)?),
            7 => NodeOp::Alloc { memory: Field::take(from)?, bytes: Field::take(from)? },
            8 => NodeOp::Free(Field::take(from)?),
            9 => NodeOp::Child(Field::take(from)?),
            _ => return Err(Reason::Field),
        }))
    }
}
