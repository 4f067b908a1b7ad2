//! A program as a device may run it: tasks, what each needs before it, and what it does to memory.
//!
//! The model knows no clock and asks no verdict. Streams, events, host threads and launches become edges between tasks,
//! one by one and without cleverness; any order of the tasks that keeps the edges is a *schedule*: something that a
//! device may do. Memory is poison until its allocation runs and from the moment its free runs, because the allocator
//! gives it out again at once. What goes wrong in a schedule is *damage*: poison is touched, or two accesses run in
//! the other order than the program has them in.
//!
//! Nothing is refused here: what the checker would stop is done all the same. Rules that are about calls and not about
//! order (captures, destroyed things, leaks) have no schedule that shows them; which calls a capture forbids, and
//! what graphs with memory nodes cannot be, is said apart.
//!
//! | file | one law |
//! |---|---|
//! | `lower` | streams, events and processes become edges |
//! | `lower/memory` | names become lives |
//! | `lower/access` | grants to other devices become lives |
//! | `lower/graphs` | nodes, captures and launches become tasks |
//! | `modes` | which calls captures forbid |
//! | `copies` | what graphs with memory nodes are refused |
//! | `run` | what goes wrong in a schedule; all schedules of a small program |

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

/// The most tasks of a model.
pub const TASKS_MAX: usize = 4096;

/// Why a program has no model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TooMuch(pub String);

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TooMuch {}

/// What a task does to a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    /// The life, by its place in the model.
    pub life: usize,
    /// What is done to it.
    pub act: Act,
    /// To which of its bytes.
    pub part: Part,
}

impl Effect {
    /// Something that is done to all bytes.
    pub fn of_all(life: usize, act: Act) -> Self {
        Effect { life, act, part: Part::WHOLE }
    }
}

/// Something that a device or a host thread does at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Task {
    /// Tasks that have completed before this one begins; all of them earlier ones of the program.
    pub needs: Vec<usize>,
    /// What it does to memory, in this order.
    pub effects: Vec<Effect>,
    /// The program's line.
    pub line: u32,
    /// The line of the launch, for a node of a graph.
    pub launch: Option<u32>,
    /// Who does it: a stream's name, `host`, a node.
    pub who: String,
    /// Whether a schedule is shown without it: it is nothing that the program says.
    pub is_hidden: bool,
}

/// One life of an allocation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LifeOf {
    /// What the program calls it.
    pub name: String,
    /// Whether it is there from the beginning: made at once, or held by an import.
    pub is_there: bool,
    /// Lives that stand for other processes' holds on it: they end before it does.
    pub leases: Vec<usize>,
    /// The tasks that named it so far.
    users: Vec<usize>,
}

/// A program as a device may run it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Model {
    /// In the order in which the program submits them.
    pub tasks: Vec<Task>,
    /// All lives.
    pub lives: Vec<LifeOf>,
    /// Whether accesses in the other order are damage.
    pub races: bool,
}

impl Model {
    /// The model of a program.
    ///
    /// # Errors
    /// It has more than [`TASKS_MAX`] tasks, or updates an instance to other memory of its own.
    pub fn new(program: &Program) -> Result<Model, TooMuch> {
        lower::lower(program)
    }
}
