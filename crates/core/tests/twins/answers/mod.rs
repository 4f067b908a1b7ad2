//! The checker as it is asked: what it answers, beside naive twins.

mod asked;
mod handles;
mod named;
mod private;
mod program;
mod waits;
mod withdrawn;
