//! Pinned memory that was dropped: laid aside until the copies that may use it have completed.
//!
//! Knows points and addresses. Who asks the device, and gives memory back, is `pool/shell.rs`.

use millpond_core::ids::Point;
use millpond_core::order::Completed;
use smallvec::SmallVec;

/// Memory of a buffer that was dropped.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The copies that it is free after.
    pub(crate) after: SmallVec<[Point; 2]>,
}

impl Retired {
    /// Whether no copy uses it any more. INVARIANT: pinned-after-copies.
    pub(crate) fn is_free(&self, completed: &impl Completed) -> bool {
        self.after.iter().all(|point| completed.is_over(*point))
    }
}

/// Takes the smallest piece out that has `bytes`, and not more than twice as many, and is free.
pub(crate) fn take(retired: &mut Vec<Retired>, bytes: u64, completed: &impl Completed) -> Option<Retired> {
    let fits = |it: &Retired| it.bytes >= bytes && it.bytes / 2 <= bytes;
    let mut fitting: Vec<usize> = (0..retired.len()).filter(|&at| fits(&retired[at])).collect();
    fitting.sort_by_key(|&at| retired[at].bytes);
    let found = fitting.into_iter().find(|&at| retired[at].is_free(completed))?;
    Some(retired.swap_remove(found))
}

#[cfg(test)]
mod tests {
    use millpond_core::ids::{Point, Slot};
    use millpond_core::order::Completed;

    use super::{Retired, take};

    struct UpTo(u64);

    impl Completed for UpTo {
        fn is_over(&self, point: Point) -> bool {
            point.seq <= self.0
        }
    }

    fn piece(bytes: u64, after: &[u64]) -> Retired {
        let after = after.iter().map(|&seq| Point { slot: Slot(1), seq }).collect();
        Retired { at: bytes << 20, bytes, after }
    }

    #[test]
    fn the_smallest_free_piece_of_about_that_size_is_taken() {
        let mut retired = vec![piece(9000, &[]), piece(4096, &[3]), piece(8192, &[1, 2]), piece(100, &[])];
        let mut bytes = |wanted, seen| take(&mut retired, wanted, &UpTo(seen)).map(|it| it.bytes);
        assert_eq!(bytes(4000, 0), None, "one is in use, and the others are too large or too small");
        assert_eq!(bytes(4096, 1), None, "of two copies one runs");
        assert_eq!(bytes(4096, 2), Some(8192));
        assert_eq!(bytes(4000, 3), Some(4096));
        assert_eq!(bytes(4500, 3), Some(9000));
        assert_eq!(bytes(4500, 3), None);
        assert_eq!(bytes(1, 3), None, "a byte does not get a hundred");
        assert_eq!(bytes(50, 3), Some(100));
    }
}
