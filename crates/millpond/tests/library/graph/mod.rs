//! Graphs that own memory, on the host and on CUDA: ways, captures, event nodes, memory, random programs, threads,
//! failing drivers; the error of each misuse, and what is allowed beyond CUDA.
//!
//! `MILLPOND_TEST_DEVICE` selects a kind of device as in `common`. Nodes are such as every kind of device runs: fills,
//! copies, host functions, declared uses. Tests that need closures as kernels say where they are skipped.

mod beyond_cuda;
mod capture;
mod capture_refusals;
mod events;
mod failing;
mod families;
mod footprint;
mod handed_on;
mod lifetimes;
mod locks;
mod made;
mod memory;
mod misuse;
mod random;
mod refusals;
mod sizes;
mod symbolic;
mod threads;
mod together;
mod topologies;
mod ways;
mod wrong_graphs;
