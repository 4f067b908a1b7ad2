//! Stream-ordered allocations and frees, and `cuMemFree` of their memory.
//!
//! The driver gets what is its own: memory of captures, pools that are not Millpond's, addresses that are not
//! Millpond's. Its answer to a pointer that was freed already, or that is no start of an allocation, is CUDA's answer.

use std::sync::Arc;
use std::time::Instant;

use millpond::{Error, Refused};

use super::captures::{named, takes};
use super::figures::{self, Passed};
use super::live::{self, Live};
use super::pools::ServedPool;
use super::{devices, is_captured, is_ours, pools, put, room, say_left};
use crate::abi::{Code, Pool, Stream};
use crate::ask;
use crate::mode;
use crate::session::At;

/// Makes a call, and notes its time if figures are wanted.
#[inline]
fn timed(note: fn(u64), act: impl FnOnce() -> Code) -> Code {
    if !mode::reports() {
        return act();
    }
    let (start, opening) = (Instant::now(), figures::opening());
    let code = act();
    if code == Code::SUCCESS {
        let taken = start.elapsed().as_nanos() as u64;
        note(taken.saturating_sub(figures::opening() - opening));
    }
    code
}

/// `cuMemAllocAsync`
///
/// # Safety
/// The place is null or valid.
pub(crate) unsafe fn alloc_async(
    at: &At,
    place: *mut u64,
    bytes: usize,
    stream: Stream,
    real: impl Fn() -> Code + Copy,
) -> Code {
    let find = |stream| pools::current_of(devices::of_stream(stream)?);
    // SAFETY: the caller's promise.
    unsafe { alloc(named(at, stream), real, (place, bytes), find) }
}

/// `cuMemAllocFromPoolAsync`
///
/// # Safety
/// The place is null or valid.
pub(crate) unsafe fn alloc_from_pool(
    at: &At,
    place: *mut u64,
    bytes: usize,
    pool: Pool,
    stream: Stream,
    real: impl Fn() -> Code + Copy,
) -> Code {
    // An allocation from one device's pool on another device's stream goes to the driver, because a default stream
    // means another stream there.
    let find = |stream| pools::find(pool).filter(|it| devices::of_stream(stream) == Some(it.ordinal));
    // SAFETY: the caller's promise.
    unsafe { alloc(named(at, stream), real, (place, bytes), find) }
}

/// # Safety
/// The place is null or valid.
unsafe fn alloc(
    stream: Stream,
    real: impl Fn() -> Code + Copy,
    (place, bytes): (*mut u64, usize),
    find: impl FnOnce(Stream) -> Option<Arc<ServedPool>>,
) -> Code {
    timed(figures::allocated, || {
        if !is_ours() {
            return room::made_for(real);
        }
        if place.is_null() || bytes == 0 {
            return real();
        }
        if takes(stream) {
            return pass(Passed::Captured, real);
        }
        let Some(pool) = find(stream) else { return pass(Passed::Pool, real) };
        match serve(&pool, bytes, stream) {
            Ok(address) => {
                // SAFETY: the caller's place.
                unsafe { put(place, address) };
                Code::SUCCESS
            }
            Err(Error::OutOfMemory(_)) => Code::OUT_OF_MEMORY,
            // For an unknown stream, and for a lost device, the driver answers.
            Err(error) => {
                if !is_captured(&error) && !matches!(error, Error::DeviceLost { .. }) {
                    say_left("an allocation", &error);
                }
                pass(Passed::Other, real)
            }
        }
    })
}

/// Lets the driver make an allocation, with the memory that it has.
#[cold]
fn pass(reason: Passed, real: impl Fn() -> Code + Copy) -> Code {
    let code = room::made_for(real);
    if code == Code::SUCCESS {
        figures::passed(reason);
    }
    code
}

#[inline]
fn serve(pool: &Arc<ServedPool>, bytes: usize, stream: Stream) -> Result<u64, Error> {
    let served = pool.served;
    let alloc = || served.trusted.alloc_from(&pool.pool, bytes, stream.0 as u64);
    let buffer = alloc().or_else(|error| match error {
        Error::OutOfMemory(_) => room::retry(served, alloc),
        other => Err(other),
    })?;
    Ok(live::insert(buffer, Arc::clone(pool)))
}

/// `cuMemFreeAsync`
pub(crate) fn free_async(at: &At, start: u64, stream: Stream, real: impl Fn() -> Code + Copy) -> Code {
    let stream = named(at, stream);
    timed(figures::freed, || {
        if !is_ours() || takes(stream) {
            return real();
        }
        let Some(live) = live::remove(start) else { return real() };
        let mut live = Some(live);
        free_on(&mut live, stream, real)
    })
}

/// Frees the allocation in `live`, which is empty afterwards.
fn free_on(live: &mut Option<Live>, stream: Stream, real: impl Fn() -> Code + Copy) -> Code {
    let Some(Live { buffer, pool, number }) = live.take() else { return Code::UNKNOWN };
    let home = pool.served;
    let freed = match devices::of_stream(stream) {
        Some(ordinal) if ordinal == home.ordinal => home.trusted.free_at(buffer, stream.0 as u64),
        Some(ordinal) => match devices::device(ordinal).map(|other| other.trusted.stream(stream.0 as u64)) {
            Some(Ok(user)) => free_apart(&pool, buffer, &[user]),
            _ => return refuse(Live { buffer, pool, number }, real),
        },
        // The stream's work is waited for here: an event recorded for it would be of another context.
        None if devices::is_of_another_context(stream) && ask::wait_for(stream) => free_apart(&pool, buffer, &[]),
        None => return refuse(Live { buffer, pool, number }, real),
    };
    match freed {
        Ok(()) => Code::SUCCESS,
        Err(Refused { buffer, .. }) => refuse(Live { buffer, pool, number }, real),
    }
}

/// Frees a buffer on this library's own stream: after all work of the stream that allocated it, and of `users`.
fn free_apart(pool: &ServedPool, buffer: millpond::Buffer<u8>, users: &[millpond::Stream]) -> Result<(), Refused<u8>> {
    match pool.served.apart() {
        Ok(apart) => pool.served.trusted.free_after(buffer, apart, users),
        Err(error) => Err(Refused { error, buffer }),
    }
}

/// Keeps an allocation whose free is refused. The driver, which has no allocation at the address, gives the error: an
/// unknown stream, a lost device, or a wrong address.
#[cold]
fn refuse(live: Live, real: impl Fn() -> Code + Copy) -> Code {
    live::put_back(live);
    match real() {
        Code::SUCCESS => Code::INVALID_VALUE,
        code => code,
    }
}

/// `cuMemFree`: for memory of pools it waits for nothing. The program guarantees that all uses have completed.
pub(crate) fn free(start: u64, real: impl Fn() -> Code + Copy) -> Code {
    let live = if is_ours() { live::remove(start) } else { None };
    let Some(Live { buffer, pool, number }) = live else { return real() };
    timed(figures::freed, || match free_apart(&pool, buffer, &[]) {
        Ok(()) => Code::SUCCESS,
        Err(Refused { buffer, .. }) => refuse(Live { buffer, pool, number }, real),
    })
}
