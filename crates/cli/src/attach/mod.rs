//! `millpond record`, `check` and `run -- PROGRAM`: runs a program with the library that records its CUDA calls or
//! serves its memory.
//!
//! The program behaves as without the library: same output, same exit status, same signal. This command writes only to
//! standard error. Each process of the program leaves a report in a folder of this command; the reports are summed up
//! at the end.

mod asked;
mod library;
mod pytorch;
mod report;
mod sarif;
mod served;
pub(crate) mod shake;
mod target;
mod tool;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use millpond_driver::output::without_signals;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::Limits;
use crate::output::is_same;
use crate::refusal::cause;
use crate::{Status, Stop};
use asked::Asked;
use pytorch::Setting;

pub use asked::Files;
pub(crate) use target::in_path;

/// The task for the run.
#[derive(Clone, Copy, Debug)]
pub enum Wish<'a> {
    /// Write the program's operations to this file.
    Record(&'a Path),
    /// Check the operations.
    Check {
        /// Also report accesses that are not ordered with each other.
        races: bool,
        /// Record the whole stack of each call.
        deep: bool,
        /// Fail if no call was seen.
        require_calls: bool,
        /// The files to read and to write.
        files: Files<'a>,
    },
    /// Serve the program's memory.
    Serve {
        /// Leave the memory to CUDA's own pools, to get their figures.
        by_driver: bool,
        /// Report at the end how much memory and time was used.
        report: bool,
        /// Also check the operations.
        check: bool,
        /// Record the whole stack of each call.
        deep: bool,
        /// The device memory that all processes of the program may use.
        limit: Option<&'a Limits>,
    },
}

impl Wish<'_> {
    fn is_check(self) -> bool {
        matches!(self, Wish::Check { .. } | Wish::Serve { check: true, .. })
    }
}

/// The variables that name files to the preloaded library: the rules for findings that are not wanted, and the file for
/// findings.
const SUPPRESSIONS: &str = "MILLPOND_INTERPOSE_SUPPRESSIONS";
const FINDINGS: &str = "MILLPOND_INTERPOSE_FINDINGS";

/// Runs a program and then exits with its status or signal. Returns only if the program cannot be run this way. For a
/// Python program, sets PyTorch's allocator so that tensors are seen, unless `keep_allocator` is given.
///
/// # Errors
/// Fails if the program cannot be run this way, or if `err` cannot be written.
pub fn run(wish: Wish<'_>, program: &[OsString], keep_allocator: bool, err: &mut dyn Write) -> Result<Status, Stop> {
    let ended = start(wish, program, keep_allocator, err).map_err(Stop::bad_input)?;
    err.flush()?;
    let code = match ended {
        Ended::Exit(code) => code,
        Ended::Signal(signal) => end_by(signal),
    };
    std::process::exit(code)
}

/// The program's exit.
#[derive(Clone, Copy, Debug)]
enum Ended {
    Exit(i32),
    Signal(i32),
}

impl Ended {
    /// Returns the exit status, or else the signal.
    fn parts(self) -> (Option<i32>, Option<i32>) {
        match self {
            Ended::Exit(status) => (Some(status), None),
            Ended::Signal(signal) => (None, Some(signal)),
        }
    }
}

fn start(wish: Wish<'_>, program: &[OsString], keep_allocator: bool, err: &mut dyn Write) -> Result<Ended, String> {
    let [name, args @ ..] = program else { return Err("no program is named".to_owned()) };
    let path = target::find(name)?;
    let library = library::library()?;
    let asked = match wish {
        Wish::Check { files, .. } => files.open(&path, args)?,
        _ => Asked::default(),
    };
    let folder = Folder::new()?;
    let mut command = Command::new(&path);
    command.arg0(name).args(args).env("LD_PRELOAD", preload(&library)).env("MILLPOND_INTERPOSE_REPORT", &folder.0);
    if let (path, Some(own)) = tool::path() {
        let _ =
            writeln!(err, "millpond: the program runs without {} in PATH, the environment of this tool", own.display());
        command.env("PATH", path);
    }
    // Inside of `millpond shake`: a check has no delays.
    command.env_remove("MILLPOND_INTERPOSE_SHAKE");
    let (mut former, mut account) = (None, None);
    match wish {
        Wish::Record(output) => {
            let output = fresh(output, "a trace", &path, args)?;
            former = Former::aside(&output)?;
            command.env("MILLPOND_INTERPOSE", "record").env("MILLPOND_INTERPOSE_OUTPUT", output);
        }
        Wish::Check { races, deep, .. } => {
            command.env("MILLPOND_INTERPOSE", "check").env("MILLPOND_INTERPOSE_RACES", if races { "1" } else { "0" });
            command.env("MILLPOND_INTERPOSE_STACKS", if deep { "1" } else { "0" });
            let rules = asked.hand_on_rules(&folder.0).map_err(|error| cause(&error).to_string())?;
            for (name, file) in [(SUPPRESSIONS, rules.as_deref()), (FINDINGS, asked.text.as_deref())] {
                match file {
                    Some(file) => command.env(name, file),
                    // The variable of a check that this one is part of.
                    None => command.env_remove(name),
                };
            }
        }
        Wish::Serve { by_driver, report, check, deep, limit } => {
            command.env("MILLPOND_INTERPOSE", if check { "check" } else { "off" });
            command.env("MILLPOND_INTERPOSE_STACKS", if deep { "1" } else { "0" });
            command.env("MILLPOND_INTERPOSE_SERVE", if by_driver { "driver" } else { "millpond" });
            command.env("MILLPOND_INTERPOSE_FIGURES", if report { "1" } else { "0" });
            if let Some(limit) = limit {
                let file = account.insert(Folder::new()?).0.join("account");
                let refuse = |error: io::Error| format!("{}: cannot be written: {}", file.display(), cause(&error));
                without_signals(|| make_account(&file)).map_err(refuse)?;
                command.env("MILLPOND_INTERPOSE_LIMIT", limit.to_string()).env("MILLPOND_INTERPOSE_ACCOUNT", &file);
            }
        }
    }
    if !keep_allocator {
        show_tensors(wish, &path, &mut command, err);
    }
    let status = run_to_end(command).map_err(|error| format!("{}: cannot be run: {error}", path.display()))?;
    let report = report::Report::read(&folder.0);
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exit(code),
        (None, Some(signal)) => Ended::Signal(signal),
        (None, None) => Ended::Exit(Status::BadInput as i32),
    };
    // If standard error is closed, the exit status still reports the result.
    let _ = match asked.text() {
        None => report.show(wish, err).and_then(|()| asked.show_rules(&report, err)),
        Some(file) => file.and_then(|mut file| {
            report.show(wish, &mut file)?;
            asked.show_rules(&report, &mut file)
        }),
    };
    if let Some(kept) = former.filter(Former::is_missed) {
        let _ = writeln!(err, "millpond: {} is as it was", kept.path.display());
    }
    let wrong = match wish {
        Wish::Check { require_calls: true, .. } if report.saw_nothing() => {
            Some("no CUDA call was seen, and --require-calls was given".to_owned())
        }
        _ => None,
    };
    let wrong = asked.write(&report, program, ended).err().or(wrong);
    if let Some(wrong) = &wrong {
        let _ = writeln!(err, "millpond: error: {wrong}");
    }
    Ok(match ended {
        Ended::Exit(0) if wrong.is_some() => Ended::Exit(Status::BadInput as i32),
        Ended::Exit(0) if report.has_findings() => Ended::Exit(Status::Found as i32),
        ended => ended,
    })
}

/// Sets PyTorch's allocator and prints a message about it.
fn show_tensors(wish: Wish<'_>, path: &Path, command: &mut Command, err: &mut dyn Write) {
    let done = if matches!(wish, Wish::Serve { .. }) { "served" } else { "seen" };
    // If standard error is closed, the program runs all the same.
    let _ = match pytorch::setting(path, |name| std::env::var(name).ok()) {
        Setting::Untouched => Ok(()),
        Setting::Set(value) => {
            command.envs(pytorch::VARIABLES.map(|name| (name, &value)));
            let variable = pytorch::VARIABLES[0];
            let so = format!("so that every tensor of PyTorch is {done}");
            writeln!(err, "millpond: {variable}={value} is set, {so} (--keep-allocator leaves it)")
        }
        Setting::Kept(backend) => {
            writeln!(err, "millpond: PyTorch keeps its `{backend}`: tensors are not {done}, only its segments are")
        }
    };
}

/// Runs the program and forwards SIGHUP and SIGTERM to it. A terminal sends the signals of its keys to both processes.
fn run_to_end(mut command: Command) -> io::Result<ExitStatus> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    let mut child = command.spawn()?;
    let (handle, pid) = (signals.handle(), Pid::from_child(&child));
    let forward = std::thread::spawn(move || {
        for signal in signals.forever() {
            let forwarded = match signal {
                SIGHUP => Signal::HUP,
                SIGTERM => Signal::TERM,
                _ => continue,
            };
            // Sending to a program that has already ended fails; that is fine.
            let _ = kill_process(pid, forwarded);
        }
    });
    let status = child.wait();
    handle.close();
    let _ = forward.join();
    status
}

/// Raises the signal that ended the program, without writing a second core file.
fn end_by(signal: i32) -> i32 {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    // Signals whose default action is not to terminate get here.
    128 + signal
}

/// The bytes of the accounting file of a limit: the preloaded library needs no more.
const ACCOUNT_BYTES: u64 = 4 << 20;

/// Makes the accounting file of a limit. Its blocks are reserved: the program's processes write to a mapping of it,
/// which must not fail later because the disk is full.
fn make_account(path: &Path) -> io::Result<()> {
    let file = fs::File::create_new(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, ACCOUNT_BYTES) {
        // Not every file system can reserve blocks without writing them.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => (&file).write_all(&vec![0; ACCOUNT_BYTES as usize]),
        other => Ok(other?),
    }
}

/// Returns the value for LD_PRELOAD: the library, then what the caller preloads.
fn preload(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|it| !it.is_empty()) {
        all.push(OsStr::new(":"));
        all.push(others);
    }
    all
}

/// Returns the absolute path of a file for `what`, because the program may change its working directory. Refuses a file
/// that is the program or one of its arguments.
fn fresh(output: &Path, what: &str, program: &Path, args: &[OsString]) -> Result<PathBuf, String> {
    let refuse = |error: io::Error| format!("{}: cannot be written: {}", output.display(), cause(&error));
    let path = std::path::absolute(output).map_err(refuse)?;
    if is_same(program, &path) || args.iter().any(|word| is_same(Path::new(word), &path)) {
        let reason = "cannot be written: it is the program, or one of its arguments\n  help: name another file";
        return Err(format!("{}: {reason}", output.display()));
    }
    // Opening a pipe without a reader would block forever.
    if let Some(other) = fs::metadata(&path).ok().and_then(|it| other_than_file(it.file_type())) {
        return Err(format!("{}: {other}: {what} is written to a file", output.display()));
    }
    let was_there = fs::symlink_metadata(&path).is_ok();
    let file = fs::File::options().write(true).create(true).truncate(false).open(&path).map_err(refuse)?;
    drop(file);
    if !was_there {
        fs::remove_file(&path).map_err(refuse)?;
    }
    Ok(path)
}

/// The file that was at the trace's path before. It is moved aside while the program runs, and restored if no trace was
/// written.
struct Former {
    path: PathBuf,
    aside: PathBuf,
}

impl Former {
    /// Moves the existing file aside.
    fn aside(path: &Path) -> Result<Option<Self>, String> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.before", std::process::id()));
        let aside = PathBuf::from(name);
        match fs::rename(path, &aside) {
            Ok(()) => Ok(Some(Former { path: path.to_owned(), aside })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{}: cannot be replaced: {}", path.display(), cause(&error))),
        }
    }

    /// Returns `true` if no trace was written.
    fn is_missed(&self) -> bool {
        fs::symlink_metadata(&self.path).is_err()
    }
}

impl Drop for Former {
    fn drop(&mut self) {
        // If the file can be neither moved nor removed, its name still says what it is.
        let _ = if self.is_missed() { fs::rename(&self.aside, &self.path) } else { fs::remove_file(&self.aside) };
    }
}

/// Returns the kind of file in words, or `None` for a regular file.
fn other_than_file(kind: fs::FileType) -> Option<&'static str> {
    match kind {
        _ if kind.is_file() => None,
        _ if kind.is_dir() => Some("a directory"),
        _ if kind.is_fifo() => Some("a pipe"),
        _ if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

/// A folder for reports, or for the account of a limit. It is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        // The program may change its working directory.
        let base = std::path::absolute(std::env::temp_dir()).map_err(|error| cause(&error).to_string())?;
        let name = |count: u32| base.join(format!("millpond-{}-{count}", std::process::id()));
        let made = (0..100).map(name).find(|path| fs::create_dir(path).is_ok());
        made.map(Folder).ok_or_else(|| format!("no folder can be made in {}", base.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A process that outlives the program may still write there, so removal may fail.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a count with its noun.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
