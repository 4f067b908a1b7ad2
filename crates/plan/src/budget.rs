//! The limit of a search. This module has no clock; a watcher may have one.

/// The limit of a search: a number of steps, and a watcher that may end it earlier, for example by a clock.
pub struct Budget<'a> {
    steps: u64,
    spent: u64,
    watch: Option<&'a mut dyn FnMut(&Progress) -> bool>,
}

/// The number of steps between two calls of the watcher.
const WATCHED: u64 = 64;

impl<'a> Budget<'a> {
    /// Makes a budget of `steps` moves. A move takes from one to a few tens of microseconds.
    pub fn steps(steps: u64) -> Self {
        Self { steps, spent: 0, watch: None }
    }

    /// Adds a watcher, which is called every few steps and ends the search by returning `false`.
    pub fn watched(self, watch: &'a mut dyn FnMut(&Progress) -> bool) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// Takes one step, and passes the best plan and the bound to the watcher. Returns `true` if the step may be made.
    pub(crate) fn take(&mut self, best: u64, bound: u64) -> bool {
        if self.spent >= self.steps {
            return false;
        }
        if self.spent.is_multiple_of(WATCHED) {
            let progress = Progress { steps: self.spent, best, bound };
            if self.watch.as_mut().is_some_and(|watch| !watch(&progress)) {
                self.steps = self.spent;
                return false;
            }
        }
        self.spent += 1;
        true
    }

    /// Returns `true` if the budget is not spent and the watcher lets the search go on. Takes no step.
    pub(crate) fn is_on(&mut self, best: u64, bound: u64) -> bool {
        let progress = Progress { steps: self.spent, best, bound };
        if !self.is_over() && self.watch.as_mut().is_some_and(|watch| !watch(&progress)) {
            self.steps = self.spent;
        }
        !self.is_over()
    }

    /// Returns `true` if it has a watcher.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Returns the number of steps taken.
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    /// Returns `true` if the budget is spent.
    pub(crate) fn is_over(&self) -> bool {
        self.spent >= self.steps
    }
}

/// The progress of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// The number of steps made.
    pub steps: u64,
    /// The capacity of the best plan so far; 0 if there is none yet.
    pub best: u64,
    /// The lower bound: no plan needs less.
    pub bound: u64,
}
