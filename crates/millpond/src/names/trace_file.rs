//! The file of a trace: opened by a setting or by the environment, one writer at a time, flushed by frames.
//!
//! Depends on operations and bytes; `trace/tracer.rs` makes the operations. After a write error nothing more is
//! written. The error is reported once on standard error, and to each caller of a flush: tracing never makes a
//! program fail. The file then ends with its last complete frame. A process that was forked from the one that opened
//! the file writes nothing. When the process ends, by `exit` or because `main` returns, open traces are finished,
//! even if devices are still held. Operations after that (destructors of the program's statics) are written as they
//! come.

use std::cell::RefCell;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once, Weak};
use std::time::Duration;

use millpond_core::op::{Names, Op};
use millpond_core::trace::ops::Writer;
use millpond_driver::locks::{Guard, Leaf, Mutex, Rank, lock};
use millpond_driver::output::{say, without_signals};
use millpond_driver::process;

use crate::names::shadow::Shadow;
use crate::sync::ranks;
use crate::sync::weak_list::WeakList;

/// The environment variable that asks for a trace of every device.
const VARIABLE: &str = "MILLPOND_TRACE";

/// The most devices in a trace.
const DEVICES_MAX: u32 = 254;

/// A trace of the program's operations, written to a file while the program runs: a setting of devices
/// ([`DeviceConfig::trace`](crate::DeviceConfig::trace)). Clones name the same file.
///
/// It is flushed whenever 64 KiB are full, when the host synchronises with a whole device, when the last handle of a
/// device is dropped, at the end of the process, and by [`flush`](Self::flush). `millpond check` finds wrong orders
/// in it, and `millpond view` draws it.
///
/// Without a setting, a device is traced if the environment variable `MILLPOND_TRACE` names a file. If another
/// running process already writes that file (a parent that passes its environment on), the process's number is
/// appended to the name.
///
/// ```
/// use millpond::config::{HostConfig, Trace};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir();
/// let trace = Trace::create(folder.join(format!("example-{}.trace", std::process::id())))?;
/// let device = millpond::Device::host(HostConfig::default().trace(trace.clone()))?;
/// let stream = device.stream()?;
/// let x = stream.alloc::<u32>(&device.default_pool(), 4)?;
/// stream.free(x)?;
/// trace.flush()?; // now `millpond check` and `millpond view` read it
/// assert!(trace.path().metadata()?.len() > 0);
/// # std::fs::remove_file(trace.path())?;
/// # Ok(())
/// # }
/// ```
///
/// A trace has room for 254 devices, including closed ones. Opening another one with it is an error. If the
/// environment asks for traces, the next devices are in a file of their own, with `.2` (`.3`, and so on) appended.
#[derive(Clone)]
pub struct Trace {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({})", self.shared.path.display())
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    path: PathBuf,
    /// The number of devices it has had, and the number of open ones.
    pub(crate) devices: AtomicU32,
    pub(crate) open: AtomicU32,
    /// The numbers of things that no device counts.
    pub(crate) hosts: AtomicU32,
    pub(crate) execs: AtomicU32,
    pub(crate) output: Mutex<Leaf, Output>,
}

#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) writer: Writer,
    pub(crate) names: Names,
    file: Target,
    /// In tests: the checker that judges whether the library decided right.
    shadow: Option<Box<Shadow>>,
    /// `true` if its end is written and nothing came after.
    is_finished: bool,
    /// `true` if the process is about to end: no thread will come to flush.
    is_ending: bool,
    /// The process that opened it. A process that was forked from it must not write.
    process: u32,
    /// The numbers of destroyed events, and the next new number.
    pub(crate) free_events: Vec<u32>,
    pub(crate) next_event: u32,
}

/// The destination of a trace.
#[derive(Debug)]
enum Target {
    /// A file, and the number of bytes of its complete frames.
    File(File, u64),
    /// No file.
    None,
    /// It could not be written, for this reason.
    Lost(io::ErrorKind, String),
}

impl Target {
    /// Appends a frame. If that fails, the partial frame is cut off, and nothing more is written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Target::None => Ok(()),
            Target::Lost(kind, reason) => Err(io::Error::new(*kind, reason.clone())),
            Target::File(file, whole) => match without_signals(|| file.write_all(bytes)) {
                Ok(()) => {
                    *whole += bytes.len() as u64;
                    Ok(())
                }
                Err(error) => {
                    // If that fails, too, a reader stops before the frame in any case.
                    let _ = file.set_len(*whole);
                    *self = Target::Lost(error.kind(), error.to_string());
                    Err(error)
                }
            },
        }
    }
}

impl Trace {
    /// Begins a trace in a file, replacing its contents.
    ///
    /// # Errors
    /// If the file cannot be written, is not a regular file (a pipe, for example), or another process writes a trace
    /// to it.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Trace> {
        let path = path.as_ref().to_owned();
        // Opening a pipe without a reader would block for ever.
        if fs::metadata(&path).is_ok_and(|it| !it.is_file()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a trace is written to a regular file"));
        }
        let file = File::options().write(true).create(true).truncate(false).open(&path)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| taken(error.into(), &file))?;
        file.set_len(0)?;
        let mut output = Output::new(Target::File(file, 0), Shadow::of_environment());
        output.write(|writer| writer.seal())?;
        let trace = Self::with(path, output);
        finish_at_exit(&trace.shared);
        Ok(trace)
    }

    /// For a device without a trace, in tests: returns a trace of this thread's devices that is judged and written
    /// nowhere, and the device's number in it.
    pub(crate) fn judged() -> Option<(Trace, u32)> {
        thread_local!(static OWN: RefCell<Weak<Shared>> = const { RefCell::new(Weak::new()) });
        let shadow = Shadow::of_environment()?;
        let open = OWN.with_borrow(Weak::upgrade).map(|shared| Trace { shared });
        if let Some((trace, device)) = open.and_then(|trace| trace.add_device().map(|device| (trace, device))) {
            return Some((trace, device));
        }
        let trace = Self::with(PathBuf::new(), Output::new(Target::None, Some(shadow)));
        OWN.set(Arc::downgrade(&trace.shared));
        let device = trace.add_device()?;
        Some((trace, device))
    }

    fn with(path: PathBuf, output: Output) -> Trace {
        let (devices, open, hosts, execs) = Default::default();
        Trace { shared: Arc::new(Shared { path, devices, open, hosts, execs, output: Mutex::new(output) }) }
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Writes everything so far: a crash after this loses none of it.
    ///
    /// # Errors
    /// If the file cannot be written, now or at an earlier time. The trace ends there.
    pub fn flush(&self) -> io::Result<()> {
        process::refuse_forked().map_err(io::Error::other)?;
        lock(&self.shared.output).write(Writer::seal)
    }

    /// Returns the number of a new device in it, or `None` if it is full.
    pub(crate) fn add_device(&self) -> Option<u32> {
        let next = |devices| (devices < DEVICES_MAX).then_some(devices + 1);
        self.shared.devices.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
    }

    /// Returns the trace that the environment asks for, and the number of a new device in it. There is one trace for
    /// the whole process, and further ones when that is full.
    pub(crate) fn of_environment() -> Option<(Trace, u32)> {
        static ASKED_FOR: Mutex<ranks::Table, Vec<Option<Trace>>> = Mutex::new(Vec::new());
        let mut asked_for = lock(&ASKED_FOR);
        loop {
            match asked_for.last() {
                Some(None) => return None,
                Some(Some(trace)) => {
                    if let Some(device) = trace.add_device() {
                        return Some((trace.clone(), device));
                    }
                }
                None => {}
            }
            let next = Self::open_by_environment(asked_for.len());
            asked_for.push(next);
        }
    }

    #[cold]
    fn open_by_environment(full: usize) -> Option<Trace> {
        let path = PathBuf::from(std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?);
        let with = |path: &Path, number: u64| {
            let mut with = path.to_owned().into_os_string();
            with.push(format!(".{number}"));
            PathBuf::from(with)
        };
        let path = if full > 0 { with(&path, full as u64 + 1) } else { path };
        match Trace::create(&path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Trace::create(with(&path, std::process::id().into()))
            }
            opened => opened,
        }
        .inspect_err(|error| {
            let path = path.display();
            say(format_args!("millpond: the trace {path} cannot be written: {error}; nothing is recorded"));
        })
        .ok()
    }
}

/// Explains why a file is locked.
#[cold]
fn taken(error: io::Error, file: &File) -> io::Error {
    use std::os::unix::fs::MetadataExt;
    if error.kind() != io::ErrorKind::WouldBlock {
        return error;
    }
    let number = |file: io::Result<fs::Metadata>| file.ok().map(|it| (it.dev(), it.ino()));
    let this = number(file.metadata());
    let open = lock(&OPEN).live();
    let is_own = this.is_some() && open.iter().any(|it| number(fs::metadata(&it.path)) == this);
    let reason = match is_own {
        true => "this process writes a trace to it still: until the last device goes that is in it",
        false => "another process writes a trace to it",
    };
    io::Error::new(io::ErrorKind::WouldBlock, reason)
}

/// The open traces of this process.
static OPEN: Mutex<Leaf, WeakList<Shared>> = Mutex::new(WeakList::new());
/// The number of tries, a millisecond each, for a lock that another thread holds when the process ends.
const LOOKS_AT_EXIT: u32 = 200;

/// Makes a trace be finished when the process ends.
fn finish_at_exit(shared: &Arc<Shared>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // If the system has no room for a handler, the last frame is lost, as in a crash.
        let _ = process::at_exit(finish_all);
    });
    lock(&OPEN).add(shared);
}

/// Finishes all traces, when the process ends.
extern "C" fn finish_all() {
    let Some(open) = patiently(&OPEN) else { return };
    for shared in open.live() {
        if let Some(mut output) = patiently(&shared.output) {
            output.is_ending = true;
            // Bytes that cannot be written are lost, as in a crash.
            let _ = output.finish();
        }
    }
}

/// Takes a lock that another thread may hold for ever, because `exit` can be called in the middle of anything.
fn patiently<R: Rank, T>(mutex: &Mutex<R, T>) -> Option<Guard<'_, T>> {
    (0..LOOKS_AT_EXIT).find_map(|look| {
        if look > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        mutex.try_lock()
    })
}

/// Two traces are equal if they are the same.
impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Trace {}

impl Drop for Output {
    fn drop(&mut self) {
        // Bytes that cannot be written now are lost, as in a crash.
        let _ = self.write(Writer::seal);
    }
}

impl Output {
    fn new(file: Target, shadow: Option<Box<Shadow>>) -> Output {
        Output {
            writer: Writer::new(),
            names: Names::new(),
            file,
            shadow,
            is_finished: false,
            is_ending: false,
            process: std::process::id(),
            free_events: Vec::new(),
            next_event: 0,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, op: &Op) {
        if let Some(shadow) = &mut self.shadow {
            shadow.step(op, &self.names);
        }
        self.writer.push(op, &self.names);
        self.is_finished = false;
        if self.writer.is_full() || self.is_ending {
            self.flush_full();
        }
    }

    #[cold]
    pub(crate) fn flush_full(&mut self) {
        let was_lost = matches!(self.file, Target::Lost(..));
        let written = if self.is_ending { self.finish() } else { self.write(Writer::seal) };
        if let (Err(error), false) = (written, was_lost) {
            say(format_args!("millpond: the trace ends here: {error}"));
        }
    }

    /// Writes everything so far, and nothing after it.
    #[cold]
    pub(crate) fn end(&mut self, reason: &str) {
        if self.process == std::process::id() && matches!(self.file, Target::File(..)) {
            // If that fails, the trace has ended as well.
            let _ = self.write(Writer::seal);
            self.file = Target::Lost(io::ErrorKind::Other, reason.to_owned());
            say(format_args!("millpond: the trace ends here: {reason}"));
        }
    }

    /// Writes everything so far, and the end frame.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.is_finished, true) { Ok(()) } else { self.write(Writer::finish) }
    }

    /// Marks a finished trace as unfinished when a device is opened, so that a crash of the program shows.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_finished) { self.write(Writer::reopen) } else { Ok(()) }
    }

    /// Appends the bytes of the writer. After a failure nothing more is written, and the same error is returned
    /// again.
    pub(crate) fn write(&mut self, bytes: impl FnOnce(&mut Writer) -> Vec<u8>) -> io::Result<()> {
        let bytes = bytes(&mut self.writer);
        if self.process != std::process::id() {
            return Ok(());
        }
        self.file.append(&bytes)
    }
}
