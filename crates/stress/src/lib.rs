//! Random programs of safe calls of `millpond`, run for as long as it is told, with every byte and every verdict
//! checked; what fails is made small and printed.
//!
//! | file | one law |
//! |---|---|
//! | `settings` | in what surroundings programs run |
//! | `op` | operations as data; a program of a seed |
//! | `clock`, `oracle` | the naive order, and what is known beside the library |
//! | `world`, `thread` | what the threads of a program share, and have for themselves |
//! | `memory`, `order`, `things`, `graphs`, `execs` | what the operations do |
//! | `work` | what kernels do |
//! | `program` | one program, from fresh devices to the last drop |
//! | `parent` | processes that run programs; what they find is made small |
//! | `exhaust` | every program of a few operations, against a naive device |
//! | `finding` | what becomes of a finding |
#![forbid(unsafe_code)]

pub mod clock;
mod execs;
pub mod exhaust;
pub mod finding;
mod graphs;
mod memory;
pub mod op;
pub mod oracle;
mod order;
pub mod parent;
pub mod program;
pub mod random;
pub mod settings;
mod things;
mod thread;
mod work;
mod world;
