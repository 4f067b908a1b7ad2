//! Events that pass between processes. Another process, this test program again, opens them or makes them.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;

use millpond_driver::{CudaDriver, Driver, DriverError, EventHandle, RawEvent, RawStream};

use crate::{Wishes, driver, finish, run, stream};

const ROLE: &str = "MILLPOND_DRIVER_CHILD";
const SAYS: &str = "child says: ";

struct Child {
    process: std::process::Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Child {
    fn new() -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["ipc::obeys", "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, "1");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Child { process, input, output }
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        loop {
            answer.clear();
            assert!(self.output.read_line(&mut answer).unwrap() > 0, "the child went at `{line}`");
            if let Some((_, says)) = answer.split_once(SAYS) {
                return says.trim_end().to_owned();
            }
        }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn end(mut self) {
        writeln!(self.input, "end").unwrap();
        assert!(self.process.wait().unwrap().success());
    }
}

fn text(name: &EventHandle) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn name(text: &str) -> EventHandle {
    std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
}

/// The child process. Does nothing if it was not started as one.
#[test]
fn obeys() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let driver = driver();
    let (mut events, mut gates): (Vec<RawEvent>, Vec<mpsc::Sender<()>>) = Default::default();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match *words {
            ["end"] => break,
            ["open", text] => driver.import_event(&name(text)).map(|event| events.push(event)).map(|()| "ok".into()),
            ["over"] => driver.is_over(events[0]).map(|is_over| is_over.to_string()),
            ["block"] => {
                waits(&driver, events[0]);
                Ok("past".into())
            }
            ["forget"] => {
                driver.forget(events.remove(0));
                Ok("ok".into())
            }
            ["export"] => {
                let (stream, (gate, made)) = (stream(&driver), gated(&driver));
                driver.wait(stream, made).unwrap();
                gates.push(gate);
                driver.export_event(stream).map(|(_, name)| text(&name))
            }
            _ => panic!("the parent said {words:?}"),
        };
        println!("{SAYS}{}", answer.unwrap_or_else(|error: DriverError| format!("error: {error}")));
    }
}

/// Returns an event that completes when the gate is opened.
fn gated(driver: &CudaDriver) -> (mpsc::Sender<()>, RawEvent) {
    let (stream, (go, gate)) = (stream(driver), mpsc::channel::<()>());
    run(driver, stream, move || gate.recv().unwrap_or_default());
    (go, driver.record(stream).unwrap())
}

/// Makes a stream wait for an event, and the host for the stream.
fn waits(driver: &CudaDriver, event: RawEvent) {
    let stream = stream(driver);
    driver.wait(stream, event).unwrap();
    finish(driver, stream);
}

fn exported(driver: &CudaDriver) -> (mpsc::Sender<()>, RawStream, RawEvent, EventHandle) {
    let (go, before) = gated(driver);
    let stream = stream(driver);
    driver.wait(stream, before).unwrap();
    let (event, name) = driver.export_event(stream).unwrap();
    (go, stream, event, name)
}

#[test]
fn another_process_waits_for_it() {
    let driver = driver();
    let (go, stream, event, name) = exported(&driver);
    let mut children = [Child::new(), Child::new()];
    for child in &mut children {
        assert_eq!(child.ask(&format!("open {}", text(&name))), "ok");
        assert_eq!(child.ask("over"), "false");
    }
    go.send(()).unwrap();
    for mut child in children {
        assert_eq!((child.ask("block"), child.ask("over")), ("past".into(), "true".into()));
        assert_eq!(child.ask("forget"), "ok");
        child.end();
    }
    driver.forget(event);
    finish(&driver, stream);
}

/// The maker must forget it last. `fakecuda` notices a maker that does not.
#[test]
fn one_that_is_destroyed_while_open_is_noticed() {
    let driver = driver();
    let (go, stream, event, name) = exported(&driver);
    let mut child = Child::new();
    assert_eq!(child.ask(&format!("open {}", text(&name))), "ok");
    go.send(()).unwrap();
    driver.forget(event);
    assert!(matches!(driver.record(stream), Err(DriverError::Lost { .. })));
    child.end();
}

#[test]
fn names_of_processes_that_are_gone_are_refused() {
    let mut child = Child::new();
    let gone = name(&child.ask("export"));
    child.kill();
    assert!(matches!(driver().import_event(&gone), Err(DriverError::Failed { call: "import_event", .. })));
}

/// Every call that takes part returns an error code: an error, and the call succeeds right after.
#[test]
fn every_call_can_be_refused() {
    let (driver, wishes) = (driver(), Wishes::new());
    let stream = stream(&driver);
    for (call, code) in
        [("cuEventCreate", 2), ("cuEventRecord", 7777), ("cuIpcGetEventHandle", 801), ("cuIpcGetEventHandle", 205)]
    {
        wishes.fail(call, code);
        let refused = driver.export_event(stream).map(drop).unwrap_err().to_string();
        assert!(refused.starts_with("export_event: ") && refused.contains(&code.to_string()), "{call}: {refused}");
        let (event, _) = driver.export_event(stream).unwrap();
        driver.block_on(event).unwrap();
        driver.forget(event);
    }
    let mut child = Child::new();
    let theirs = name(&child.ask("export"));
    wishes.fail("cuIpcOpenEventHandle", 801);
    let refused = driver.import_event(&theirs).unwrap_err().to_string();
    assert!(refused.starts_with("import_event: CUDA_ERROR_NOT_SUPPORTED"), "{refused}");
    let event = driver.import_event(&theirs).unwrap();
    driver.forget(event);
    child.kill();
}

#[test]
fn a_driver_without_the_functions_refuses() {
    for function in ["cuIpcGetEventHandle", "cuIpcOpenEventHandle"] {
        let wishes = Wishes::new();
        wishes.0.hide(function);
        let driver = driver();
        let refused = driver.export_event(stream(&driver)).map(drop).unwrap_err().to_string();
        assert_eq!(refused, "export_event: this device has no events for other processes");
        assert!(driver.import_event(&[0; 64]).is_err());
        finish(&driver, stream(&driver));
    }
}
