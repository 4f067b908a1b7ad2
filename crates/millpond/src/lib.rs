//! Stream-ordered GPU memory.
