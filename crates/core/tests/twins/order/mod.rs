//! The order of streams, hosts and the default streams: compared with a naive twin, and a rule that the twin does not
//! ask.

mod program;
mod rules;
mod twin;
