//! A child process that obeys commands, line by line: this test program again.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::BorrowedFd;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use millpond::share::{SharedPool, Ticket};
use millpond::{Buffer, Event, Result};
use millpond_core::share::{MemoryGrant, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, SocketType, shutdown, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::raw::{Raw, claim, one_use};
use super::{Side, copy_in, device, fill, gate, import, is_filled};
use crate::common::process;

const ROLE: &str = "MILLPOND_SHARE_CHILD";
/// The prefix of the child's answers, because the test program prints lines of its own.
const SAYS: &str = "child says: ";

/// The parent's side.
pub(crate) struct Child {
    process: std::process::Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Child {
    pub(crate) fn new() -> Child {
        Self::on("host")
    }

    /// Starts a child with a device of this kind.
    pub(crate) fn on(kind: &str) -> Child {
        Self::with(kind, &[])
    }

    /// As [`on`](Self::on), with settings.
    pub(crate) fn with(kind: &str, settings: &[(&str, &str)]) -> Child {
        Self::started_by(&[], kind, settings)
    }

    /// Starts a child by another program, with these words before its own.
    pub(crate) fn started_by(starter: &[&str], kind: &str, settings: &[(&str, &str)]) -> Child {
        let test = process::test("share::child::obeys");
        let mut words = starter.iter().map(OsStr::new).chain([test.get_program()]).chain(test.get_args());
        let mut command = Command::new(words.next().expect("there is one"));
        command.args(words).env(ROLE, kind);
        command.envs(settings.iter().copied());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
        let (input, output) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        Child { process, input, output: BufReader::new(output) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a command and waits for the answer.
    pub(crate) fn ask(&mut self, line: impl AsRef<str>) -> String {
        self.tell(&line);
        self.hear().unwrap_or_else(|| panic!("the child went at `{}`", line.as_ref()))
    }

    /// Sends a command that must succeed.
    #[track_caller]
    pub(crate) fn must(&mut self, line: impl AsRef<str>) -> String {
        let answer = self.ask(&line);
        assert!(!answer.starts_with("error"), "{}: {answer}", line.as_ref());
        answer
    }

    /// Sends a command without waiting. The child may have ended.
    pub(crate) fn tell(&mut self, line: impl AsRef<str>) {
        let _ = writeln!(self.input, "{}", line.as_ref());
        let _ = self.input.flush();
    }

    pub(crate) fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some((_, says)) = line.split_once(SAYS) {
                return Some(says.trim_end().to_owned());
            }
        }
    }

    /// Returns `true` if it says something within so many seconds and milliseconds.
    pub(crate) fn speaks_within(&self, seconds: i64, thousandths: i64) -> bool {
        let patience = Timespec { tv_sec: seconds, tv_nsec: thousandths * 1_000_000 };
        let mut files = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
        !self.output.buffer().is_empty() || poll(&mut files, Some(&patience)).is_ok_and(|count| count > 0)
    }

    /// Stops it, or lets it continue.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.id().to_string()]).status().expect("it runs");
        assert!(sent.success());
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("it is there");
        // It takes a moment until it has stopped.
        while signal == "-STOP" && !state().contains(") T ") {
            std::thread::yield_now();
        }
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it was a child");
    }

    /// Ends it regularly.
    pub(crate) fn end(mut self) {
        self.tell("end");
        let status = self.process.wait().expect("it was a child");
        assert!(status.success(), "the child ended with {status}");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Needed after a failed test, and without effect if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The objects of a child.
struct State {
    side: Side,
    buffers: HashMap<String, Buffer<u32>>,
    events: Vec<Event>,
    pools: Vec<SharedPool>,
    gates: Vec<mpsc::Sender<()>>,
    raws: Vec<(Raw, Option<MemoryGrant>)>,
    /// Files that are only open to use up descriptors.
    eaten: Vec<File>,
}

/// The child process. Does nothing if it was not started as one.
#[test]
fn obeys() {
    let Ok(kind) = std::env::var(ROLE) else { return };
    let side = Side::of(device(&kind));
    let (buffers, events, pools, gates, raws, eaten) = Default::default();
    let mut state = State { side, buffers, events, pools, gates, raws, eaten };
    for line in std::io::stdin().lines() {
        let line = line.expect("the parent writes text");
        let words: Vec<&str> = line.split(' ').collect();
        if words == ["end"] {
            break;
        }
        let answer = state.act(&words).unwrap_or_else(|error| format!("error: {error}").replace('\n', " | "));
        println!("{SAYS}{answer}");
    }
}

impl State {
    fn act(&mut self, words: &[&str]) -> Result<String> {
        let Side { device, pool, stream } = &self.side;
        let ticket = |text: &str| text.parse::<Ticket>();
        let done = || Ok("ok".to_owned());
        match *words {
            ["import", name, text] => {
                self.buffers.insert(name.into(), import(device, &ticket(text)?)?);
                done()
            }
            ["wait", text] => stream.wait(&device.import_event(&ticket(text)?)?).and_then(|()| done()),
            ["hold", text] => {
                self.events.push(device.import_event(&ticket(text)?)?);
                done()
            }
            ["pool", text] => {
                self.pools.push(device.import_pool(&ticket(text)?)?);
                done()
            }
            ["fill" | "check" | "free" | "export", name, ..] if !self.buffers.contains_key(name) => {
                Ok(format!("error: it has no {name}"))
            }
            ["fill", name, seed] => fill(stream, &self.buffers[name], number(seed)).and_then(|()| done()),
            ["copy", name, seed] => copy_in(stream, &self.buffers[name], number(seed)).and_then(|()| done()),
            ["check", name, seed] => Ok(match is_filled(stream, &self.buffers[name], number(seed))? {
                true => "right".into(),
                false => "wrong".into(),
            }),
            ["free", name] => {
                let buffer = self.buffers.remove(name).expect("it has it");
                stream.free(buffer)?;
                done()
            }
            ["drop", name] => {
                self.buffers.remove(name);
                done()
            }
            ["record"] => Ok(stream.record()?.export()?.to_string()),
            ["sync"] => stream.synchronize().and_then(|()| done()),
            ["alloc", name, len, seed] => {
                let buffer = stream.alloc(pool, number(len) as usize)?;
                fill(stream, &buffer, number(seed))?;
                self.buffers.insert(name.into(), buffer);
                done()
            }
            ["export", name] => Ok(self.buffers[name].export()?.to_string()),
            ["gate"] => {
                self.gates.push(gate(stream)?);
                done()
            }
            ["open"] => {
                self.gates.clear();
                done()
            }
            ["fail", call, after] => {
                fakecuda::Hooks::load().fail(call, number(after).into(), fakecuda::Code::UNKNOWN);
                done()
            }
            ["reset"] => {
                fakecuda::Hooks::load().reset();
                done()
            }
            ["raw" | "raw-storm" | "raw-release" | "raw-say" | "raw-fetch" | "raw-idle", ..] => Ok(self.act_raw(words)),
            ["limit" | "threads" | "eat" | "uneat" | "launches" | "sharing", ..] => self.act_limits(words),
            ["anyone"] => {
                device.set_peers(millpond::share::Peers::Anyone);
                done()
            }
            ["hang-up"] => Ok(hang_up().to_string()),
            ["leases"] => Ok(device.sharing().leases.to_string()),
            ["counts"] => {
                let sharing = device.sharing();
                Ok(format!("{} {} {}", sharing.imports, sharing.returning, sharing.imported_chunks))
            }
            _ => panic!("the parent said {words:?}"),
        }
    }
}

impl State {
    /// Commands about scarce files and costs.
    fn act_limits(&mut self, words: &[&str]) -> Result<String> {
        let Side { device, stream, .. } = &self.side;
        let done = || Ok("ok".to_owned());
        match *words {
            ["limit", files] => {
                let limit = Rlimit { current: Some(number(files).into()), ..getrlimit(Resource::Nofile) };
                setrlimit(Resource::Nofile, limit).expect("it is lower than before");
                done()
            }
            // At most so many threads; an administrator has no limit.
            ["threads", threads] => {
                let limit = Rlimit { current: Some(number(threads).into()), ..getrlimit(Resource::Nproc) };
                setrlimit(Resource::Nproc, limit).expect("it is lower than before");
                done()
            }
            ["eat"] => {
                self.eaten.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
                done()
            }
            ["uneat"] => {
                self.eaten.clear();
                done()
            }
            // The longest of some launches, in microseconds.
            ["launches", name, count] => {
                let mut longest = Duration::ZERO;
                for _ in 0..number(count) {
                    let begin = Instant::now();
                    stream.launch(self.buffers[name].read(), |_| ())?;
                    stream.synchronize()?;
                    longest = longest.max(begin.elapsed());
                }
                Ok(longest.as_micros().to_string())
            }
            ["sharing"] => {
                let sharing = device.sharing();
                Ok(format!("{} {} {}", sharing.leases, sharing.connections, sharing.foreign_chains))
            }
            _ => panic!("the parent said {words:?}"),
        }
    }

    /// Commands of an importer that breaks the rules.
    fn act_raw(&mut self, words: &[&str]) -> String {
        let ticket = |text: &str| text.parse::<Ticket>().expect("a ticket");
        let done = || "ok".to_owned();
        match *words {
            ["raw", text] => {
                let raw = Raw::connect(&ticket(text)).expect("somebody listens");
                let grant = raw.claim(&ticket(text));
                let device = grant.device;
                self.raws.push((raw, Some(grant)));
                format!("{device:x}")
            }
            ["raw-idle", text, count] => {
                let come = |_| Raw::connect(&ticket(text)).ok().map(|raw| (raw, None));
                let come: Vec<_> = (0..number(count)).filter_map(come).collect();
                self.raws.extend(come);
                done()
            }
            // For as long as it lives.
            ["raw-storm", kind, text, ref more @ ..] => {
                storm(kind, &ticket(text), &more.iter().map(|text| ticket(text)).collect::<Vec<_>>())
            }
            // Of the last claim, as the device that is named, or as the grant's device.
            ["raw-release", device] => {
                let (raw, grant) = self.raws.last().expect("it has claimed");
                let grant = grant.as_ref().expect("it has claimed");
                let uses = match device {
                    "granted" => grant.uses.clone(),
                    "untrue" => vec![one_use(1, 0, (1 << 60) + 1)],
                    "many" => (1..1024).map(|device| one_use(device, 0, 1)).collect(),
                    device => {
                        let device = u128::from_str_radix(device, 16).expect("a number");
                        (0..8).map(|chain| one_use(device, chain, 1 << 40)).collect()
                    }
                };
                let _ = raw.say(&Request::Release { lease: grant.lease, uses });
                done()
            }
            ["raw-say", word] => {
                let (raw, grant) = self.raws.last().expect("it has claimed");
                let lease = grant.as_ref().expect("it has claimed").lease;
                let _ = raw.say(&if word == "over" { Request::Over(lease) } else { Request::Known(lease) });
                done()
            }
            // Asks for files and does not read the answers. Returns how often that was possible.
            ["raw-fetch", count] => {
                let (raw, grant) = self.raws.last().expect("it has claimed");
                let chunk = grant.as_ref().expect("it has claimed").parts[0].chunk;
                let ask = || {
                    std::thread::sleep(Duration::from_millis(5));
                    raw.say(&Request::Fetch(vec![chunk; 64]))
                };
                (0..number(count)).take_while(|_| ask().is_ok()).count().to_string()
            }
            _ => panic!("the parent said {words:?}"),
        }
    }
}

/// Repeats the same wrong request.
fn storm(kind: &str, ticket: &Ticket, more: &[Ticket]) -> ! {
    println!("{SAYS}storm");
    let mut kept: Vec<Raw> = Vec::new();
    let mut more = more.iter();
    let mut round = 0u64;
    loop {
        round += 1;
        let Ok(raw) = Raw::connect(ticket) else { continue };
        match kind {
            "connect" => {}
            "idle" => {
                kept.push(raw);
                if kept.len() > 100 {
                    kept.clear();
                }
            }
            "garbage" => {
                let bytes: Vec<u8> = (0..round % 300).map(|at| ((at * round) >> 3) as u8).collect();
                while raw.send(&bytes, &[]).is_ok() {}
            }
            "talk" => while raw.say(&Request::Over(millpond_core::share::LeaseId(5))).is_ok() {},
            "claim" => while raw.ask(&claim(&Ticket { nonce: u128::from(round), ..*ticket })).is_some() {},
            // With a lease, until there are no more tickets.
            _ => {
                let Some(ticket) = more.next() else { continue };
                let grant = raw.claim(ticket);
                if kind == "fetch" {
                    while raw.say(&Request::Fetch(vec![grant.parts[0].chunk; 64])).is_ok() {}
                } else {
                    let _ = raw.say(&Request::Release { lease: grant.lease, uses: vec![one_use(1, 0, u64::MAX)] });
                }
                kept.push(raw);
            }
        }
    }
}

/// Shuts down all connections between exporters and importers. Returns their number.
fn hang_up() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").expect("it is there").flatten();
    let numbers: Vec<i32> = files.filter_map(|file| file.file_name().to_str()?.parse().ok()).collect();
    // SAFETY: nothing else runs here that closes them meanwhile; a number that is no descriptor gives an error.
    let files = numbers.into_iter().map(|number| unsafe { BorrowedFd::borrow_raw(number) });
    let is_one = |file: &BorrowedFd| sockopt::socket_type(file) == Ok(SocketType::SEQPACKET);
    files.filter(is_one).filter(|file| shutdown(file, Shutdown::Both).is_ok()).count()
}

fn number(text: &str) -> u32 {
    text.parse().expect("the parent says numbers")
}
