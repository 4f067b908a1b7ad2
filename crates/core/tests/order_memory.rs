//! Memory of the order stays flat however long a program runs: ten million operations, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond_core::ids::StreamId;
use millpond_core::order::{Order, StreamKind};

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: both calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract is the system's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn ten_million_operations_keep_memory_flat() {
    const OPERATIONS: u64 = if cfg!(miri) { 20_000 } else { 10_000_000 };
    let mut order = Order::new();
    let mut streams: Vec<StreamId> = (0..16).map(|_| order.create_stream(0, StreamKind::Blocking)).collect();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut after_warm_up = 0;
    for i in 0..OPERATIONS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let at = (random >> 8) as usize % streams.len();
        match random % 64 {
            0..40 => drop(order.submit(0, streams[at]).unwrap()),
            40..52 => order.record(0, streams[at], (random >> 16) as u32 % 64).unwrap(),
            52..62 => order.wait(0, streams[at], (random >> 16) as u32 % 64).unwrap(),
            62 if random.is_multiple_of(16) => {
                // Streams come and go; a program that makes them without end synchronises now and then.
                order.destroy_stream(streams[at]).unwrap();
                streams[at] = order.create_stream(0, StreamKind::NonBlocking);
            }
            62 => drop(order.submit(0, Order::LEGACY).unwrap()),
            _ if random % 32 == 31 => order.synchronize_device(0),
            _ => order.synchronize_event(0, (random >> 16) as u32 % 64),
        }
        if i == OPERATIONS / 10 {
            after_warm_up = LIVE_BYTES.load(Ordering::Relaxed);
        }
    }
    let at_the_end = LIVE_BYTES.load(Ordering::Relaxed);
    assert!(
        at_the_end <= after_warm_up + 64 * 1024,
        "{after_warm_up} B after a tenth of the program, {at_the_end} B at its end"
    );
    assert!(order.chains() < 64, "{} chains for 18 streams alive at once", order.chains());
}
