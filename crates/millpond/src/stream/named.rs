//! Names of streams: set and read here, stored in `names/stream_names.rs`.

use millpond_driver::process;

use crate::names::stream_names;
use crate::stream::handle::Stream;

impl Stream {
    /// Gives the stream a name, which messages and traces use in place of its number. A later name replaces it. This
    /// has no effect in a forked child process.
    pub fn set_name(&self, name: &str) {
        if process::is_forked() {
            return;
        }
        let shared = &self.shared;
        stream_names::set(shared.context.number, shared.id, name);
        if let Some(tracer) = &shared.context.tracer {
            tracer.stream_name(shared.id, name);
        }
    }

    /// Gives the stream a name, as [`set_name`](Self::set_name), and returns it:
    ///
    /// ```
    /// # fn main() -> millpond::Result<()> {
    /// let device = millpond::Device::host(millpond::HostConfig::default())?;
    /// let pool = device.default_pool();
    /// let (copy, compute) = (device.stream()?.named("copy"), device.stream()?.named("compute"));
    /// let x = copy.alloc::<f32>(&pool, 1024)?;
    /// let refused = compute.free(x).unwrap_err().error;
    /// let right = "freed on stream `compute`, but nothing makes that free wait for the allocation on stream `copy`";
    /// assert!(refused.to_string().contains(right), "{refused}");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        self.set_name(&name.into());
        self
    }

    /// Returns the name of the stream, if it has one.
    pub fn name(&self) -> Option<String> {
        if process::is_forked() {
            return None;
        }
        stream_names::get(self.shared.context.number, self.shared.id)
    }
}
