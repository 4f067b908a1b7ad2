//! Model twin of the pool: random programs on several streams, compared after each operation with lists of intervals.
//!
//! The twin knows the program's order by reachability, every free that is not completed, and a device with its
//! mappings. It refuses: two held blocks that share a byte; a block or a physical byte given to a stream that does not
//! come after its last free; an unmapping under a use that is not completed; a chunk destroyed while mapped; memory
//! grown past the bound while an idle chunk could have been used. Steps fail at random.
//!
//! A failure prints the seed of its program: `POOL_TWIN_SEED=<seed>` runs only that one.

mod device;
mod order;
mod program;

use millpond_core::pool::{PoolConfig, ReusePolicy, Slack};
use program::{Program, Style};

const KIB: u64 = 1024;

fn config(slack: Slack) -> PoolConfig {
    PoolConfig { granularity: 64 * KIB, chunk_bytes_max: 512 * KIB, slack, ..PoolConfig::default() }
}

fn run(name: &str, style: fn(u64) -> Style, programs: u64) {
    let only = std::env::var("POOL_TWIN_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in only.map_or(0..programs, |seed: u64| seed..seed + 1) {
        let outcome = std::panic::catch_unwind(|| Program::new(style(seed), seed).run(400));
        assert!(outcome.is_ok(), "{name}: the program of seed {seed} failed");
    }
}

#[test]
fn one_stream() {
    run("one_stream", |_| Style { streams: 1, ..Style::new(config(Slack::Adaptive)) }, 60);
}

#[test]
fn several_streams() {
    run("several_streams", |_| Style::new(config(Slack::Adaptive)), 150);
}

#[test]
fn the_tightest_slack() {
    run("the_tightest_slack", |_| Style::new(config(Slack::Fixed(0.0))), 100);
}

/// Devices with room and without, which others fill and empty, and some that do not say how full they are.
#[test]
fn a_device_that_fills() {
    fn filling(seed: u64) -> Style {
        let max_bytes = if seed.is_multiple_of(3) { (2 + seed % 8) * 512 * KIB } else { 0 };
        let config = PoolConfig { max_bytes, ..config(Slack::Pressure) };
        let device_granules = if seed.is_multiple_of(7) { 0 } else { 16 << (seed % 6) };
        Style { streams: 1 + seed as u32 % 4, device_granules, ..Style::new(config) }
    }
    run("a_device_that_fills", filling, 240);
}

#[test]
fn a_limit_on_memory() {
    fn limited(seed: u64) -> PoolConfig {
        PoolConfig { max_bytes: (2 + seed % 8) * 512 * KIB, ..config(Slack::Adaptive) }
    }
    run("a_limit_on_memory", |seed| Style::new(limited(seed)), 120);
}

#[test]
fn a_narrow_range_of_addresses() {
    let narrow = |seed| Style { range_granules: 48 + seed % 32, ..Style::new(config(Slack::Fixed(0.02))) };
    run("a_narrow_range_of_addresses", narrow, 100);
}

#[test]
fn steps_that_fail() {
    let failing = |seed| Style { fail_percent: 10 + seed % 50, ..Style::new(config(Slack::Fixed(0.01))) };
    run("steps_that_fail", failing, 150);
}

#[test]
fn each_reuse_policy() {
    fn style(seed: u64) -> Style {
        let reuse = ReusePolicy {
            follow_event_dependencies: seed & 1 != 0,
            allow_opportunistic: seed & 2 != 0,
            allow_internal_dependencies: seed & 4 != 0,
        };
        let max_bytes = if seed & 8 != 0 { 2048 * KIB } else { 0 };
        Style::new(PoolConfig { reuse, max_bytes, ..config(Slack::Adaptive) })
    }
    run("each_reuse_policy", style, 160);
}
