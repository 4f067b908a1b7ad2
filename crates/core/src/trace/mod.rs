//! Recorded programs as bytes: see [`ops`].

pub mod ops;
