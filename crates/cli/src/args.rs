//! The command line: the arguments, their help and the parsing of their values.

mod check;
mod limit;
mod plan;
mod pool;
mod shake;
mod unchanged;
mod values;

use std::path::PathBuf;

use clap::{ColorChoice, Parser, Subcommand, ValueEnum};

pub use check::Check;
pub use limit::Limits;
pub use plan::Plan;
pub use pool::Pool;
pub use shake::{At, Shake, Time};
pub use unchanged::{Record, Run};

/// Stream-ordered GPU memory: check the order of programs, draw it, serve recorded ones.
#[derive(Parser, Debug)]
#[command(name = "millpond", version = env!("MILLPOND_VERSION"), propagate_version = true)]
#[command(arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = STATUS)]
pub struct Args {
    /// The subcommand
    #[command(subcommand)]
    pub command: Command,

    /// When to colour the output
    ///
    /// `auto` colours the output if it goes to a terminal and NO_COLOR is not set. CLICOLOR_FORCE=1 turns colours on
    /// everywhere.
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
}

const STATUS: &str = concat!(
    "\
Exit status: 0 all is well, 1 something was found, 2 bad input. `record`, `run` and `check -- PROGRAM` pass on \
the program's.

Guide: ",
    page!("guide")
);

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Check the order of a program and explain each violation
    ///
    /// FILE is a litmus program or an operation trace that a program wrote with MILLPOND_TRACE; the content decides,
    /// not the name. Each violation is shown with both of its operations, what orders them so far, and the edge to add.
    ///
    /// With -- PROGRAM, any unmodified CUDA program is checked while it runs. The program's exit status is passed on;
    /// if it succeeds but violations were found, the status is 1. Leaks and advice are not reported in this mode. Races
    /// are reported only with --races.
    ///
    /// After a report, dependent operations are skipped; fix it and rerun.
    Check(Check),

    /// Run any CUDA program, unchanged, and record its memory operations
    ///
    /// PROGRAM runs as it does without Millpond. FILE is an operation trace for `millpond check`, `view` and `replay`.
    /// Each further process writes a trace of its own, with its number added to the name.
    Record(Record),

    /// Run any CUDA program, unchanged, with its stream-ordered memory from Millpond's pool
    ///
    /// PROGRAM runs as it does without Millpond. Memory that it allocates with cudaMallocAsync and related calls comes
    /// from Millpond's pool in place of CUDA's. CUDA still serves the memory of captured graphs, of pools that other
    /// processes may open, and all other memory.
    Run(Run),

    /// Run any CUDA program with delays in its streams, and find the operation whose delay changes its result
    ///
    /// PROGRAM is run without delays first, and has to succeed. Each seed then puts delays before some operations of
    /// its streams: kernels, copies, fills, launches of graphs. A program whose order is complete gives the same result
    /// whatever is late. The exit status of PROGRAM judges (an assertion of a test, say), or --compare and
    /// --compare-file.
    ///
    /// The first seed that fails is narrowed to the fewest delays, mostly one. The checker then names the operations
    /// that nothing orders with it.
    Shake(Shake),

    /// Draw a program's memory: one page to open in a browser
    ///
    /// For an operation trace (MILLPOND_TRACE=file) or a litmus program the page shows the order: a lane for each
    /// stream and host thread, events and waits as arrows, and for each violation both operations and the missing edge.
    /// Below is memory over time by stream, with what is live, reserved and idle, and each allocation as a block.
    /// Recordings that `millpond replay` reads are drawn at the addresses that a pool gave them; snapshots of PyTorch
    /// are drawn with their frames. The page is one file and needs no network.
    View(View),

    /// Serve a recorded program's memory; report footprint, time and driver calls
    ///
    /// Each allocation and free of the recording is made again, in its order and on its streams, from a pool of the
    /// chosen device. The program is served several times: the first pass shows the needs of a cold pool, the later
    /// ones those of a warm pool.
    ///
    /// Recordings may be Millpond's JSON lines, PyTorch memory snapshots (_dump_snapshot), logs of RAPIDS Memory
    /// Manager, operation traces (`millpond record`, MILLPOND_TRACE), or lines of `a <id> <bytes>` and `f <id>`; each
    /// may be gzipped. The content decides, not the name.
    ///
    /// Two recordings are compared in one table, with the ratio of each figure. For more than two, the output ends with
    /// one line for each.
    Replay(Replay),

    /// Place buffers whose lifetimes are known: find offsets within a capacity, or the smallest capacity
    ///
    /// FILE is a table (CSV) with the columns id, lower, upper and size, in any order, and optionally alignment: a
    /// buffer of `size` bytes is live from step `lower` up to, but not including, `upper`. Buffers that are live at the
    /// same step share no byte. The plan is verified before it is written. No plan needs less than the reported bound.
    Plan(Plan),

    /// List the devices of this machine and the features that they lack
    ///
    /// The host device is always available. CUDA needs the NVIDIA driver's library, which is loaded at run time;
    /// MILLPOND_LIBCUDA names another library.
    Devices(Devices),

    /// Print a shell's completion script
    ///
    /// bash: `d=~/.local/share/bash-completion/completions; mkdir -p $d; millpond completions bash > $d/millpond`
    ///
    /// zsh: `mkdir -p ~/.zfunc; millpond completions zsh > ~/.zfunc/_millpond`, with `fpath+=~/.zfunc` in ~/.zshrc
    /// before `compinit`
    ///
    /// fish: `d=~/.config/fish/completions; mkdir -p $d; millpond completions fish > $d/millpond.fish`
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },

    /// Print the manual page of the command or of a subcommand
    ///
    /// `millpond man view | man -l -` shows it.
    Man {
        /// The subcommand
        #[arg(value_name = "SUBCOMMAND")]
        subcommand: Option<String>,
    },
}

/// The arguments of `millpond devices`.
#[derive(clap::Args, Debug)]
pub struct Devices {
    /// Print one JSON object and nothing else
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `millpond replay`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Replay {
    /// The recordings; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// The device that serves the memory
    #[arg(long, value_enum, default_value_t = DeviceKind::Host)]
    pub device: DeviceKind,

    /// The number of passes
    #[arg(
        long,
        value_name = "N", allow_negative_numbers = true, default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=100_000),
    )]
    pub repeat: u32,

    /// Print one JSON object and nothing else
    ///
    /// One recording gives an object with its figures. Several give an object with `files` (an array of such objects)
    /// and `totals`; two also give `comparison`, the ratios of the second to the first.
    #[arg(long)]
    pub json: bool,

    /// Serve only this GPU's program of a snapshot of several GPUs
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub gpu: Option<u32>,

    /// The pool's settings.
    #[command(flatten)]
    pub pool: Pool,
}

const EXAMPLES: &str = "\
Examples:
  millpond replay traces/gpt2_train.jsonl.gz
  millpond replay snapshot.pickle --repeat 20 --slack 0.01
  millpond replay before.pickle after.pickle
  millpond replay traces/*.gz --json | jq '.files[] | [.name, .ratio]'

Exit status: 0 all is well, 1 the device could not serve, 2 bad input.";

/// The arguments of `millpond view`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = VIEW_EXAMPLES)]
pub struct View {
    /// The program or recording; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The file for the page; `-` is standard output
    ///
    /// Without it the page goes to standard output, unless that is a terminal.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Open the page in the browser that BROWSER names, or else in the desktop's browser
    ///
    /// Without --output the page is written to a temporary folder.
    #[arg(long)]
    pub open: bool,

    /// The device whose pool serves the recording
    #[arg(long, value_enum, default_value_t = DeviceKind::Sim)]
    pub device: DeviceKind,

    /// Draw this GPU's program of a snapshot of several GPUs; by default, the longest program
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub gpu: Option<u32>,

    /// The pool's settings.
    #[command(flatten)]
    pub pool: Pool,
}

const VIEW_EXAMPLES: &str = concat!(
    "\
Examples:
  millpond view --open litmus/zoo/20-one-read-event.litmus
  millpond view traces/gpt2_train.jsonl.gz -o gpt2.html
  millpond view snapshot.pickle --gpu 1 --slack 0.01 -o gpu1.html

Exit status: 0 all is well, 1 the device could not serve, 2 bad input.

More: ",
    page!("view")
);

/// A kind of device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DeviceKind {
    /// Runs streams as threads, with real virtual memory of this machine
    Host,
    /// The host device without memory: nothing is mapped
    Sim,
}

impl DeviceKind {
    /// Returns the name used in arguments and reports.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Host => "host",
            DeviceKind::Sim => "sim",
        }
    }
}

#[cfg(test)]
mod tests {
    use millpond::PoolConfig;
    use millpond::config::Slack;
    use millpond_core::units::MIB;

    use super::*;

    fn replay(words: &[&str]) -> Result<Replay, String> {
        let args = Args::try_parse_from([&["millpond", "replay"], words].concat());
        match args.map_err(|error| error.to_string())?.command {
            Command::Replay(replay) => Ok(replay),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn help_lists_check_first_and_names_pages_by_their_addresses() {
        use clap::CommandFactory;
        let mut all = Args::command();
        all.build();
        assert_eq!(all.get_subcommands().next().unwrap().get_name(), "check");
        let mut pages = 0;
        let helps: Vec<String> = [all.render_long_help().to_string()]
            .into_iter()
            .chain(all.get_subcommands_mut().map(|command| command.render_long_help().to_string()))
            .collect();
        for word in helps.iter().flat_map(|help| help.split_whitespace()).filter(|word| word.contains("docs/")) {
            let page = word.trim_end_matches(',').strip_prefix(concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/"));
            let page = page.unwrap_or_else(|| panic!("{word} is not an address"));
            let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            // The published package has no documentation pages.
            assert!(root.join(page).is_file() || !root.join("docs").is_dir(), "{page} is not there");
            pages += 1;
        }
        assert!(pages >= 7, "{pages}");
    }

    #[test]
    fn the_pool_is_as_asked() {
        let plain = replay(&["x"]).unwrap().pool.config();
        assert_eq!(plain, PoolConfig::default().release_threshold(u64::MAX));
        let asked = ["x", "--slack", "0.01", "--no-opportunistic", "--release-threshold", "64MiB"];
        let pool = replay(&asked).unwrap().pool.config();
        assert_eq!((pool.slack, pool.release_threshold), (Slack::Fixed(0.01), 64 * MIB));
        assert_eq!(replay(&["x", "--slack", "pressure"]).unwrap().pool.config().slack, Slack::Pressure);
        assert!(pool.reuse.follow_event_dependencies && !pool.reuse.allow_opportunistic);
        assert!(pool.reuse.allow_internal_dependencies);
        let pool =
            replay(&["x", "--no-follow-event-dependencies", "--no-internal-dependencies"]).unwrap().pool.config();
        assert!(!pool.reuse.follow_event_dependencies && !pool.reuse.allow_internal_dependencies);
    }

    #[test]
    fn what_counts_for_files_or_programs_alone_is_refused_for_the_other() {
        let check = |words: &[&str]| Args::try_parse_from([&["millpond", "check"], words].concat());
        for option in ["--races", "--deep", "--keep-allocator", "--print-suppressions"] {
            assert!(check(&[option, "--", "it"]).is_ok(), "{option}");
            let error = check(&[option, "file"]).unwrap_err().to_string();
            assert!(error.contains(&format!("'{option}' cannot be used with '[FILE]...'")), "{error}");
        }
        for option in ["--expect", "--witness", "--fix", "--no-races", "--no-leaks", "--no-advice"] {
            assert!(check(&[option, "file"]).is_ok(), "{option}");
            let error = check(&[option, "--", "it"]).unwrap_err().to_string();
            assert!(error.contains(&format!("'{option}' cannot be used with '[PROGRAM]...'")), "{error}");
        }
    }

    #[test]
    fn json_takes_a_file_for_a_program_only() {
        let check = |words: &[&str]| match Args::try_parse_from([&["millpond", "check"], words].concat()) {
            Ok(Args { command: Command::Check(check), .. }) => check,
            other => panic!("{other:?}"),
        };
        let files =
            |words: &[&str]| -> Vec<String> { check(words).files().map(|file| file.display().to_string()).collect() };
        assert_eq!(files(&["--json", "a", "b"]), ["a", "b"]);
        assert_eq!(files(&["a", "b", "--json"]), ["a", "b"]);
        assert_eq!(files(&["--json"]), [""; 0]);
        let program = check(&["--json", "out", "--", "it", "--json"]);
        assert_eq!(program.report_files().unwrap().json, Some(std::path::Path::new("out")));
        for words in [&["--json", "--", "it"], &["--json=-", "--", "it"]] {
            assert!(check(words).report_files().unwrap_err().contains("--json needs a file here"));
        }
    }

    #[test]
    fn near_misses_are_suggested() {
        assert!(replay(&["x", "--jsom"]).unwrap_err().contains("'--json'"));
        assert!(replay(&["x", "--device", "hots"]).unwrap_err().contains("'host'"));
        assert!(replay(&["x", "--slack", "adaptve"]).unwrap_err().contains("did you mean `adaptive`?"));
        assert!(replay(&["x", "--slack", "presure"]).unwrap_err().contains("did you mean `pressure`?"));
        assert!(replay(&["x", "--slack", "loose"]).unwrap_err().contains("give `adaptive`, `pressure`, or a part"));
        let error = Args::try_parse_from(["millpond", "reply", "x"]).unwrap_err().to_string();
        assert!(error.contains("'replay'"), "{error}");
    }

    #[test]
    fn wrong_values_say_what_is_right() {
        assert!(replay(&["x", "--slack", "-1"]).is_err());
        assert!(replay(&["x", "--slack", "nan"]).unwrap_err().contains("between 0 and 100"));
        assert!(replay(&["x", "--release-threshold", "5mb"]).unwrap_err().contains("64MiB"));
        assert!(replay(&["x", "--release-threshold", "99999999999TiB"]).unwrap_err().contains("64MiB"));
        assert!(replay(&["x", "--repeat", "0"]).unwrap_err().contains("0 is not in 1..=100000"));
        assert!(replay(&[]).unwrap_err().contains("<FILE>"));
    }
}
