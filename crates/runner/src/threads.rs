//! Programs with several host threads in one process: each operation runs on its host thread, one after the other.
//!
//! This module handles the threads; `Run` runs the operations.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Scope;

use millpond_core::ids::HostId;
use millpond_core::op::{Op, StreamRole, What};

use crate::{Cannot, Run};

type Answer = Result<(), Cannot>;

/// Runs all operations, each on its host thread. The main thread is the calling one.
pub(crate) fn run(run: &mut Run, ops: &[Op]) -> Answer {
    let run = Mutex::new(run);
    std::thread::scope(|scope| {
        let mut threads: HashMap<HostId, (Sender<&Op>, Receiver<Answer>)> = HashMap::new();
        ops.iter().try_for_each(|op| match op.host {
            HostId(0) => perform(&run, op),
            host => {
                let (ask, answer) = threads.entry(host).or_insert_with(|| start(scope, &run));
                ask.send(op).expect("the thread runs");
                answer.recv().expect("the thread did not panic")
            }
        })
    })
}

/// Returns `true` if a program of several threads has a thread's default stream.
pub(crate) fn share_a_default_stream(ops: &[Op]) -> bool {
    let is_own = |op: &Op| matches!(op.what, What::StreamCreate { role: StreamRole::PerThread, .. });
    ops.iter().any(is_own) && ops.iter().any(|op| op.host != HostId(0))
}

fn perform(run: &Mutex<&mut Run>, op: &Op) -> Answer {
    run.lock().unwrap_or_else(PoisonError::into_inner).step_marked(op)
}

/// Starts a thread that runs the operations it is sent.
fn start<'s, 'e>(scope: &'s Scope<'s, 'e>, run: &'s Mutex<&mut Run>) -> (Sender<&'s Op>, Receiver<Answer>) {
    let ((ask, asked), (answer, answered)) = (channel::<&Op>(), channel());
    scope.spawn(move || {
        for op in asked {
            if answer.send(perform(run, op)).is_err() {
                return;
            }
        }
    });
    (ask, answered)
}
