//! The library as programs see it, in one test program. Each module is a topic, and `library suite::` runs one.
//!
//! Tests run in parallel. A test that reads or changes the state of its whole process runs `alone`
//! (`common/process.rs`). On a GPU modules run one after the other, some of them with one thread: `bench/gpu/run`.

mod common;

mod api;
mod cache_schedules;
mod caches;
mod fault;
mod forked;
mod given_back;
mod graph;
mod guard;
mod guide;
mod hand_over;
mod lent_both_ways;
mod limit;
mod locks;
mod lost;
mod messages;
mod native;
mod numbers;
mod oracle;
mod output;
mod outside;
mod reports;
mod second_free;
mod share;
mod suite;
mod system_limits;
mod told_twice;
mod traced_events;
mod tracing;
