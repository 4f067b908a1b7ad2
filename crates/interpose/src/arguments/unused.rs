//! Pointers that kernels of NVIDIA's libraries get and do not use. Their values mean nothing.
//!
//! An entry needs evidence: the kernel runs as before when the argument holds an address that no device has.

use std::ops::Range;

/// The start of a kernel's name, its number of parameters, and the parameters that it may leave unused, counted from 0.
///
/// * cuSOLVER of CUDA 13.0 on an H200, LU factorization: three pointers point 68 KiB and more past the start of the
///   workspace, which has 7.5 KiB for 400 by 400 doubles. With 0x10 in them the solutions are the same. When they are
///   used they point into the workspace, whose address is another argument.
const UNUSED: &[(&str, usize, Range<usize>)] = &[("_Z11getrf_pivotI", 15, 7..10)];

/// Returns `true` if an argument of a kernel is known to be unused.
pub(super) fn is_unused(kernel: &str, parameters: usize, argument: usize) -> bool {
    let is_named = |(name, count, unused): &(&str, usize, Range<usize>)| {
        kernel.starts_with(name) && parameters == *count && unused.contains(&argument)
    };
    UNUSED.iter().any(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Kernel;

    #[test]
    fn an_argument_that_is_not_used_is_not_looked_at() {
        let bytes = [4, 4, 4, 8, 4, 8, 4, 8, 8, 8, 8, 4, 4, 4, 8];
        let name =
            "_Z11getrf_pivotI13getrf_params_IdLi512ELi1ELi512ELi512ELi1EEEviiiPviPliPNT_9data_typeEPjS7_S6_jjjPi";
        let looked_at = |name| {
            let kernel = Kernel::new(None, name, Some(&bytes));
            kernel.words.unwrap().iter().map(|word| word.argument).collect::<Vec<_>>()
        };
        assert_eq!(looked_at(name), [3, 5, 10, 14]);
        assert_eq!(looked_at("another"), [3, 5, 7, 8, 9, 10, 14]);
        assert!(!is_unused(name, 14, 7));
    }
}
