//! Millpond's allocation at an address that the program was given.
//!
//! A map by first address, in parts with a lock each. An allocation leaves the map when it is freed, before the driver
//! can give the address to another thread. If a pointer is freed twice, only one of the frees finds it.

use millpond_driver::locks::{Guard, Leaf, Mutex, lock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond::Buffer;

use super::Table;
use super::pools::ServedPool;

const PARTS: usize = 64;

/// An allocation.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) buffer: Buffer<u8>,
    pub(super) pool: Arc<ServedPool>,
    /// Unique among the process's allocations, the driver's included.
    pub(super) number: u64,
}

/// A live allocation, as it was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) pool: Arc<ServedPool>,
    pub(super) number: u64,
}

#[repr(align(64))]
struct Part(Mutex<Leaf, Table<u64, Live>>);

static LIVE: [Part; PARTS] = [const { Part(Mutex::new(None)) }; PARTS];

fn part(address: u64) -> Guard<'static, Table<u64, Live>> {
    let part = ((address >> 9).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize % PARTS;
    lock(&LIVE[part].0)
}

/// Adds a new allocation, and returns its address.
pub(super) fn insert(buffer: Buffer<u8>, pool: Arc<ServedPool>) -> u64 {
    // The driver counts its own from 1.
    static NEXT: AtomicU64 = AtomicU64::new(1 << 62);
    let (address, number) = (buffer.address(), NEXT.fetch_add(1, Ordering::Relaxed));
    put_back(Live { buffer, pool, number });
    address
}

/// Puts an allocation back whose free was refused.
pub(super) fn put_back(live: Live) {
    let address = live.buffer.address();
    part(address).get_or_insert_default().insert(address, live);
}

/// Removes an allocation that is about to be freed.
pub(super) fn remove(address: u64) -> Option<Live> {
    part(address).as_mut()?.remove(&address)
}

/// Returns the allocation that begins at an address.
pub(super) fn starting_at(address: u64) -> Option<Found> {
    let part = part(address);
    let Live { buffer, pool, number } = part.as_ref()?.get(&address)?;
    Some(Found { start: address, bytes: buffer.bytes(), pool: Arc::clone(pool), number: *number })
}

/// Forgets all allocations of a device that is gone. They are not freed any more.
pub(super) fn lose(ordinal: i32) {
    for part in &LIVE {
        let mut part = lock(&part.0);
        let Some(all) = part.as_mut() else { continue };
        let gone: Vec<u64> = all.iter().filter(|(_, it)| it.pool.ordinal == ordinal).map(|(at, _)| *at).collect();
        gone.into_iter().filter_map(|address| all.remove(&address)).for_each(std::mem::forget);
    }
}
