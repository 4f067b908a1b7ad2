//! The definition of a right plan.
//!
//! It is written from the definition and independent of all code that makes plans: it must not use the bound, the
//! parts, the cliques or the search. Two buffers that conflict must not have a byte in common. Each buffer must end
//! within the capacity and begin at a multiple of its alignment. All arithmetic is checked.

use super::{Plan, Problem};

/// An error in a plan. Buffers are named by their index in the problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// The plan does not have one offset for each buffer.
    #[error("{offsets} offsets for {buffers} buffers")]
    Count {
        /// The number of buffers of the problem.
        buffers: usize,
        /// The number of offsets of the plan.
        offsets: usize,
    },
    /// A buffer does not begin at a multiple of its alignment.
    #[error("buffer {buffer} at {offset} is not aligned")]
    Misaligned {
        /// The buffer.
        buffer: usize,
        /// Its offset.
        offset: u64,
    },
    /// A buffer ends above the plan's capacity.
    #[error("buffer {buffer} at {offset} ends above the capacity")]
    Beyond {
        /// The buffer.
        buffer: usize,
        /// Its offset.
        offset: u64,
    },
    /// Two buffers conflict and have a byte in common.
    #[error("buffers {lower} and {upper} conflict, and both have byte {byte}")]
    Overlap {
        /// The lower of the two.
        lower: usize,
        /// The one that begins before the lower ends.
        upper: usize,
        /// A byte that both have.
        byte: u64,
    },
}

/// Checks that `plan` solves `problem`.
///
/// # Errors
/// The first [`Fault`] found, with both buffers if two are involved.
pub fn verify(problem: &Problem, plan: &Plan) -> Result<(), Fault> {
    let buffers = problem.buffers();
    if buffers.len() != plan.offsets.len() {
        return Err(Fault::Count { buffers: buffers.len(), offsets: plan.offsets.len() });
    }
    for (buffer, (need, &offset)) in buffers.iter().zip(&plan.offsets).enumerate() {
        if offset % need.alignment != 0 {
            return Err(Fault::Misaligned { buffer, offset });
        }
        if offset.checked_add(need.bytes).is_none_or(|end| end > plan.capacity) {
            return Err(Fault::Beyond { buffer, offset });
        }
    }
    // In ascending order of offsets, a buffer can only overlap those that begin before it ends.
    let mut rising: Vec<usize> = (0..buffers.len()).collect();
    rising.sort_by_key(|&i| plan.offsets[i]);
    for (at, &lower) in rising.iter().enumerate() {
        let end = plan.offsets[lower] + buffers[lower].bytes;
        for &upper in rising[at + 1..].iter().take_while(|&&upper| plan.offsets[upper] < end) {
            if problem.conflict(lower, upper) {
                return Err(Fault::Overlap { lower, upper, byte: plan.offsets[upper] });
            }
        }
    }
    Ok(())
}
