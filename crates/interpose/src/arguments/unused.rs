//! Pointers that kernels of NVIDIA's libraries are given and do not use: what is in them says nothing.
//!
//! A row needs evidence: the kernel runs as before with an address in that argument that no device has.

/// The beginning of a kernel's name, how many parameters it has, and which of them it does not use, counted from 0.
///
/// * cuSOLVER of CUDA 13.0 on an H200, LU factorization of 400 by 400 doubles: the argument mostly lies in the workspace of
///   the call, now and then in one that was freed. With 0x10 in it the solutions are the same.
const UNUSED: &[(&str, usize, usize)] = &[("_Z11getrf_pivotI", 15, 7)];

/// Whether an argument of a kernel is known not to be used.
pub(super) fn is_unused(kernel: &str, parameters: usize, argument: usize) -> bool {
    UNUSED.iter().any(|&(name, count, at)| kernel.starts_with(name) && (parameters, argument) == (count, at))
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
        assert_eq!(looked_at(name), [3, 5, 8, 9, 10, 14]);
        assert_eq!(looked_at("another"), [3, 5, 7, 8, 9, 10, 14]);
        assert!(!is_unused(name, 14, 7));
    }
}
