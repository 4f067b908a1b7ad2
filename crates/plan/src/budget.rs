//! How long a search may last. Knows no clock: who watches it has one.

/// How long a search may last, in steps; and who watches it, having a clock where this module has none.
pub struct Budget<'a> {
    steps: u64,
    spent: u64,
    watch: Option<&'a mut dyn FnMut(&Progress) -> bool>,
}

/// A budget's watcher is asked once in so many steps.
const WATCHED: u64 = 64;

impl<'a> Budget<'a> {
    /// No more than `steps` moves; one takes from one to a few tens of microseconds.
    pub fn steps(steps: u64) -> Self {
        Self { steps, spent: 0, watch: None }
    }

    /// The same, ended as well when `watch`, asked every few steps, answers false.
    pub fn watched(self, watch: &'a mut dyn FnMut(&Progress) -> bool) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// Takes one step, with the best plan and the bound as they are. Whether it may be made.
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

    /// Whether there is time, without a step.
    pub(crate) fn is_on(&mut self, best: u64, bound: u64) -> bool {
        let progress = Progress { steps: self.spent, best, bound };
        if !self.is_over() && self.watch.as_mut().is_some_and(|watch| !watch(&progress)) {
            self.steps = self.spent;
        }
        !self.is_over()
    }

    /// Whether it has a watcher, who has a clock.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// How many steps were taken.
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_over(&self) -> bool {
        self.spent >= self.steps
    }
}

/// How far a search has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// How many steps were made.
    pub steps: u64,
    /// The capacity of the best plan so far; 0 where there is none yet.
    pub best: u64,
    /// No plan needs less than this.
    pub bound: u64,
}
