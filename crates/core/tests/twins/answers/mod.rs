//! The answers of the checker, compared with naive twins.

mod asked;
mod handles;
mod named;
mod private;
mod program;
mod waits;
mod withdrawn;
