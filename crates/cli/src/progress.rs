//! A bar that shows how far a long replay is: on standard error, only on a terminal, and only once it
//! takes long.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How long to wait before a bar appears.
const PATIENCE: Duration = Duration::from_millis(400);

/// The bar.
pub(crate) struct Progress {
    began: Instant,
    done: u64,
    total: u64,
    name: String,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A bar that has not appeared yet.
    pub(crate) fn new(name: &str, total: u64) -> Self {
        Self { began: Instant::now(), done: 0, total, name: name.to_owned(), bar: None }
    }

    /// So many more steps are done.
    pub(crate) fn advance(&mut self, steps: u64) {
        self.done += steps;
        match &self.bar {
            Some(bar) => bar.set_position(self.done),
            None if self.began.elapsed() > PATIENCE => self.appear(),
            None => {}
        }
    }

    /// All is done: the bar goes.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    #[cold]
    fn appear(&mut self) {
        let style = ProgressStyle::with_template("{msg} [{wide_bar}] {percent}% {eta} left")
            .expect("the template is a constant")
            .progress_chars("=> ");
        // Hides itself where standard error is not a terminal.
        let bar = ProgressBar::with_draw_target(Some(self.total), ProgressDrawTarget::stderr()).with_style(style);
        bar.set_message(self.name.clone());
        bar.set_position(self.done);
        self.bar = Some(bar);
    }
}
