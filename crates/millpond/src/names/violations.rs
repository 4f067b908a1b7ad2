//! What is to become of a violation: a setting, and who gets the report.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use millpond_core::check::Finding;
use millpond_driver::locks::{Mutex, lock};
use millpond_driver::output::say;

use crate::sync::ranks;

/// So many different violations a reporter distinguishes.
const MET_MAX: usize = 4096;

/// What becomes of a violation: a setting of devices ([`DeviceConfig::violations`](crate::DeviceConfig::violations)).
#[derive(Clone, Debug, Default)]
pub enum Violations {
    /// The operation is refused, with both sides named, and nothing has happened.
    #[default]
    Refuse,
    /// The violation is handed to a reporter and the operation goes on: its stream waits for the other side's work
    /// first, so that memory stays whole. What no wait of one stream can put right is reported and refused all the
    /// same: a use after the free, a second free, a stale name, work of another process or another device, a [free by
    /// the host](crate::Device::free), a [slice of pinned memory](crate::PinnedBuffer). What a capture refuses is an
    /// error of the capture and not reported.
    Report(Reporter),
}

/// Where violations are reported. Clones are the same reporter.
///
/// ```
/// # use std::sync::Arc;
/// # use std::sync::atomic::{AtomicUsize, Ordering};
/// # use millpond::config::{Reporter, Violations};
/// # use millpond::{Device, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let count = Arc::new(AtomicUsize::new(0));
/// let counted = Arc::clone(&count);
/// let reporter = Reporter::new(move |finding| {
///     println!("{finding}");
///     counted.fetch_add(1, Ordering::Relaxed);
/// });
/// let device = Device::host(HostConfig::default().violations(Violations::Report(reporter)))?;
/// let (stream, other) = (device.stream()?, device.stream()?);
/// let x = stream.alloc::<u32>(&device.default_pool(), 4)?;
/// stream.memset(x.write(), 1)?;
/// other.launch(x.read(), |x| assert_eq!(x, [1; 4]))?; // reported, and ordered all the same
/// assert_eq!(count.load(Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Reporter(Arc<dyn Fn(&Finding) + Send + Sync>);

impl Reporter {
    /// A function that is called for each violation, on the thread that made it, where no lock is held.
    pub fn new(report: impl Fn(&Finding) + Send + Sync + 'static) -> Self {
        Reporter(Arc::new(report))
    }

    /// Writes each violation to standard error: in full at its first time, and in one line, with how often it was met,
    /// where the same is met again at the same places for the second, fourth, eighth time and so on.
    pub fn stderr() -> Self {
        let met = Mutex::<ranks::Table, HashMap<String, u64>>::default();
        Self::new(move |violation| {
            let key = violation.key();
            let times = {
                let mut met = lock(&met);
                // Of so many different ones each is written in full.
                let room = met.len() < MET_MAX || met.contains_key(&key);
                if room { *met.entry(key).and_modify(|times| *times += 1).or_insert(1) } else { 1 }
            };
            let kind = violation.kind.name();
            match times {
                1 => say(format_args!("millpond: {kind}: {violation}")),
                _ if times.is_power_of_two() => {
                    let at = violation.spot().map(|spot| format!(" at {spot}")).unwrap_or_default();
                    say(format_args!("millpond: {kind}{at}: met {times} times by now"));
                }
                _ => {}
            }
        })
    }
}

impl Reporter {
    /// Hands a violation over.
    pub(crate) fn call(&self, violation: &Finding) {
        (self.0)(violation);
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reporter")
    }
}

/// Two are equal where they are the same reporter.
impl PartialEq for Violations {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Violations::Refuse, Violations::Refuse) => true,
            (Violations::Report(one), Violations::Report(other)) => Arc::ptr_eq(&one.0, &other.0),
            _ => false,
        }
    }
}

impl Eq for Violations {}
