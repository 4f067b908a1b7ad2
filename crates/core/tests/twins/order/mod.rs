//! The order of streams, hosts and the default streams: its rules one by one, and compared with a naive twin.

mod program;
mod rules;
mod twin;
