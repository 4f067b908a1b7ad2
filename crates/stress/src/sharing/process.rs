//! The program's side of importers: processes that receive commands. They are reused by later programs unless they are
//! killed, because starting one takes longer than all operations of a program.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use crate::finding::{finding, lock};

/// The processes that no program uses.
static IDLE: Mutex<Vec<Process>> = Mutex::new(Vec::new());

/// A process. It ends when its input does, at the latest at the end of this process.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Returns a process without objects.
    pub(super) fn take() -> Self {
        let idle = lock(&IDLE).pop();
        idle.unwrap_or_else(|| {
            let program = std::env::current_exe().expect("a program knows where it is");
            let mut command = Command::new(program);
            command.arg("importer").stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().expect("a process can be started");
            let (input, output) = (child.stdin.take(), child.stdout.take().expect("piped"));
            Self { child, input, output: BufReader::new(output) }
        })
    }

    /// Makes the process available to other programs. It must have no objects.
    pub(super) fn put(self) {
        lock(&IDLE).push(self);
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line. If the process is gone, it does not answer, and that is noticed then.
    pub(super) fn tell(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    /// Reads the next answer.
    pub(super) fn answer(&mut self) -> String {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(count) if count > 0 => line.trim_end().to_owned(),
            _ => finding(&format!("an importer ended by itself: {:?}", self.child.wait())),
        }
    }

    /// Kills it.
    pub(super) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends nothing more, and checks how it ends.
    pub(super) fn hang_up(mut self) {
        drop(self.input.take());
        // Read its remaining output, so that it is not blocked.
        let _ = std::io::copy(&mut self.output, &mut std::io::sink());
        match self.child.wait() {
            Ok(status) if status.success() => {}
            other => finding(&format!("an importer that was left alone ended with {other:?}")),
        }
    }
}
