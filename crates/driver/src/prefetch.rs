//! Asks for memory ahead of its use, so that what is far away comes at once instead of line after line.
//!
//! A hint: nothing depends on it, and where there is no such instruction it is nothing.

/// Bytes that come at once.
const LINE: usize = 64;

/// All lines of `what` are wanted soon.
#[inline(always)]
pub fn prefetch<T>(what: &T) {
    let start = std::ptr::from_ref(what).cast::<i8>();
    for offset in (0..size_of::<T>()).step_by(LINE) {
        prefetch_line(start.wrapping_add(offset));
    }
}

#[inline(always)]
fn prefetch_line(at: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it reads nothing that the program sees, and any address is right.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
