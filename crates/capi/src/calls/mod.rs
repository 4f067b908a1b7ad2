//! The functions of `millpond.h`, by what they are about.

mod access;
mod capture;
pub(crate) mod device;
pub(crate) mod event;
mod exec;
mod graph;
mod memory;
pub(crate) mod picture;
pub(crate) mod pool;
mod stream;
#[cfg(test)]
mod tests;
mod trace;
mod work;
