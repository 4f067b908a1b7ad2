//! What the command understands: its arguments, their help, and the values in them.

mod check;
mod plan;
mod pool;
mod unchanged;
mod values;

use std::path::PathBuf;

use clap::{ColorChoice, Parser, Subcommand, ValueEnum};

pub use check::Check;
pub use plan::Plan;
pub use pool::Pool;
pub use unchanged::{Record, Run};

/// Stream-ordered GPU memory: check the order of programs, draw it, serve recorded ones.
#[derive(Parser, Debug)]
#[command(name = "millpond", version = env!("MILLPOND_VERSION"), propagate_version = true)]
#[command(arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = STATUS)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Whether output has colours
    ///
    /// `auto`: where it goes to a terminal, unless NO_COLOR is set; CLICOLOR_FORCE=1 has them everywhere.
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

/// What the command can do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Say whether the order of a program is right, and explain where it is not
    ///
    /// FILE is a litmus program or an operation trace, as a program writes it with MILLPOND_TRACE;
    /// the content decides, not the name. Each violation is shown from both sides, with what orders the two as far as
    /// anything does, and with the edge to add.
    ///
    /// With -- PROGRAM any CUDA program is checked while it runs, unchanged. The program's exit status is passed on; if
    /// it succeeds but violations were found, the status is 1. Leaks and advice are not reported then, nor are races
    /// without --races.
    ///
    /// After a report, dependent operations are skipped; fix it and rerun.
    Check(Check),

    /// Run any CUDA program, unchanged, and write down what it does with memory
    ///
    /// PROGRAM runs as without it. FILE is an operation trace for `millpond check`, `view` and `replay`; of further
    /// processes each has its own, with its number behind the name.
    Record(Record),

    /// Run any CUDA program, unchanged, with its stream-ordered memory from Millpond's pool
    ///
    /// PROGRAM runs as without it; what it allocates by cudaMallocAsync and its kin comes from Millpond's pool in place
    /// of CUDA's. Memory of captured graphs, of pools that other processes may open, and all other memory stays CUDA's.
    Run(Run),

    /// Draw a program's memory: one page to open in a browser
    ///
    /// Of an operation trace (MILLPOND_TRACE=file) or a litmus program the page shows the order: a lane for each stream
    /// and host thread, events and waits as arrows, and of each violation both sides and the missing edge. Below is
    /// memory over time by stream, with what is live, reserved and idle, and each allocation as a block. What
    /// `millpond replay` reads is drawn at the addresses where a pool served it, snapshots of PyTorch with their
    /// frames. It is one file that asks nothing of the network.
    View(View),

    /// Serve a recorded program's memory; report footprint, time and driver calls
    ///
    /// Each allocation and free of the recording is made again, in its order and on its streams, from a pool of the
    /// chosen device. The program is served several times over: the first pass shows what a cold pool needs, the later
    /// ones what a warm pool does.
    ///
    /// Recordings may be Millpond's JSON lines, PyTorch memory snapshots (_dump_snapshot), logs of RAPIDS Memory
    /// Manager, operation traces (`millpond record`, MILLPOND_TRACE), or lines of `a <id> <bytes>` and `f <id>`; each
    /// may be gzipped. The content decides, not the name.
    ///
    /// Two recordings are compared: one table of both, with the ratio of each figure. Of more, a line each comes last.
    Replay(Replay),

    /// Place buffers whose lifetimes are known: offsets within a capacity, or the smallest capacity found
    ///
    /// FILE is a table (CSV) with the columns id, lower, upper and size, in any order, and perhaps alignment: a buffer
    /// of `size` bytes is live from step `lower` up to, not including, `upper`. Buffers that are live at the same step
    /// get no byte in common. The plan is verified before it is written, and no plan needs less than the bound
    /// reported.
    Plan(Plan),

    /// List the devices of this machine, and what is missing for what
    ///
    /// The host device is always there. CUDA needs the NVIDIA driver's library, which is loaded now, and not when this
    /// command was built; MILLPOND_LIBCUDA names another one.
    Devices(Devices),

    /// Print what a shell needs to complete this command's words
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

    /// Print the manual page, of the command or of a subcommand
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

    /// The device to serve it on
    #[arg(long, value_enum, default_value_t = DeviceKind::Host)]
    pub device: DeviceKind,

    /// How often the program is served
    #[arg(
        long,
        value_name = "N", allow_negative_numbers = true, default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=100_000),
    )]
    pub repeat: u32,

    /// Print one JSON object and nothing else
    ///
    /// For one recording its figures; for several an object with `files` (an array of such objects) and `totals`, and
    /// for two also `comparison`, the ratios of the second to the first.
    #[arg(long)]
    pub json: bool,

    /// Of a snapshot of several GPUs, serve only this one's program
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub gpu: Option<u32>,

    /// Write a pattern into each allocation and check it before its free
    ///
    /// A byte that changed in between is a mistake of the pool: it is reported, and the exit status is 1. It takes as
    /// much real memory as the program has live at once. Only on the host device.
    #[arg(long, help_heading = "Checks")]
    pub touch: bool,

    /// Which patterns --touch writes
    #[arg(
        long,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        default_value_t = 1,
        requires = "touch",
        help_heading = "Checks"
    )]
    pub seed: u64,

    /// The pool that serves.
    #[command(flatten)]
    pub pool: Pool,
}

const EXAMPLES: &str = "\
Examples:
  millpond replay traces/gpt2_train.jsonl.gz
  millpond replay snapshot.pickle --repeat 20 --slack 0.01
  millpond replay before.pickle after.pickle
  millpond replay traces/*.gz --json | jq '.files[] | [.name, .ratio]'

Exit status: 0 all is well, 1 a touched byte changed or the device could not serve, 2 bad input.";

/// The arguments of `millpond view`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = VIEW_EXAMPLES)]
pub struct View {
    /// The program or recording; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Where the page goes; without it to standard output, unless that is a terminal; `-` is standard output always
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Open the page in a browser: the one that BROWSER names, else the desktop's
    ///
    /// Without --output the page is written to a folder for temporary files.
    #[arg(long)]
    pub open: bool,

    /// The device whose pool serves it
    #[arg(long, value_enum, default_value_t = DeviceKind::Sim)]
    pub device: DeviceKind,

    /// Of a snapshot of several GPUs, draw this one's program; without it, the longest
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub gpu: Option<u32>,

    /// The pool that serves.
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
    /// Threads and real virtual memory of this machine
    Host,
    /// The host without memory: nothing is mapped
    Sim,
}

impl DeviceKind {
    /// Its name in arguments and reports.
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
            // Where this is tested as it is published there are no pages.
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
        assert!(pool.reuse.follow_event_dependencies && !pool.reuse.allow_opportunistic);
        assert!(pool.reuse.allow_internal_dependencies);
        let pool =
            replay(&["x", "--no-follow-event-dependencies", "--no-internal-dependencies"]).unwrap().pool.config();
        assert!(!pool.reuse.follow_event_dependencies && !pool.reuse.allow_internal_dependencies);
    }

    #[test]
    fn what_counts_for_files_or_programs_alone_is_refused_for_the_other() {
        let check = |words: &[&str]| Args::try_parse_from([&["millpond", "check"], words].concat());
        for option in ["--races", "--deep", "--keep-allocator"] {
            assert!(check(&[option, "--", "it"]).is_ok(), "{option}");
            let error = check(&[option, "file"]).unwrap_err().to_string();
            assert!(error.contains(&format!("'{option}' cannot be used with '[FILE]...'")), "{error}");
        }
        for option in ["--expect", "--json", "--witness", "--fix", "--no-races", "--no-leaks", "--no-advice"] {
            assert!(check(&[option, "file"]).is_ok(), "{option}");
            let error = check(&[option, "--", "it"]).unwrap_err().to_string();
            assert!(error.contains(&format!("'{option}' cannot be used with '[PROGRAM]...'")), "{error}");
        }
    }

    #[test]
    fn near_misses_are_suggested() {
        assert!(replay(&["x", "--jsom"]).unwrap_err().contains("'--json'"));
        assert!(replay(&["x", "--device", "hots"]).unwrap_err().contains("'host'"));
        assert!(replay(&["x", "--slack", "adaptve"]).unwrap_err().contains("did you mean `adaptive`?"));
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
        assert!(replay(&["x", "--seed", "7"]).unwrap_err().contains("--touch"));
        assert!(replay(&[]).unwrap_err().contains("<FILE>"));
    }
}
