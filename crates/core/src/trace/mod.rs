//! Recorded programs as bytes. See [`ops`].

pub mod ops;
