//! A process of its own that does what it is told, line by line: this test program once more.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::BorrowedFd;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;

use millpond::{Buffer, Event, Result, SharedPool, Ticket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, SocketType, shutdown, sockopt};

use crate::{Side, copy_in, device, fill, gate, import, is_filled};

const ROLE: &str = "MILLPOND_SHARE_CHILD";
/// Before what the child says: the test program writes lines of its own.
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

    /// One with a device of this kind.
    pub(crate) fn on(kind: &str) -> Child {
        Self::with(kind, &[])
    }

    /// As [`on`](Self::on), with settings.
    pub(crate) fn with(kind: &str, settings: &[(&str, &str)]) -> Child {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["child::obeys", "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, kind);
        command.envs(settings.iter().copied());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
        let (input, output) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        Child { process, input, output: BufReader::new(output) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Tells it something, and hears what came of it.
    pub(crate) fn ask(&mut self, line: impl AsRef<str>) -> String {
        self.tell(&line);
        self.hear().unwrap_or_else(|| panic!("the child went at `{}`", line.as_ref()))
    }

    /// Tells it something that must succeed.
    #[track_caller]
    pub(crate) fn must(&mut self, line: impl AsRef<str>) -> String {
        let answer = self.ask(&line);
        assert!(!answer.starts_with("error"), "{}: {answer}", line.as_ref());
        answer
    }

    /// Tells it something without waiting; it may be gone.
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

    /// Whether it says something within so many seconds, and thousandths of one.
    pub(crate) fn speaks_within(&self, seconds: i64, thousandths: i64) -> bool {
        let patience = Timespec { tv_sec: seconds, tv_nsec: thousandths * 1_000_000 };
        let mut files = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
        !self.output.buffer().is_empty() || poll(&mut files, Some(&patience)).is_ok_and(|count| count > 0)
    }

    /// Stops it, or lets it go on.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.id().to_string()]).status().expect("it runs");
        assert!(sent.success());
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it was a child");
    }

    /// Ends it in good order.
    pub(crate) fn end(mut self) {
        self.tell("end");
        let status = self.process.wait().expect("it was a child");
        assert!(status.success(), "the child ended with {status}");
    }
}

/// What a child has.
struct State {
    side: Side,
    buffers: HashMap<String, Buffer<u32>>,
    events: Vec<Event>,
    pools: Vec<SharedPool>,
    gates: Vec<mpsc::Sender<()>>,
}

/// The child itself; nothing where nobody asked for one.
#[test]
fn obeys() {
    let Ok(kind) = std::env::var(ROLE) else { return };
    let side = Side::of(device(&kind));
    let mut state = State { side, buffers: HashMap::new(), events: Vec::new(), pools: Vec::new(), gates: Vec::new() };
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

/// Shuts all connections between exporters and importers down: how many.
fn hang_up() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").expect("it is there").flatten();
    let numbers: Vec<i32> = files.filter_map(|file| file.file_name().to_str()?.parse().ok()).collect();
    // SAFETY: nothing else runs here that closes them meanwhile; a number that is none is answered as such.
    let files = numbers.into_iter().map(|number| unsafe { BorrowedFd::borrow_raw(number) });
    let is_one = |file: &BorrowedFd| sockopt::socket_type(file) == Ok(SocketType::SEQPACKET);
    files.filter(is_one).filter(|file| shutdown(file, Shutdown::Both).is_ok()).count()
}

fn number(text: &str) -> u32 {
    text.parse().expect("the parent says numbers")
}
