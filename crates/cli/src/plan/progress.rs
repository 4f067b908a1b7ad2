//! Progress of a search: on standard error, only on a terminal, and only if the search takes long.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use millpond_core::units::Bytes;
use millpond_plan::Progress;

/// The delay before the line appears.
const PATIENCE: Duration = Duration::from_millis(400);

/// The time between two updates.
const PERIOD: Duration = Duration::from_millis(100);

/// The progress line.
pub(crate) struct Sign {
    next: Instant,
    line: Option<ProgressBar>,
}

impl Sign {
    /// Creates a line that has not appeared yet.
    pub(crate) fn new() -> Self {
        Self { next: Instant::now() + PATIENCE, line: None }
    }

    /// Shows the progress of the search.
    pub(crate) fn show(&mut self, progress: &Progress) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + PERIOD;
            self.change(progress);
        }
    }

    /// Removes the line: the search has ended.
    pub(crate) fn finish(self) {
        if let Some(line) = self.line {
            line.finish_and_clear();
        }
    }

    #[cold]
    fn change(&mut self, progress: &Progress) {
        let line = self.line.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("the template is a constant");
            // It hides itself if standard error is not a terminal.
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
        });
        let Progress { steps, best, bound, .. } = *progress;
        line.set_message(match best {
            0 => format!("first fit, bound {}", Bytes(bound)),
            _ => format!("best {}, bound {}, {steps} steps", Bytes(best), Bytes(bound)),
        });
        line.tick();
    }
}
