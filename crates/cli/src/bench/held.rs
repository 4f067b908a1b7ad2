//! A block of host memory that stays allocated while others are timed.

use std::alloc::{GlobalAlloc, Layout};

/// A block that stays allocated for as long as this lives: an allocator then has no reason to give back the page that
/// the next blocks of this size come from, as a pool that keeps its memory has none.
pub(crate) struct Held<'a, A: GlobalAlloc> {
    allocator: &'a A,
    layout: Layout,
    memory: *mut u8,
}

impl<'a, A: GlobalAlloc> Held<'a, A> {
    /// Allocates; `layout` has a size.
    pub(crate) fn new(allocator: &'a A, layout: Layout) -> Self {
        let memory = match layout.size() {
            0 => std::ptr::null_mut(),
            // SAFETY: the layout has a size.
            _ => unsafe { allocator.alloc(layout) },
        };
        Self { allocator, layout, memory }
    }
}

impl<A: GlobalAlloc> Drop for Held<'_, A> {
    fn drop(&mut self) {
        if !self.memory.is_null() {
            // SAFETY: it came from this allocator with this layout, and nothing else has it.
            unsafe { self.allocator.dealloc(self.memory, self.layout) };
        }
    }
}
