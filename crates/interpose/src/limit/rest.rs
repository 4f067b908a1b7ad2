//! What this process uses of a device beyond all that is counted, as NVML has it: contexts, kernels, the driver's
//! rounding.
//!
//! NVML's figure and the account's are of the same moment only if no other thread makes or ends memory meanwhile. Where
//! one does, the former difference stays.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::account::{Account, Kind};
use super::amounts::DEVICES_MAX;
use super::nvml_use::{Nvml, NvmlDevice};
use crate::{ask, capturing};

/// NVML is asked at most once in this time, unless something has ended or was loaded. A question takes some 50 us.
const QUESTIONS: Duration = Duration::from_millis(100);
/// The time until the next question, where other threads were changing memory, or the process has no context yet.
const AGAIN: Duration = Duration::from_millis(5);

/// The time in which a process gets its first context. A process that NVML still does not know may never be known.
const FIRST: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Rest {
    nvml: OnceLock<Option<Nvml>>,
    devices: [Asked; DEVICES_MAX],
    begun: Instant,
    /// The number of calls in progress that make or end memory.
    changing: AtomicU64,
}

/// What NVML was asked of a device.
#[derive(Debug, Default)]
struct Asked {
    /// `None` if NVML does not know the device.
    device: OnceLock<Option<NvmlDevice>>,
    /// The time of the next question, in milliseconds after the begin; 0 if there was none.
    next: AtomicU64,
    /// `true` once NVML knew the process.
    is_known: AtomicBool,
}

/// A call in progress that makes or ends memory.
pub(super) struct Changing<'a>(&'a Rest);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changing.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Rest {
    pub(super) fn new() -> Self {
        let asked = || Asked { device: OnceLock::new(), next: AtomicU64::new(0), is_known: AtomicBool::new(false) };
        Self {
            nvml: OnceLock::new(),
            devices: std::array::from_fn(|_| asked()),
            begun: Instant::now(),
            changing: AtomicU64::new(0),
        }
    }

    pub(super) fn change(&self) -> Changing<'_> {
        self.changing.fetch_add(1, Ordering::SeqCst);
        Changing(self)
    }

    /// Returns the devices about which NVML was asked.
    pub(super) fn asked(&self) -> impl Iterator<Item = i32> {
        (0..).zip(&self.devices).filter(|it| it.1.next.load(Ordering::Relaxed) > 0).map(|it| it.0)
    }

    /// Takes the difference over into the account, if it is time for that or `now` is given. Returns `true` if NVML
    /// knows the process. The calling thread makes or ends memory.
    pub(super) fn measure(&self, account: &Account, device: i32, place: usize, now: bool) -> bool {
        let Some(asked) = usize::try_from(device).ok().and_then(|device| self.devices.get(device)) else {
            return false;
        };
        let is_known = || asked.is_known.load(Ordering::Relaxed);
        let time = self.begun.elapsed();
        let is_early = (time.as_millis() as u64) < asked.next.load(Ordering::Relaxed);
        // While a stream captures, the account has no new figures of pools and graphs.
        if !now && is_early || is_known() && capturing::may_be() {
            return is_known();
        }
        let ask_again = |after: Duration| asked.next.store((time + after).as_millis() as u64, Ordering::Relaxed);
        ask_again(QUESTIONS);
        let Some(nvml) = self.nvml.get_or_init(Nvml::load) else { return false };
        let find = || nvml.device(ask::uuid_of(device)?);
        let Some(known) = *asked.device.get_or_init(find) else { return false };
        let counted = account.in_nvml(place);
        let Some(used) = nvml.used(known) else { return is_known() };
        if used.is_none() && !is_known() && time < FIRST {
            ask_again(AGAIN);
        }
        let is_alone = self.changing.load(Ordering::SeqCst) <= 1 && account.in_nvml(place) == counted;
        let was_known = if used.is_some() { asked.is_known.swap(true, Ordering::Relaxed) } else { is_known() };
        if is_alone || !was_known {
            account.set(place, Kind::Rest, used.unwrap_or(0).saturating_sub(counted));
        } else {
            ask_again(AGAIN);
        }
        is_known()
    }
}
