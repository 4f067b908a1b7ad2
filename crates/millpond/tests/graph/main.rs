//! Graphs that own memory, on the host device: ways, captures, event nodes, misuse, memory, random programs, threads,
//! failing drivers, the tables of the contract.

mod capture;
mod events;
mod failing;
mod memory;
mod misuse;
mod random;
mod symbolic;
mod tables;
mod threads;
mod ways;
