//! Requests memory ahead of its use, so that all its cache lines arrive together instead of one after the other.
//!
//! A hint: nothing depends on it. On processors without such an instruction it does nothing.

/// The bytes of a cache line.
const LINE: usize = 64;

/// Prefetches all cache lines of `what`.
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
    // SAFETY: a hint; it reads nothing that the program can observe, and any address is allowed.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
