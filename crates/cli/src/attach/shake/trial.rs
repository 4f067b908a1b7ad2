//! One run of the program with delays: what it prints, how it ends, how long it takes.
//!
//! Runs with delays write to files, so that they cannot wait for a reader and their last lines can be shown. All runs
//! read nothing from standard input, because a second one would find it at its end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::super::report::of_processes;
use super::super::{Ended, FINDINGS, Folder, SUPPRESSIONS, preload, pytorch, tool};
use super::plan::{Delay, Points, listed};
use crate::refusal::cause;

/// The lines of a failing run that are shown.
const TAIL: usize = 20;
/// The most bytes of a run's output that are read for those lines.
const TAIL_BYTES: usize = 1 << 16;

/// The program, and how it is run.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub(super) path: PathBuf,
    /// As the user named it.
    pub(super) name: &'a OsString,
    pub(super) args: &'a [OsString],
    pub(super) library: PathBuf,
    /// Also put delays into captures.
    pub(super) graphs: bool,
    /// Keep the standard output of each run.
    pub(super) compare: bool,
}

/// The kind of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Without delays; its output is the user's.
    Plain,
    /// With delays, or quiet without any.
    Delayed,
    /// With the checker in place of delays.
    Checked,
}

/// How a run ended.
#[derive(Debug)]
pub(super) struct Trial {
    /// `None` if it was stopped because it took too long.
    pub(super) ended: Option<Ended>,
    pub(super) time: Duration,
    /// The standard output, if outputs are compared.
    pub(super) output: Vec<u8>,
    /// The last lines of what it printed.
    pub(super) tail: Vec<String>,
    /// The operations that it had.
    pub(super) points: Points,
    /// The delays that were put into its streams, and their sum in nanoseconds.
    pub(super) delays: [u64; 2],
    /// The lines of the reports of its processes, in the order in which each wrote them.
    pub(super) report: Vec<String>,
}

/// Why a run has no result.
#[derive(Debug)]
pub(super) enum Broken {
    /// A signal ends this command.
    Signal(i32),
    /// The program cannot be run.
    Refused(String),
}

impl Trial {
    /// Returns why a run has failed by itself. `limit` is the time that it had.
    pub(super) fn failure(&self, limit: Option<Duration>) -> Option<String> {
        match self.ended {
            Some(Ended::Exit(0)) => None,
            Some(Ended::Exit(status)) => Some(format!("exit status {status}")),
            Some(Ended::Signal(signal)) => Some(format!("signal {signal}")),
            None => Some(format!("it did not end in {:.0} s", limit.unwrap_or_default().as_secs_f64())),
        }
    }
}

impl Program<'_> {
    /// Runs the program.
    pub(super) fn run(&self, kind: Kind, delays: &[Delay], limit: Option<Duration>) -> Result<Trial, Broken> {
        let folder = Folder::new().map_err(Broken::Refused)?;
        let refuse = |error: io::Error| Broken::Refused(format!("{}: {}", folder.0.display(), cause(&error)));
        let list = folder.0.join("delays");
        fs::write(&list, listed(delays)).map_err(refuse)?;
        let mut command = self.command(kind, &folder.0, &list);
        let files = [folder.0.join("output"), folder.0.join("errors")];
        let is_plain = kind == Kind::Plain;
        if !is_plain {
            command.stdout(File::create(&files[0]).map_err(refuse)?);
            command.stderr(File::create(&files[1]).map_err(refuse)?);
            // So that what it has started ends with it if it is stopped.
            command.process_group(0);
        } else if self.compare {
            command.stdout(Stdio::piped());
        }
        let cannot = |error: io::Error| Broken::Refused(format!("{}: cannot be run: {error}", self.path.display()));
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM]).map_err(cannot)?;
        let start = Instant::now();
        let mut child = command.spawn().map_err(cannot)?;
        let passed_on = child.stdout.take().map(|output| thread::spawn(move || pass_on(output)));
        let (status, signal) = wait(&mut child, &mut signals, limit, !is_plain).map_err(cannot)?;
        let time = start.elapsed();
        signals.handle().close();
        let passed_on = passed_on.and_then(|thread| thread.join().ok()).unwrap_or_default();
        if let Some(signal) = signal {
            return Err(Broken::Signal(signal));
        }
        let output = match (is_plain, self.compare) {
            (true, _) => passed_on,
            (false, true) => fs::read(&files[0]).map_err(refuse)?,
            (false, false) => Vec::new(),
        };
        let mut trial = Trial {
            ended: status.map(ended),
            time,
            output,
            tail: files.iter().flat_map(|file| tail(file)).collect(),
            points: Points::default(),
            delays: [0; 2],
            report: Vec::new(),
        };
        trial.tail.drain(..trial.tail.len().saturating_sub(TAIL));
        trial.read(&folder.0);
        Ok(trial)
    }

    fn command(&self, kind: Kind, folder: &Path, list: &Path) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(self.name).args(self.args).stdin(Stdio::null());
        command.env("LD_PRELOAD", preload(&self.library)).env("MILLPOND_INTERPOSE_REPORT", folder);
        command.env("MILLPOND_INTERPOSE_SHAKE", list).env_remove("MILLPOND_INTERPOSE_SERVE");
        command.env("MILLPOND_INTERPOSE_GRAPHS", if self.graphs { "1" } else { "0" });
        command.env("MILLPOND_INTERPOSE", if kind == Kind::Checked { "check" } else { "off" });
        // Each launch would wait for the one before, and no delay would change anything.
        command.env_remove("CUDA_LAUNCH_BLOCKING");
        if std::env::var_os("CUDA_DEVICE_MAX_CONNECTIONS").is_none() {
            // By default streams share eight queues of the device, where one waits for another without need.
            command.env("CUDA_DEVICE_MAX_CONNECTIONS", "32");
        }
        if let (path, Some(_)) = tool::path() {
            command.env("PATH", path);
        }
        if kind == Kind::Checked {
            command.env("MILLPOND_INTERPOSE_RACES", "1").env("MILLPOND_INTERPOSE_STACKS", "0");
            command.env_remove(SUPPRESSIONS).env(FINDINGS, folder.join("findings"));
            if let pytorch::Setting::Set(value) = pytorch::setting(&self.path, |name| std::env::var(name).ok()) {
                command.envs(pytorch::VARIABLES.map(|name| (name, &value)));
            }
        }
        command
    }
}

impl Trial {
    /// Reads the reports of the program's processes.
    fn read(&mut self, folder: &Path) {
        for text in of_processes(folder) {
            for line in text.lines() {
                match line.split('\t').collect::<Vec<_>>()[..] {
                    ["points", stream, letters] => {
                        stream.parse().into_iter().for_each(|stream| self.points.add(stream, letters));
                    }
                    ["delays", count, sum] => {
                        for (all, more) in self.delays.iter_mut().zip([count, sum]) {
                            *all += more.parse().unwrap_or(0);
                        }
                    }
                    _ => self.report.push(line.to_owned()),
                }
            }
        }
    }
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exit(code),
        (None, signal) => Ended::Signal(signal.unwrap_or(0)),
    }
}

/// Passes the program's output on, and returns it.
fn pass_on(mut from: impl Read) -> Vec<u8> {
    let (mut all, mut part, mut out) = (Vec::new(), [0; 1 << 14], io::stdout());
    while let Ok(count @ 1..) = from.read(&mut part) {
        all.extend_from_slice(&part[..count]);
        // If standard output is closed, the program runs all the same.
        let _ = out.write_all(&part[..count]).and_then(|()| out.flush());
    }
    all
}

/// Waits for the program. Returns its status, `None` if it was stopped at the limit, and the signal that tells this
/// command to end. A terminal sends the signals of its keys to both, unless the program has a process group of its own
/// (`is_apart`).
fn wait(
    child: &mut Child,
    signals: &mut Signals,
    limit: Option<Duration>,
    is_apart: bool,
) -> io::Result<(Option<ExitStatus>, Option<i32>)> {
    let (start, pid) = (Instant::now(), Pid::from_child(child));
    let (mut ending, mut pause) = (None, Duration::from_micros(200));
    loop {
        if let Some(status) = child.try_wait()? {
            if is_apart {
                // Processes that it left would use the device beside the next run.
                let _ = kill_process_group(pid, Signal::KILL);
            }
            return Ok((Some(status), ending));
        }
        for signal in signals.pending() {
            ending = Some(signal);
            let signal = match signal {
                SIGHUP => Signal::HUP,
                SIGTERM => Signal::TERM,
                SIGINT => Signal::INT,
                _ => Signal::QUIT,
            };
            // Sending to a program that has already ended fails; that is fine.
            let _ = match signal {
                _ if is_apart => kill_process_group(pid, signal),
                Signal::HUP | Signal::TERM => kill_process(pid, signal),
                _ => Ok(()),
            };
        }
        if limit.is_some_and(|limit| start.elapsed() > limit) {
            // If the group is gone, the program is as well.
            let _ = if is_apart { kill_process_group(pid, Signal::KILL) } else { kill_process(pid, Signal::KILL) };
            child.wait()?;
            return Ok((None, ending));
        }
        thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(5));
    }
}

/// Returns the last lines of a file.
fn tail(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for a shell and its child, which are apart from this process.
    fn waited(words: &str, limit: Option<Duration>) -> (Option<ExitStatus>, Option<i32>) {
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", words]).process_group(0).spawn().unwrap();
        wait(&mut child, &mut Signals::new([SIGHUP]).unwrap(), limit, true).unwrap()
    }

    #[test]
    fn a_program_that_does_not_end_is_stopped_with_what_it_has_started() {
        let start = Instant::now();
        let (status, signal) = waited("sleep 60 & sleep 60; exit 0", Some(Duration::from_millis(50)));
        assert!(status.is_none() && signal.is_none() && start.elapsed() < Duration::from_secs(30));
        let (status, _) = waited("exit 3", Some(Duration::from_secs(30)));
        assert_eq!(status.map(ended).map(Ended::parts), Some((Some(3), None)));
    }

    #[test]
    fn the_last_lines_of_a_file_are_its_tail() {
        let path = std::env::temp_dir().join(format!("millpond-tail-{}", std::process::id()));
        let text: String = (0..100).map(|line| format!("line {line}\n")).collect();
        fs::write(&path, text).unwrap();
        let lines = tail(&path);
        fs::remove_file(&path).unwrap();
        assert_eq!((lines.len(), lines[0].as_str(), lines[19].as_str()), (20, "line 80", "line 99"));
        assert!(tail(&path).is_empty());
    }
}
