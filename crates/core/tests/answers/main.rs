//! The checker as it is asked: what it answers, beside naive twins.

mod handles;
mod program;
mod waits;
