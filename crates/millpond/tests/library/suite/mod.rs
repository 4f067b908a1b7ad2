//! The library as its users see it: one module for each topic, one body for every device.

mod closing;
mod data;
mod devices;
mod exhaustion;
mod failing;
mod grants;
mod hosts;
mod marks;
mod misuse;
mod order;
mod parts;
mod pinned;
mod pinned_programs;
mod pointers;
mod pools;
mod programs;
mod reuse;
mod soundness;
mod stream_names;
mod stress;
mod times;
mod trim;
mod waiting;
