//! What the program calls a stream: given and asked here, kept in `names/stream_names.rs`.

use millpond_driver::process;

use crate::names::stream_names;
use crate::stream::handle::Stream;

impl Stream {
    /// Gives it a name, which messages and traces use in place of its number. The last name given counts. In a process
    /// that was forked off this has no effect.
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

    /// The stream with a name, as of [`set_name`](Self::set_name):
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

    /// The name that it was given.
    pub fn name(&self) -> Option<String> {
        if process::is_forked() {
            return None;
        }
        stream_names::get(self.shared.context.number, self.shared.id)
    }
}
