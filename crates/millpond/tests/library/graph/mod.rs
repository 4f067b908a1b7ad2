//! Graphs that own memory, on the host and on CUDA: ways, captures, event nodes, memory, random programs, threads,
//! failing drivers; who may free what, what each misuse is answered with, and what is allowed beyond CUDA.
//!
//! `MILLPOND_TEST_DEVICE` picks a kind of device as in `common`. Nodes are what every kind runs: fills, copies,
//! functions of the host, uses that are declared. What needs closures as kernels says where it is skipped.

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
mod not_live;
mod random;
mod refusals;
mod sizes;
mod symbolic;
mod threads;
mod together;
mod topologies;
mod ways;
mod who_may_free;
mod wrong_graphs;
