//! The slices of the kernels that are running. Builds with debug assertions use them to assert **exclusive-write**: no
//! kernel runs with a slice of bytes that another one may write meanwhile.
//!
//! Depends on addresses, not on allocations or the order. In other builds it does nothing.

use crate::state::access::Access;

/// Records that a kernel runs with its slices, while this lives.
pub(crate) struct Running(#[cfg(debug_assertions)] u64);

#[cfg(not(debug_assertions))]
impl Running {
    #[inline(always)]
    pub(crate) fn of<A: Access>(_: &A::Place) -> Self {
        Self()
    }
}

#[cfg(debug_assertions)]
mod asserted {
    use millpond_driver::locks::{Leaf, Mutex, lock};

    use super::{Access, Running};

    #[derive(Clone, Copy, Debug)]
    struct Slice {
        kernel: u64,
        start: u64,
        end: u64,
        is_written: bool,
    }

    /// The slices of all running kernels, and the number of the kernel that began last.
    static SLICES: Mutex<Leaf, (Vec<Slice>, u64)> = Mutex::new((Vec::new(), 0));

    impl Running {
        /// # Panics
        /// Panics if a running kernel may write the same bytes, or if this one may write them and a running kernel
        /// reads them.
        pub(crate) fn of<A: Access>(place: &A::Place) -> Self {
            let mut all = lock(&SLICES);
            let (slices, kernel) = &mut *all;
            *kernel += 1;
            let (mut own, mut beside) = (Vec::new(), None);
            A::ranges(place, &mut |start, bytes, is_written| {
                let slice = Slice { kernel: *kernel, start, end: start + bytes, is_written };
                let conflicts = |it: &&Slice| it.start < slice.end && start < it.end && (it.is_written || is_written);
                if bytes > 0 {
                    beside = beside.or(slices.iter().chain(&own).find(conflicts).copied());
                    own.push(slice);
                }
            });
            slices.extend(own);
            let running = Self(*kernel);
            // The panic comes after the lock is released.
            drop(all);
            assert!(beside.is_none(), "exclusive-write: a kernel runs beside {beside:?}");
            running
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            lock(&SLICES).0.retain(|slice| slice.kernel != self.0);
        }
    }

    #[cfg(test)]
    mod tests {
        use std::panic::catch_unwind;

        use super::Running;
        use crate::names::count::{Count, Span};
        use crate::state::access::{Access, Read, Source, Write};

        fn all(len: usize) -> Span<u32> {
            Span::all(Count::new(len).expect("few"))
        }

        // No device has memory at these addresses.

        fn read(at: u64, len: usize) -> Running {
            Running::of::<Read<'_, u32>>(&Read::new(Source::Empty, all(len)).place(&mut || at))
        }

        fn write(at: u64, len: usize) -> Running {
            Running::of::<Write<'_, u32>>(&Write::new(Source::Empty, all(len)).place(&mut || at))
        }

        #[test]
        fn kernels_that_run_at_once_share_no_bytes_that_one_writes() {
            let is_fine = |run: fn(u64, usize) -> Running, at, len| catch_unwind(|| drop(run(at, len))).is_ok();
            let reader = read(4096, 4);
            assert!(is_fine(read, 4096, 4) && is_fine(write, 4112, 4) && is_fine(write, 4080, 4));
            assert!(!is_fine(write, 4108, 1) && !is_fine(write, 0, 2048));
            drop(reader);
            let (_writer, _empty) = (write(4096, 1), write(4104, 0));
            assert!(is_fine(write, 4100, 2) && !is_fine(read, 4096, 1));
        }
    }
}
