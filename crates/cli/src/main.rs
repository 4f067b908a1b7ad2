//! The command `millpond`.

fn main() {}
