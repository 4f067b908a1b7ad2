//! Random programs of calls of `millpond`, safe ones but for imports, run for as long as is asked for, with every byte
//! and every verdict checked; what fails is made small and printed.
//!
//! | file | what |
//! |---|---|
//! | `settings` | in what surroundings programs run |
//! | `op`, `kind` | operations as data; a program of a seed |
//! | `maker` | operations as data become operations that the runner does on the library, and the checker judges |
//! | `bytes` | what is in memory; kernels that look at it and write it |
//! | `ground` | who has which bytes, which kernels run, which have run |
//! | `stage` | what the threads of a program share |
//! | `model` | what was accepted is in order by the litmus model's tasks, what was refused is not |
//! | `replay` | a naive device reads what reached the driver |
//! | `text` | operations as lines of a litmus program |
//! | `program` | one program, from fresh devices to the last drop |
//! | `parent` | processes that run programs; what they find is made small |
//! | `preempt` | threads are stopped wherever they are |
//! | `exhaust` | every program of a few operations: by the runner, the checker, the litmus model and the naive device |
//! | `finding` | what becomes of a finding |
//!
//! With `MILLPOND_STRESS_WORLD=runner` programs run so, but for those that lend memory to other processes. Without it
//! the older world runs them, which knows every verdict before:
//!
//! | file | what |
//! |---|---|
//! | `world`, `thread` | what the threads of such a program share, and have for themselves; what the operations do |
//! | `process`, `importer`, `import` | other processes; what such a one does; the one call that is not safe |
//! | `oracle`, `life`, `marks`, `party`, `work` | the order of what was done; lives; other processes; kernels |
#![deny(unsafe_code)]

mod bytes;
mod dawdle;
pub mod exhaust;
pub mod finding;
mod ground;
mod import;
pub mod importer;
pub mod kind;
pub mod life;
mod maker;
mod marks;
mod model;
pub mod op;
pub mod oracle;
pub mod parent;
pub mod party;
pub mod preempt;
mod process;
pub mod program;
pub mod random;
mod replay;
pub mod settings;
mod stage;
mod text;
mod thread;
mod work;
mod world;
