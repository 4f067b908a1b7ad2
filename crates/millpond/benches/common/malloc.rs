//! What an allocator of host memory takes: a `malloc` and its `free`.

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;

/// Allocates and frees; `layout` has a size.
#[inline]
pub(crate) fn malloc_pair(allocator: &impl GlobalAlloc, layout: Layout) {
    if layout.size() == 0 {
        return;
    }
    // SAFETY: the layout has a size.
    let memory = black_box(unsafe { allocator.alloc(layout) });
    if !memory.is_null() {
        // SAFETY: it came from this allocator with this layout, and nothing else has it.
        unsafe { allocator.dealloc(memory, layout) };
    }
}
