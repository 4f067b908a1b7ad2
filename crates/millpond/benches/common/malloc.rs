//! The cost of an allocator of host memory: a `malloc` and its `free`.

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;

/// Allocates and frees. The size of `layout` must not be 0.
#[inline]
pub(crate) fn malloc_pair(allocator: &impl GlobalAlloc, layout: Layout) {
    if layout.size() == 0 {
        return;
    }
    // SAFETY: the size of the layout is not 0.
    let memory = black_box(unsafe { allocator.alloc(layout) });
    if !memory.is_null() {
        // SAFETY: it came from this allocator with this layout, and nothing else has it.
        unsafe { allocator.dealloc(memory, layout) };
    }
}
