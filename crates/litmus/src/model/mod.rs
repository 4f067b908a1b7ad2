//! A program as a device may run it: tasks, their dependencies, and their effects on memory.
//!
//! The model has no clock and no verdict. Streams, events, host threads and launches become edges between tasks, one by
//! one and in the simplest way. Any order of the tasks that respects the edges is a *schedule*, which a device may
//! execute. Memory is poison until its allocation runs and from the moment its free runs, because the allocator reuses
//! it at once. *Damage* is what goes wrong in a schedule: a task touches poison, or two accesses run in the opposite of
//! the program's order.
//!
//! Nothing is refused here: operations that the checker would stop are done. No schedule can show a violation of a rule
//! about calls instead of order (captures, destroyed things, leaks). `modes` and `copies` cover the calls that captures
//! forbid and the restrictions of graphs with memory nodes.
//!
//! | file | contents |
//! |---|---|
//! | `lower` | streams, events and processes become edges |
//! | `lower/memory` | names become lives |
//! | `lower/access` | grants to other devices become lives |
//! | `lower/graphs` | nodes, captures and launches become tasks |
//! | `modes` | the calls that captures forbid |
//! | `copies` | the operations that graphs with memory nodes are refused |
//! | `run` | the damage of a schedule; all schedules of a small program |

mod copies;
mod lower;
mod modes;
mod run;

use std::fmt;

use millpond_core::op::{Act, Part};

use crate::Program;

pub use copies::refused_copies;
pub use modes::forbidden_calls;
pub use run::{Damage, Harm, Schedules};

/// The largest number of tasks of a model.
pub const TASKS_MAX: usize = 4096;

/// The reason why a program has no model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TooMuch(pub String);

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TooMuch {}

/// The effect of a task on a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    /// The life, as an index in the model.
    pub life: usize,
    /// The kind of effect.
    pub act: Act,
    /// The affected bytes.
    pub part: Part,
}

impl Effect {
    /// Makes an effect on all bytes.
    pub fn of_all(life: usize, act: Act) -> Self {
        Effect { life, act, part: Part::WHOLE }
    }
}

/// An action of a device or a host thread at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Task {
    /// The tasks that complete before this one begins. All of them are earlier in the program.
    pub needs: Vec<usize>,
    /// The effects on memory, in this order.
    pub effects: Vec<Effect>,
    /// The program's line.
    pub line: u32,
    /// The line of the launch, for a node of a graph.
    pub launch: Option<u32>,
    /// The stream's name, `host` or the node that does it.
    pub who: String,
    /// `true` if a shown schedule omits the task, because no line of the program is it.
    pub is_hidden: bool,
}

/// One life of an allocation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LifeOf {
    /// Its name in the program.
    pub name: String,
    /// `true` if it exists from the beginning: immediate memory, an import's lease or a grant.
    pub is_there: bool,
    /// Lives that stand for other processes' leases on it. They end before it does.
    pub leases: Vec<usize>,
    /// The tasks that have used it so far.
    users: Vec<usize>,
}

/// A program as a device may run it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Model {
    /// The tasks, in the order in which the program submits them.
    pub tasks: Vec<Task>,
    /// All lives.
    pub lives: Vec<LifeOf>,
    /// `true` if accesses in the opposite order are damage.
    pub races: bool,
}

impl Model {
    /// Builds the model of a program.
    ///
    /// # Errors
    /// It has more than [`TASKS_MAX`] tasks, or updates an instance to other memory of its own.
    pub fn new(program: &Program) -> Result<Model, TooMuch> {
        lower::lower(program)
    }
}
