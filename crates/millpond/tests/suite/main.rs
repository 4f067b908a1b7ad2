//! The library as its users see it: one topic a module, one body for every device.

#[path = "../common/mod.rs"]
mod common;

mod data;
mod devices;
mod exhaustion;
mod failing;
mod grants;
mod hosts;
mod marks;
mod misuse;
mod order;
mod pointers;
mod pools;
mod programs;
mod reuse;
mod soundness;
mod stress;
mod trim;
