//! State that the threads of a program share: devices, mailboxes and shared streams; and the end of the program.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millpond::{Buffer, Device, Event, Stream};

use crate::bytes::Content;
use crate::device::{Dev, check_gone, open};
use crate::finding::{finding, lock};
use crate::ground::{Before, Ground};
use crate::kind::Kind;
use crate::random::Random;
use crate::settings::{DeviceKind, Setting};

/// A buffer on its way to another thread, with an event after its uses.
pub(crate) struct Mail {
    pub(crate) buffer: Buffer<u8>,
    pub(crate) life: u32,
    pub(crate) device: usize,
    pub(crate) content: Content,
    pub(crate) uses: Before,
    pub(crate) after: Option<(Event, Before)>,
}

/// State that all threads of a program share.
pub(crate) struct Stage {
    pub(crate) setting: &'static Setting,
    pub(crate) kind: DeviceKind,
    pub(crate) devices: Vec<Dev>,
    pub(crate) ground: Arc<Ground>,
    pub(crate) mail: Vec<Mutex<Option<Mail>>>,
    /// Streams that all threads use, each with its device.
    pub(crate) shared: Vec<Mutex<Option<(Stream, usize)>>>,
    next: AtomicU64,
    log: Option<Mutex<File>>,
}

impl Stage {
    /// Makes the state, with fresh devices.
    pub(crate) fn new(setting: &'static Setting, kind: DeviceKind, seed: u64, log: Option<File>) -> Self {
        Self {
            setting,
            kind,
            devices: (0..setting.devices).map(|at| open(setting, kind, seed + at as u64)).collect(),
            ground: Arc::default(),
            mail: (0..4).map(|_| Mutex::default()).collect(),
            shared: (0..3).map(|_| Mutex::default()).collect(),
            next: AtomicU64::new(1),
            log: log.map(Mutex::new),
        }
    }

    /// Returns a unique number.
    pub(crate) fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed) as u32
    }

    /// Returns `true` if there is only one thread, so that every verdict must be the checker's.
    pub(crate) fn is_exact(&self) -> bool {
        self.setting.threads == 1
    }

    /// Returns `true` if kernels are closures that really run.
    pub(crate) fn runs_kernels(&self) -> bool {
        matches!(self.kind, DeviceKind::Host | DeviceKind::Seeded)
    }

    /// Returns the duration of a kernel in microseconds.
    pub(crate) fn micros(&self, chance: u32) -> u64 {
        let mut random = Random::new(u64::from(chance));
        match random.below(4) {
            _ if self.setting.slow == 0 => 0,
            0 => random.below(self.setting.slow),
            1 => random.below(40),
            _ => 0,
        }
    }

    /// Returns `true` if memory is real.
    pub(crate) fn has_memory(&self) -> bool {
        !matches!(self.kind, DeviceKind::Sim | DeviceKind::SimLate)
    }

    pub(crate) fn device(&self, at: usize) -> Option<Device> {
        self.devices[at].device.read().unwrap_or_else(|it| it.into_inner()).clone()
    }

    /// Logs a line, if there is a log.
    pub(crate) fn say(&self, thread: usize, line: std::fmt::Arguments<'_>) {
        if let Some(log) = &self.log {
            // Unbuffered: the next call may end the process.
            let _ = match self.setting.threads {
                1 => writeln!(lock(log), "{line}"),
                _ => writeln!(lock(log), "{line}  # thread {thread}"),
            };
        }
    }

    /// Drops everything and checks that nothing is left. With `waits`, the devices are synchronised first, so that they
    /// give everything back by their own calls. Otherwise memory that is in use goes with the driver.
    pub(crate) fn end(self, waits: bool) {
        for slot in &self.mail {
            if let Some(mail) = lock(slot).take() {
                self.ground.release(mail.life, mail.buffer.address(), &mail.uses);
                drop(mail);
            }
        }
        self.shared.iter().for_each(|slot| drop(lock(slot).take()));
        self.devices.iter().for_each(|dev| dev.driver.disarm());
        let device = |dev: &Dev| dev.device.write().unwrap_or_else(|it| it.into_inner()).take();
        let devices: Vec<Option<Device>> = self.devices.iter().map(device).collect();
        let is_over = |device: &Option<Device>| device.as_ref().is_some_and(|device| device.synchronize().is_ok());
        // Once more, for the work that kernels with handles launch when they are dropped, which may be after their
        // completion.
        let is_over = waits && devices.iter().all(is_over) && self.await_cargo() && devices.iter().all(is_over);
        drop(devices);
        for (at, dev) in self.devices.iter().enumerate() {
            dev.check_calls(self.kind == DeviceKind::Sim);
            check_gone(&format!("device {at}"), dev, is_over, self.setting.has(Kind::Lend));
        }
    }

    /// Waits until kernels that have completed, or were dropped with their graphs, have dropped what they own.
    fn await_cargo(&self) -> bool {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match self.ground.cargo.load(Ordering::Acquire) {
                0 => return true,
                left if Instant::now() > until => {
                    finding(&format!("all work has completed, and {left} kernels are not dropped with what they own"))
                }
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }
}
