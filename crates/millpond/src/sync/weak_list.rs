//! References to objects that may be gone.

use std::fmt;
use std::sync::{Arc, Weak};

/// See the module.
pub(crate) struct WeakList<T>(Vec<Weak<T>>);

impl<T> fmt::Debug for WeakList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl<T> WeakList<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds an object. References to objects that are gone are removed only before the list grows, so that each is
    /// looked at a few times and not once for each new one.
    pub(crate) fn add(&mut self, object: &Arc<T>) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|object| object.strong_count() > 0);
            self.0.reserve(self.0.len() + 1);
        }
        self.0.push(Arc::downgrade(object));
    }

    /// Returns the objects that exist. The last handle of one may be among them: drop them where no lock is held.
    pub(crate) fn live(&self) -> Vec<Arc<T>> {
        self.0.iter().filter_map(Weak::upgrade).collect()
    }
}
