//! The handling of violations: a setting, and the receiver of reports.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use millpond_core::check::Finding;
use millpond_driver::locks::{Mutex, lock};
use millpond_driver::output::say;

use crate::sync::ranks;

/// The number of different violations that a reporter tells apart.
const MET_MAX: usize = 4096;

/// The handling of a violation: a setting of devices ([`DeviceConfig::violations`](crate::DeviceConfig::violations)).
#[derive(Clone, Debug, Default)]
pub enum Violations {
    /// The operation is refused with both operations named, and has no effect.
    #[default]
    Refuse,
    /// The violation is passed to a reporter and the operation goes on: its stream first waits for the other
    /// operation, so that memory is not corrupted. A violation that no wait of one stream can fix is reported and
    /// refused: a use after the free, a second free, a stale name, work of another process or another device, a [free
    /// by the host](crate::Device::free), a [slice of pinned memory](crate::PinnedBuffer). What a capture, a graph or a
    /// grant of access refuses is an error of the call and is not reported.
    Report(Reporter),
}

/// A receiver of violations. A clone is the same reporter.
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
    /// Makes a reporter of a function, which is called for each violation, on the thread that made it, with no lock
    /// held.
    pub fn new(report: impl Fn(&Finding) + Send + Sync + 'static) -> Self {
        Reporter(Arc::new(report))
    }

    /// Makes a reporter that writes each violation to standard error: in full the first time. If the same violation
    /// at the same places is met again for the second, fourth, eighth time and so on, it writes one line with the
    /// count.
    pub fn stderr() -> Self {
        let met = Mutex::<ranks::Table, HashMap<String, u64>>::default();
        Self::new(move |violation| {
            let key = violation.key();
            let times = {
                let mut met = lock(&met);
                // Violations beyond this number are each written in full.
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
    /// Reports a violation.
    pub(crate) fn call(&self, violation: &Finding) {
        (self.0)(violation);
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reporter")
    }
}

/// Two are equal if both refuse, or both have the same reporter.
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
