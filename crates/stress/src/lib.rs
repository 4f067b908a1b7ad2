//! Random programs of calls of `millpond`, safe ones but for imports, run for as long as is asked for, with every byte
//! and every verdict checked; what fails is made small and printed.
//!
//! | file | what |
//! |---|---|
//! | `settings` | in what surroundings programs run |
//! | `op`, `kind` | operations as data; a program of a seed |
//! | `maker` | operations as data become operations that the runner does on the library, and the checker judges |
//! | `bytes` | what is in memory; kernels that look at it and write it |
//! | `device` | the devices that programs run on, and how they end |
//! | `ground` | who has which bytes, which kernels run, which have run |
//! | `stage` | what the threads of a program share |
//! | `model` | by the litmus model: what was accepted is in order, what was refused is not, memory serves in order |
//! | `replay` | a naive device reads what reached the driver |
//! | `text` | operations as lines of a litmus program |
//! | `steps` | a thread of a program, of either kind: operations one by one, and an end |
//! | `program` | one program, from fresh devices to the last drop |
//! | `parent` | processes that run programs; what they find is made small |
//! | `preempt` | threads are stopped wherever they are |
//! | `exhaust` | every program of a few operations: by the runner, the checker, the litmus model and the naive device |
//! | `finding` | what becomes of a finding |
//!
//! Programs that lend memory to other processes are done without the runner, and know every verdict before:
//!
//! | file | what |
//! |---|---|
//! | `sharing` | one thread of such a program, its operations, what they come to |
//! | `sharing/loans`, `sharing/ends`, `sharing/process` | memory lent to other processes and by them; how those end |
//! | `sharing/importer`, `import` | what such a process does; the one call that is not safe |
//! | `sharing/oracle`, `sharing/life`, `sharing/party` | the order of what was done; lives; other processes |
#![deny(unsafe_code)]

mod bytes;
mod dawdle;
mod device;
pub mod exhaust;
pub mod finding;
mod ground;
mod import;
pub mod kind;
mod maker;
mod model;
pub mod op;
pub mod parent;
pub mod preempt;
pub mod program;
pub mod random;
mod replay;
pub mod settings;
pub mod sharing;
mod stage;
mod steps;
mod text;
