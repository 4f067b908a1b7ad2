//! The arguments of `millpond shake`.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

/// The arguments of `millpond shake`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Shake {
    /// The seeds to try, in this order, until one fails: 0..20, or 20 for the same
    #[arg(long, value_name = "A..B", default_value = "0..20", value_parser = parse_seeds)]
    pub seeds: Range<u64>,

    /// Try this seed alone
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    pub seed: Option<u64>,

    /// Delay only these operations: the stream, the number of the operation in it, and the time, as in 2:17=20ms
    #[arg(long, value_name = "STREAM:N=TIME", value_parser = parse_at, conflicts_with_all = ["seeds", "seed"])]
    pub at: Vec<At>,

    /// Also fail if the standard output differs from that of the undelayed run
    #[arg(long)]
    pub compare: bool,

    /// Also fail if this file that the program writes differs from that of the undelayed run
    ///
    /// It is removed before each delayed run, and is that of the undelayed run in the end.
    #[arg(long, value_name = "FILE")]
    pub compare_file: Vec<PathBuf>,

    /// Delay copies only
    #[arg(long)]
    pub only_copies: bool,

    /// Delay operations of these streams only, as in 1,3; the command prints the streams of the undelayed run
    #[arg(long, value_name = "STREAMS", value_delimiter = ',')]
    pub only_streams: Vec<u32>,

    /// Also put delays into graphs, when their operations are captured; each launch of the graph then takes that long
    #[arg(long)]
    pub graphs: bool,

    /// The most time that the delays of a run take together, in per cent of the undelayed run, but at least 128 ms
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0, value_parser = parse_percent)]
    pub budget: f64,

    /// The most time that the delays of a run take together, as in 512ms
    ///
    /// What is printed to replay a seed has it, because undelayed runs do not always take the same time.
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "budget")]
    pub total: Option<Time>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

const EXAMPLES: &str = concat!(
    "\
Examples:
  millpond shake -- python -m pytest test_prefetch.py
  millpond shake --compare -- ./program --its arguments
  millpond shake --compare-file out.bin --seeds 0..100 -- ./program
  millpond shake --seed 7 -- ./program
  millpond shake --at 2:17=20ms -- ./program

Exit status: 0 no seed failed, 1 one failed, 2 the program fails undelayed, or cannot be run so.

More: ",
    page!("shake")
);

/// A time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time(pub u64);

/// A delay that the user names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// The stream's number.
    pub stream: u32,
    /// The operation's number in the stream, from 1.
    pub number: u32,
    /// The time.
    pub time: Time,
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let help = || format!("`{text}` is no range of seeds such as 0..20");
    let (first, end) = match text.split_once("..") {
        Some((first, end)) => (first.parse().map_err(|_| help())?, end.parse().map_err(|_| help())?),
        None => (0, text.parse().map_err(|_| help())?),
    };
    if first < end { Ok(first..end) } else { Err(format!("there is no seed in {first}..{end}")) }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 10_000.0 => Ok(percent),
        _ => Err("give per cent of the undelayed run, above 0 and up to 10000".to_owned()),
    }
}

fn parse_time(text: &str) -> Result<Time, String> {
    let help = || format!("`{text}` is no time such as 20ms, 500us or 1.5s, up to an hour");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = match &text[end..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(help()),
    };
    let nanoseconds = text[..end].parse::<f64>().map_err(|_| help())? * unit;
    if (1.0..=3.6e12).contains(&nanoseconds) { Ok(Time(nanoseconds as u64)) } else { Err(help()) }
}

fn parse_at(text: &str) -> Result<At, String> {
    let help = || format!("`{text}` is no delay such as 2:17=20ms: stream 2, its operation 17, 20 ms");
    let (place, time) = text.split_once('=').unwrap_or((text, "20ms"));
    let (stream, number) = place.split_once(':').ok_or_else(help)?;
    let (stream, number) = (stream.parse().map_err(|_| help())?, number.parse().map_err(|_| help())?);
    if number == 0 {
        return Err("operations of a stream are counted from 1".to_owned());
    }
    Ok(At { stream, number, time: parse_time(time)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_times_and_delays_are_read() {
        assert_eq!((parse_seeds("3..7"), parse_seeds("20")), (Ok(3..7), Ok(0..20)));
        for wrong in ["", "a", "5..5", "7..3", "0", "1..2..3", "-1..3"] {
            assert!(parse_seeds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_time("1.5ms"), Ok(Time(1_500_000)));
        assert_eq!((parse_time("20us"), parse_time("2s")), (Ok(Time(20_000)), Ok(Time(2_000_000_000))));
        for wrong in ["", "ms", "5", "0ms", "2h", "-1ms", "1e3ms", "5000s"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
        let at = |time| At { stream: 2, number: 17, time: Time(time) };
        assert_eq!((parse_at("2:17"), parse_at("2:17=1ms")), (Ok(at(20_000_000)), Ok(at(1_000_000))));
        for wrong in ["", "2", "2:0", "a:1", "2:17=", "2:17=x"] {
            assert!(parse_at(wrong).is_err(), "{wrong}");
        }
        assert_eq!((parse_percent("25%"), parse_percent("0").is_err()), (Ok(25.0), true));
    }
}
