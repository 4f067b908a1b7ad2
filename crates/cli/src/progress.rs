//! A progress bar of a long replay: on standard error, only on a terminal, and only if the replay takes long.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The delay before the bar appears.
const PATIENCE: Duration = Duration::from_millis(400);

/// The progress bar.
pub(crate) struct Progress {
    began: Instant,
    done: u64,
    total: u64,
    name: String,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Creates a bar that has not appeared yet.
    pub(crate) fn new(name: &str, total: u64) -> Self {
        Self { began: Instant::now(), done: 0, total, name: name.to_owned(), bar: None }
    }

    /// Adds steps that are done.
    pub(crate) fn advance(&mut self, steps: u64) {
        self.done += steps;
        match &self.bar {
            Some(bar) => bar.set_position(self.done),
            None if self.began.elapsed() > PATIENCE => self.appear(),
            None => {}
        }
    }

    /// Removes the bar: all steps are done.
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
        // It hides itself if standard error is not a terminal.
        let bar = ProgressBar::with_draw_target(Some(self.total), ProgressDrawTarget::stderr()).with_style(style);
        bar.set_message(self.name.clone());
        bar.set_position(self.done);
        self.bar = Some(bar);
    }
}
