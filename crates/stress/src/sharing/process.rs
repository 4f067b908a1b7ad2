//! Importers as the program has them: processes to talk to. They are used for one program after the other, unless
//! they are killed: to start one takes longer than all the operations of a program.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use crate::finding::{finding, lock};

/// Those that no program uses.
static IDLE: Mutex<Vec<Process>> = Mutex::new(Vec::new());

/// One process. It ends when its input does, which is at the end of this process at the latest.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// One that has nothing.
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

    /// For another program: it has nothing any more.
    pub(super) fn put(self) {
        lock(&IDLE).push(self);
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Says a line. That it is gone is seen when it does not answer.
    pub(super) fn tell(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    /// The next answer.
    pub(super) fn answer(&mut self) -> String {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(count) if count > 0 => line.trim_end().to_owned(),
            _ => finding(&format!("an importer ended by itself: {:?}", self.child.wait())),
        }
    }

    /// Ends it where it stands.
    pub(super) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Talks to it no more, and sees how it ends.
    pub(super) fn hang_up(mut self) {
        drop(self.input.take());
        // What it says still is not lost on it.
        let _ = std::io::copy(&mut self.output, &mut std::io::sink());
        match self.child.wait() {
            Ok(status) if status.success() => {}
            other => finding(&format!("an importer that was left alone ended with {other:?}")),
        }
    }
}
