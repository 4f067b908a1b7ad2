//! Events between processes: a pipe each, with a byte in it once the event has completed.
//!
//! The name of an event says where its maker has the pipe, so that nothing is left behind when that is killed. As with
//! the real driver a maker that goes before does not end a wait: its event is never over.
//!
//! Stricter than the real one: an event is recorded before it gets a name and not again after that, in no process, gets
//! one name, and is not destroyed by its maker while another process has it open.
//!
//! Knows files; no streams.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use millpond_driver::cuda::abi::{Code, EventName};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fstat};

const MAGIC: [u8; 8] = *b"fakecuda";
/// How long one look at a pipe waits, where nothing tells of another reason to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
const REST: Duration = Duration::from_millis(2);
/// So often it is looked whether another process has an event open: one that is being started may have a copy of the
/// file for a moment.
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

    /// To be called when it has completed.
    pub(crate) fn teller(&self) -> impl FnOnce() + Send + use<> {
        let writer = Arc::clone(&self.writer);
        move || {
            // Where no process has it open none has to know.
            let _ = rustix::io::write(&*writer, &[1]);
        }
    }

    /// It is destroyed.
    pub(crate) fn close(self) -> Result<(), Code> {
        drop(self.reader);
        for _ in 0..LOOKS {
            // An error is that no process reads it any more.
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
                // Its maker is gone, and it will not complete by itself.
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
