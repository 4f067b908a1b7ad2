//! The pool settings of `millpond replay` and `view`.

use clap::ArgAction;
use millpond::PoolConfig;
use millpond::config::{ReusePolicy, Slack};

use super::values::parse_bytes;

/// The settings of a pool that serves a recording.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Pool")]
pub struct Pool {
    /// The part by which reserved memory may exceed live memory
    ///
    /// A fraction, so that 0.01 is one per cent, is kept at any cost. `adaptive` keeps as little as is cheap.
    /// `pressure` keeps what saves driver calls as long as the device has room: here it always has.
    #[arg(
        long,
        value_name = "PART", allow_negative_numbers = true, default_value = "adaptive",
        value_parser = parse_slack,
    )]
    pub slack: Slack,

    /// The bytes to keep at the end of a pass, such as 64MiB, or `max`
    ///
    /// With `max` the later passes start with a warm pool; with 0 each pass starts with an empty one.
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, default_value = "max", value_parser = parse_bytes)]
    pub release_threshold: u64,

    /// Do not reuse memory on another stream because events order the two streams
    #[arg(long = "no-follow-event-dependencies", action = ArgAction::SetFalse)]
    pub follow_event_dependencies: bool,

    /// Do not reuse memory on other streams because its last use has completed
    #[arg(long = "no-opportunistic", action = ArgAction::SetFalse)]
    pub opportunistic: bool,

    /// Do not make streams wait for memory of other streams
    #[arg(long = "no-internal-dependencies", action = ArgAction::SetFalse)]
    pub internal_dependencies: bool,
}

impl Pool {
    /// Returns `true` if these settings are those of a command line without pool options.
    pub fn is_default(&self) -> bool {
        self.config() == PoolConfig::default().release_threshold(u64::MAX)
    }

    /// Returns the settings as the library's type.
    pub fn config(&self) -> PoolConfig {
        PoolConfig::default().slack(self.slack).release_threshold(self.release_threshold).reuse(ReusePolicy {
            follow_event_dependencies: self.follow_event_dependencies,
            allow_opportunistic: self.opportunistic,
            allow_internal_dependencies: self.internal_dependencies,
        })
    }
}

fn parse_slack(text: &str) -> Result<Slack, String> {
    const WORDS: [(&str, Slack); 2] = [("adaptive", Slack::Adaptive), ("pressure", Slack::Pressure)];
    if let Some((_, slack)) = WORDS.iter().find(|(word, _)| *word == text) {
        return Ok(*slack);
    }
    match text.parse::<f64>() {
        Ok(part) if (0.0..=100.0).contains(&part) => Ok(Slack::Fixed(part)),
        Ok(_) => Err("the part lies between 0 and 100; 0.01 is one per cent".to_owned()),
        Err(_) => match WORDS.iter().find(|(word, _)| strsim::jaro_winkler(text, word) > 0.8) {
            Some((word, _)) => Err(format!("did you mean `{word}`?")),
            None => Err("give `adaptive`, `pressure`, or a part such as 0.01 (one per cent)".to_owned()),
        },
    }
}
