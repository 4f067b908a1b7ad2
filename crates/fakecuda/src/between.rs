//! Interprocess events: a pipe for each, with a byte in it once the event has completed. Memory of other processes: a
//! process that opens it gets memory of its own, the same each time until it has closed it as often as it opened it.
//!
//! The name of an event contains the place of its maker's pipe, so that nothing is left over when the maker is killed.
//! As with the real driver, a maker that ends first does not end a wait: its event never completes.
//!
//! Stricter than the real one: an event is recorded before it gets a name and not again after that, in no process; it
//! gets one name, and its maker does not destroy it while another process has it open.
//!
//! Knows files, but no streams.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use millpond_driver::cuda::abi::{Code, EventName};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fstat};

const MAGIC: [u8; 8] = *b"fakecuda";
/// The time that one poll of a pipe waits, because nothing reports other reasons to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
const REST: Duration = Duration::from_millis(2);
/// The number of checks whether another process has an event open. A process that is just being started may have a copy
/// of the file for a moment.
const LOOKS: u32 = 500;

/// An event that has a name in other processes.
#[derive(Debug)]
pub(crate) struct Named {
    reader: OwnedFd,
    writer: Arc<OwnedFd>,
}

/// An event of another process.
#[derive(Debug)]
pub(crate) struct Opened {
    reader: OwnedFd,
}

impl Named {
    pub(crate) fn new() -> Result<(Named, EventName), Code> {
        let (reader, writer) = std::io::pipe().map_err(|_| Code::OUT_OF_MEMORY)?;
        let named = Named { reader: reader.into(), writer: Arc::new(writer.into()) };
        let file = fstat(&named.reader).map_err(|_| Code::UNKNOWN)?.st_ino;
        let mut name = [0; 64];
        name[..8].copy_from_slice(&MAGIC);
        name[8..12].copy_from_slice(&std::process::id().to_le_bytes());
        name[12..16].copy_from_slice(&named.reader.as_raw_fd().to_le_bytes());
        name[16..24].copy_from_slice(&file.to_le_bytes());
        Ok((named, EventName(name)))
    }

    /// Returns a function to call when the event has completed.
    pub(crate) fn teller(&self) -> impl FnOnce() + Send + use<> {
        let writer = Arc::clone(&self.writer);
        move || {
            // If no process has it open, none needs the byte.
            let _ = rustix::io::write(&*writer, &[1]);
        }
    }

    /// Destroys the event.
    pub(crate) fn close(self) -> Result<(), Code> {
        drop(self.reader);
        for _ in 0..LOOKS {
            // An error means that no process reads it any more.
            if look(&*self.writer, PollFlags::OUT, Timespec::default()).contains(PollFlags::ERR) {
                return Ok(());
            }
            std::thread::sleep(REST);
        }
        millpond_driver::output::say("fakecuda: an event was destroyed while another process has it open");
        Err(Code::ILLEGAL_ADDRESS)
    }
}

impl Opened {
    pub(crate) fn new(name: &EventName) -> Result<Opened, Code> {
        let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| name.0[at + byte]));
        if name.0[..8] != MAGIC || name.0[24..].iter().any(|byte| *byte != 0) {
            return Err(Code::INVALID_VALUE);
        }
        if number(8) == std::process::id() {
            return Err(Code::INVALID_CONTEXT);
        }
        let path = format!("/proc/{}/fd/{}", number(8), number(12));
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let reader = rustix::fs::open(path, flags, Mode::empty()).map_err(|_| Code::INVALID_HANDLE)?;
        let file = fstat(&reader).map_err(|_| Code::INVALID_HANDLE)?.st_ino;
        match file.to_le_bytes() == name.0[16..24] {
            true => Ok(Opened { reader }),
            false => Err(Code::INVALID_HANDLE),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.look(Timespec::default()).contains(PollFlags::IN)
    }

    pub(crate) fn block(&self) {
        while !self.is_over() {
            let seen = self.look(LOOK);
            if seen.contains(PollFlags::HUP) && !seen.contains(PollFlags::IN) {
                // Its maker is gone, and the event will not complete by itself.
                std::thread::sleep(REST);
            }
        }
    }

    fn look(&self, patience: Timespec) -> PollFlags {
        look(&self.reader, PollFlags::IN, patience)
    }
}

fn look(file: impl AsFd, what: PollFlags, patience: Timespec) -> PollFlags {
    let mut files = [PollFd::new(&file, what)];
    match poll(&mut files, Some(&patience)) {
        Ok(_) => files[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

/// The name of memory in other processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryName {
    process: u64,
    start: u64,
    bytes: u64,
}

impl MemoryName {
    /// Returns the name of memory of this process.
    pub(crate) fn new(start: u64, bytes: u64) -> Self {
        Self { process: u64::from(std::process::id()), start, bytes }
    }

    pub(crate) fn bytes(self) -> EventName {
        let mut name = EventName([0; 64]);
        for (place, word) in name.0.chunks_exact_mut(8).zip([self.process, self.start, self.bytes]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        name
    }

    pub(crate) fn of(name: &EventName) -> Option<Self> {
        let word = |at: usize| Some(u64::from_ne_bytes(name.0.get(at..at + 8)?.try_into().ok()?));
        Some(Self { process: word(0)?, start: word(8)?, bytes: word(16)? })
    }

    /// Returns `true` if the memory belongs to this process: no process opens its own memory.
    pub(crate) fn is_own(self) -> bool {
        self.process == u64::from(std::process::id())
    }
}

/// Memory of other processes that is open here.
#[derive(Debug, Default)]
pub(crate) struct OpenedMemory {
    /// Each with its address, and the number of times that it is open.
    all: Vec<(MemoryName, u64, usize)>,
}

/// Returns the memory that this process has open, locked.
pub(crate) fn opened() -> MutexGuard<'static, OpenedMemory> {
    static OPENED: Mutex<OpenedMemory> = Mutex::new(OpenedMemory { all: Vec::new() });
    crate::lock(&OPENED)
}

impl OpenedMemory {
    /// Opens memory once more, and returns its address.
    pub(crate) fn open(
        &mut self,
        name: MemoryName,
        allocate: impl FnOnce(usize) -> Result<u64, Code>,
    ) -> Result<u64, Code> {
        if let Some((_, at, count)) = self.all.iter_mut().find(|it| it.0 == name) {
            *count += 1;
            return Ok(*at);
        }
        let at = allocate(name.bytes as usize)?;
        self.all.push((name, at, 1));
        Ok(at)
    }

    /// Closes memory once; the last time frees it.
    pub(crate) fn close(&mut self, at: u64, free: impl FnOnce() -> Result<(), Code>) -> Result<(), Code> {
        let number = self.all.iter().position(|it| it.1 == at).ok_or(Code::INVALID_VALUE)?;
        self.all[number].2 -= 1;
        if self.all[number].2 > 0 {
            return Ok(());
        }
        self.all.swap_remove(number);
        free()
    }
}
