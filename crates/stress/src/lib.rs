//! Random programs of calls of `millpond`, all safe except imports. They run for a given time, with every byte and
//! every verdict checked. A program that fails is shrunk and printed.
//!
//! | file | contents |
//! |---|---|
//! | `settings` | the conditions that programs run in |
//! | `op`, `kind` | operations as data; the program of a seed |
//! | `maker` | turns operations as data into operations that the runner does with the library and the checker judges |
//! | `bytes` | the content of memory; kernels that check it and write it |
//! | `device` | the devices that programs run on, and the checks at their end |
//! | `ground` | the owners of bytes, the running kernels, and those that have run |
//! | `stage` | the state that the threads of a program share |
//! | `model` | checks with the litmus model: accepted operations and reuses are in order, refused ones are not |
//! | `replay` | a naive device that reads the calls that reached the driver |
//! | `text` | operations as lines of a litmus program |
//! | `steps` | a thread of a program, of either kind: its operations and its end |
//! | `program` | one program, from fresh devices to the last drop |
//! | `parent` | runs programs in processes, and shrinks those with findings |
//! | `preempt` | stops threads at random places |
//! | `exhaust` | every program of a few operations: by the runner, the checker, the litmus model, the naive device |
//! | `finding` | reports findings |
//!
//! Programs that share memory with other processes run without the runner, and know every verdict in advance:
//!
//! | file | contents |
//! |---|---|
//! | `sharing` | one thread of such a program, its operations and their expected results |
//! | `sharing/loans`, `sharing/ends`, `sharing/process` | memory that processes share, and the end of these processes |
//! | `sharing/importer`, `import` | the work of such a process; the one unsafe call |
//! | `sharing/oracle`, `sharing/life`, `sharing/party` | the order of operations; lives; other processes |
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
