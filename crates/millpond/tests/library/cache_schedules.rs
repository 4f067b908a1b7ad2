//! The protocol of the caches under explored schedules: streams use their own caches, a stream that lacks memory drains
//! all others whose lock is free, and a block is in exactly one place at any time.
//!
//! The cache is the real one. The locks are the explorer's, used as the library uses its own: a stream's lock is held
//! while its cache is used, the heap's is taken after it, another stream's is only tried.

use std::collections::HashSet;

use millpond_core::pool::StreamCache;
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

use crate::common::process::alone;

const SCHEDULES: usize = 2_000;
const STREAMS: usize = 3;
const BLOCKS: u32 = 5;
const SIZE: u64 = 512;

struct Machine {
    caches: Vec<Mutex<StreamCache<u32>>>,
    heap: Mutex<Vec<u32>>,
    /// The blocks that the program holds.
    live: Mutex<HashSet<u32>>,
}

impl Machine {
    fn alloc(&self, stream: usize) -> Option<u32> {
        let mut cache = self.caches[stream].lock().unwrap();
        let block = cache.take(SIZE).or_else(|| self.heap.lock().unwrap().pop()).or_else(|| {
            let mut drained: Vec<u32> = cache.drain().collect();
            for (other, cache) in self.caches.iter().enumerate() {
                if other != stream
                    && let Ok(mut cache) = cache.try_lock()
                {
                    drained.extend(cache.drain());
                }
            }
            let mut heap = self.heap.lock().unwrap();
            heap.extend(drained);
            heap.pop()
        })?;
        assert!(self.live.lock().unwrap().insert(block), "block {block} was handed out twice");
        Some(block)
    }

    fn free(&self, stream: usize, block: u32) {
        let mut cache = self.caches[stream].lock().unwrap();
        assert!(self.live.lock().unwrap().remove(&block), "block {block} was not live");
        if let Err(fallen) = cache.put(SIZE, block) {
            self.heap.lock().unwrap().push(fallen);
        }
    }
}

fn program() {
    let machine = Arc::new(Machine {
        caches: (0..STREAMS).map(|_| Mutex::new(StreamCache::new())).collect(),
        heap: Mutex::new((0..BLOCKS).collect()),
        live: Mutex::default(),
    });
    let run = |stream: usize| {
        let machine = Arc::clone(&machine);
        thread::spawn(move || {
            let held: Vec<u32> = (0..2).filter_map(|_| machine.alloc(stream)).collect();
            held.into_iter().for_each(|block| machine.free(stream, block));
            if let Some(block) = machine.alloc(stream) {
                machine.free((stream + 1) % STREAMS, block);
            }
        })
    };
    let threads: Vec<_> = (0..STREAMS).map(run).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let on_caches = machine.caches.iter().map(|cache| cache.lock().unwrap().len()).sum::<usize>();
    let in_heap = machine.heap.lock().unwrap().len();
    assert_eq!(on_caches + in_heap, BLOCKS as usize, "a block was lost");
}

#[test]
fn no_block_is_lost_or_handed_out_twice_in_any_schedule() {
    // The explorer's hook for panics would print messages for other tests.
    alone(|| {
        shuttle::check_random(program, SCHEDULES);
        shuttle::check_pct(program, SCHEDULES, 3);
    });
}
