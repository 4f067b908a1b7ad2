//! The last few of something. Knows nothing of what it holds.

/// The last few of something, the oldest overwritten.
#[derive(Debug)]
pub(super) struct Ring<T, const N: usize> {
    items: Vec<T>,
    next: usize,
}

impl<T, const N: usize> Default for Ring<T, N> {
    fn default() -> Self {
        Ring { items: Vec::new(), next: 0 }
    }
}

impl<T, const N: usize> Ring<T, N> {
    #[inline]
    pub(super) fn push(&mut self, item: T) {
        if self.items.len() < N {
            self.items.push(item);
        } else {
            self.items[self.next] = item;
        }
        self.next = (self.next + 1) % N;
    }

    /// The newest.
    pub(super) fn last_mut(&mut self) -> Option<&mut T> {
        let newest = self.next.checked_sub(1).unwrap_or(N - 1);
        self.items.get_mut(newest)
    }

    /// From the oldest to the newest.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let split = if self.items.len() < N { 0 } else { self.next };
        self.items[split..].iter().chain(&self.items[..split])
    }
}
