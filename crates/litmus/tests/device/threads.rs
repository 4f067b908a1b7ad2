//! Programs of several host threads of one process: each operation is done by a thread of its own, one after the other.
//!
//! Knows threads; what the operations do, `Run` does.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Scope;

use millpond_core::ids::HostId;
use millpond_core::op::{Op, StreamRole, What};

use super::{Cannot, Run};

type Answer = Result<(), Cannot>;

/// What a thread is to do.
enum Task<'a> {
    Step(&'a Op),
    /// It hears what another one told.
    Hear,
}

/// Does all operations, each on the thread that it is of; the main thread is the calling one.
pub(super) fn run(run: &mut Run, ops: &[Op]) -> Answer {
    let run = Mutex::new(run);
    std::thread::scope(|scope| {
        let mut threads: HashMap<HostId, (Sender<Task<'_>>, Receiver<Answer>)> = HashMap::new();
        let mut by = |host: HostId, task| match host {
            HostId(0) => perform(&run, task),
            host => {
                let (ask, answer) = threads.entry(host).or_insert_with(|| start(scope, &run));
                ask.send(task).expect("the thread runs");
                answer.recv().expect("the thread did not panic")
            }
        };
        ops.iter().try_for_each(|op| {
            by(op.host, Task::Step(op))?;
            match op.what {
                What::Tell { to } => by(to, Task::Hear),
                _ => Ok(()),
            }
        })
    })
}

/// Whether a program of several threads has a thread's default stream.
pub(super) fn share_a_default_stream(ops: &[Op]) -> bool {
    let is_own = |op: &Op| matches!(op.what, What::StreamCreate { role: StreamRole::PerThread, .. });
    ops.iter().any(is_own) && ops.iter().any(|op| op.host != HostId(0))
}

fn perform(run: &Mutex<&mut Run>, task: Task<'_>) -> Answer {
    let mut run = run.lock().unwrap_or_else(PoisonError::into_inner);
    match task {
        Task::Step(op) => run.step_marked(op),
        Task::Hear => {
            if let Some(told) = run.told.take() {
                run.device.learn(&told);
            }
            Ok(())
        }
    }
}

/// A thread that does what it is sent.
fn start<'s, 'e>(scope: &'s Scope<'s, 'e>, run: &'s Mutex<&mut Run>) -> (Sender<Task<'s>>, Receiver<Answer>) {
    let ((ask, asked), (answer, answered)) = (channel::<Task<'s>>(), channel());
    scope.spawn(move || {
        for task in asked {
            if answer.send(perform(run, task)).is_err() {
                return;
            }
        }
    });
    (ask, answered)
}
