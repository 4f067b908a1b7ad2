//! Loops of two processes: one exports memory, the other imports, uses and returns it. The other process is this test
//! program again.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use millpond::share::{SharedPool, Ticket};
use millpond::{Buffer, Device, HostConfig, Pool, PoolConfig, Result, Stream};

use crate::{LEN, Round, heard_of};

const OTHER: &str = "MILLPOND_STEADY_OTHER";
/// The prefix of each answer, because the test program prints lines of its own.
const ANSWER: &str = "answer: ";

/// The other process, as the test sees it.
struct Other {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn new() -> Other {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["processes::other", "--exact", "--nocapture"]).env(OTHER, "1");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let (input, output) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        Other { process, input, output: BufReader::new(output) }
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("it reads");
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("it writes") > 0, "it is gone");
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return answer.trim_end().to_owned();
            }
        }
    }
}

impl Drop for Other {
    /// Kills it, whatever it holds.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The other process, replaced after `of_each` rounds.
struct Others {
    now: Other,
    rounds: usize,
    of_each: usize,
}

impl Others {
    fn new(of_each: usize) -> Self {
        Self { now: Other::new(), rounds: 0, of_each }
    }

    /// Returns the process of this round, and `true` if it is a new one.
    fn next(&mut self) -> (&mut Other, bool) {
        self.rounds += 1;
        let is_new = self.rounds.is_multiple_of(self.of_each);
        if is_new {
            self.now = Other::new();
        }
        (&mut self.now, is_new || self.rounds == 1)
    }
}

fn shareable(device: &Device) -> Pool {
    device.pool(PoolConfig::default().shareable(true)).expect("a shareable pool")
}

fn ticket(text: &str) -> Ticket {
    text.parse().expect("a ticket")
}

/// Waits for the event of a ticket.
fn wait(device: &Device, stream: &Stream, event: &str) -> Result<()> {
    stream.wait(&device.import_event(&ticket(event))?)
}

/// Records an event on the stream and exports it as a ticket.
fn event(stream: &Stream) -> Result<String> {
    Ok(stream.record()?.export()?.to_string())
}

/// Each round exports memory and an event, waits for an event of the importer, and drops the memory while the importer
/// still holds it, also if the importer is killed.
pub(crate) fn exports(device: Device, stream: Stream, of_each: usize) -> Round {
    let (pool, mut others) = (shareable(&device), Others::new(of_each));
    Box::new(move || {
        let (other, _) = others.next();
        let x = stream.alloc_zeroed::<u8>(&pool, LEN)?;
        let over = other.ask(&format!("use {} {}", x.export()?, event(&stream)?));
        wait(&device, &stream, &over)?;
        drop(x);
        Ok(())
    })
}

/// As [`exports`], with memory of a pool that the importer has. The importer frees it, and then the exporter.
pub(crate) fn exports_of_a_pool(device: Device, stream: Stream, of_each: usize) -> Round {
    let (pool, mut others) = (shareable(&device), Others::new(of_each));
    Box::new(move || {
        let (other, is_new) = others.next();
        if is_new {
            other.ask(&format!("pool {}", pool.export()?));
        }
        let x = stream.alloc_zeroed::<u8>(&pool, LEN)?;
        let over = other.ask(&format!("use {} {}", x.export()?, event(&stream)?));
        wait(&device, &stream, &over)?;
        Ok(stream.free(x)?)
    })
}

/// Exports tickets that nobody uses.
pub(crate) fn tickets(device: Device, stream: Stream) -> Round {
    let pool = shareable(&device);
    Box::new(move || {
        let x = stream.alloc_zeroed::<u8>(&pool, LEN)?;
        let (memory, event) = (x.export()?, stream.record()?.export()?);
        stream.free(x)?;
        assert!(device.revoke(&event));
        let _ = device.revoke(&memory);
        stream.synchronize()
    })
}

/// Each round imports memory and an event, and exports an event.
pub(crate) fn imports(device: Device, stream: Stream, of_each: usize) -> Round {
    let mut others = Others::new(of_each);
    Box::new(move || {
        let (other, _) = others.next();
        let answer = other.ask("make");
        let (memory, made) = answer.split_once(' ').expect("two tickets");
        // SAFETY: the other process uses it after the event that it gets.
        let x = unsafe { device.import::<u8>(&ticket(memory)) }?;
        wait(&device, &stream, made)?;
        heard_of(&stream, &x)?;
        let over = event(&stream)?;
        drop(x);
        other.ask(&format!("end {over}"));
        Ok(())
    })
}

/// The objects of the other process.
struct State {
    device: Device,
    stream: Stream,
    pool: Pool,
    shared: Option<SharedPool>,
    used: Option<Buffer<u8>>,
    made: Option<Buffer<u8>>,
}

impl State {
    fn answer(&mut self, words: &[&str]) -> Result<String> {
        match *words {
            ["pool", pool] => {
                self.shared = Some(self.device.import_pool(&ticket(pool))?);
                Ok("ok".to_owned())
            }
            ["use", memory, made] => {
                let memory = &ticket(memory);
                let x = match &self.shared {
                    // SAFETY: as below.
                    Some(pool) => unsafe { pool.import(memory) },
                    // SAFETY: the exporter uses it after the event of the answer.
                    None => unsafe { self.device.import(memory) },
                }?;
                wait(&self.device, &self.stream, made)?;
                self.stream.launch(x.write(), |x| x[0] = 1)?;
                match &self.shared {
                    Some(_) => self.stream.free(x)?,
                    None => self.used = Some(x),
                }
                event(&self.stream)
            }
            ["make"] => {
                let x = self.stream.alloc_zeroed::<u8>(&self.pool, LEN)?;
                let tickets = format!("{} {}", x.export()?, event(&self.stream)?);
                self.made = Some(x);
                Ok(tickets)
            }
            ["end", over] => {
                wait(&self.device, &self.stream, over)?;
                self.made = None;
                Ok("ok".to_owned())
            }
            _ => panic!("asked {words:?}"),
        }
    }
}

/// The other process. Does nothing if it was not started as one.
#[test]
fn other() {
    if std::env::var_os(OTHER).is_none() {
        return;
    }
    let device = Device::host(HostConfig::default()).expect("a device");
    let (stream, pool) = (device.stream().expect("a stream"), shareable(&device));
    let mut state = State { device, stream, pool, shared: None, used: None, made: None };
    for line in std::io::stdin().lines() {
        let line = line.expect("it is text");
        let answer = state.answer(&line.split(' ').collect::<Vec<_>>()).expect("it is right");
        println!("{ANSWER}{answer}");
    }
}
