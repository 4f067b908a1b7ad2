//! Random programs of calls of `millpond`, safe ones but for imports, run for as long as is asked for, with every byte
//! and every verdict checked; what fails is made small and printed.
//!
//! | file | one law |
//! |---|---|
//! | `settings` | in what surroundings programs run |
//! | `op` | operations as data; a program of a seed |
//! | `oracle` | what is known beside the library; the naive order is `millpond-reach` |
//! | `world`, `thread` | what the threads of a program share, and have for themselves |
//! | `memory`, `order`, `things`, `graphs`, `event_nodes`, `execs` | what the operations do |
//! | `life` | what is known of one life of a buffer |
//! | `sharing`, `sharing_ends`, `process` | memory lent to other processes and by them; how those end |
//! | `importer`, `import` | what such a process does; the one call that is not safe |
//! | `parts` | parts of buffers, used by several streams at once |
//! | `work` | what kernels do |
//! | `preempt` | threads are stopped wherever they are |
//! | `program` | one program, from fresh devices to the last drop |
//! | `parent` | processes that run programs; what they find is made small |
//! | `exhaust` | every program of a few operations: by the runner, the checker, the litmus model and a naive device |
//! | `finding` | what becomes of a finding |
#![deny(unsafe_code)]

mod dawdle;
pub mod exhaust;
pub mod finding;
mod import;
pub mod importer;
pub mod kind;
pub mod life;
mod marks;
pub mod op;
pub mod oracle;
pub mod parent;
pub mod party;
pub mod preempt;
mod process;
pub mod program;
pub mod random;
pub mod settings;
mod thread;
mod work;
mod world;
