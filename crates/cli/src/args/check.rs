//! The arguments of `millpond check`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgAction;
use millpond_core::check::Settings;

/// Where the help lists what is for one of the two alone.
const FILE: &str = "Options for a FILE";
const PROGRAM: &str = "Options for a PROGRAM";

/// The arguments of `millpond check`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = CHECK_EXAMPLES)]
#[command(
    override_usage = "millpond check [OPTIONS] <FILE>...\n       millpond check [OPTIONS] -- <PROGRAM> [ARGUMENT]..."
)]
pub struct Check {
    /// The programs; `-` is standard input; of a folder the litmus programs and operation traces in it
    #[arg(conflicts_with = "program", value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Any CUDA program and its arguments, checked while it runs
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,

    /// Find unordered accesses, too: each kernel is taken to write all memory whose address it gets
    #[arg(long = "races", requires = "program", conflicts_with = "files", help_heading = PROGRAM)]
    pub all_races: bool,

    /// Keep the whole stack of each call, and show both sides' with each violation
    ///
    /// Frames of Python and of native code. A call then takes microseconds more.
    #[arg(long, requires = "program", conflicts_with = "files", help_heading = PROGRAM)]
    pub deep: bool,

    /// Of a program of Python, leave PyTorch's allocator as it is: only its segments are seen, and no tensor
    #[arg(long, requires = "program", conflicts_with = "files", help_heading = PROGRAM)]
    pub keep_allocator: bool,

    /// End with status 2 where the program ended well and no CUDA call was seen
    ///
    /// A program whose calls are out of reach (a script that starts a static one) is checked by nothing, and would end
    /// with its own status.
    #[arg(long, requires = "program", conflicts_with = "files", help_heading = PROGRAM)]
    pub require_calls: bool,

    /// End with status 0 where the findings are those that the `!!` of a litmus program name, and 1 where they differ
    ///
    /// A program without `!!` expects none. An operation trace expects nothing, and is judged as without this.
    #[arg(long, conflicts_with_all = ["program", "fix"], help_heading = FILE)]
    pub expect: bool,

    /// Print JSON and nothing else
    ///
    /// For one program an object with `findings`; for several, and for a folder, an array of such objects.
    #[arg(long, conflicts_with = "program", help_heading = FILE)]
    pub json: bool,

    /// Show a schedule that does the damage, for each violation that is one of order
    ///
    /// A litmus program is run on the host device with seed after seed, and nothing is refused, until its tasks run in
    /// an order in which poison is touched or an access overtakes another. Leaks and rules about calls have no such
    /// schedule, and that is said.
    #[arg(long, conflicts_with = "program", help_heading = FILE)]
    pub witness: bool,

    /// Print the program with the missing edges put in
    ///
    /// For one litmus program: the edges that a finding's help names are written into its text, and taken where the
    /// finding is gone by them and no other is new. What was added, and what is left with its help, is printed to
    /// standard error. The exit status is 1 where a violation is left.
    #[arg(long, conflicts_with_all = ["json", "witness", "program"], help_heading = FILE)]
    pub fix: bool,

    /// Let unordered accesses pass that may touch different bytes
    #[arg(long = "no-races", action = ArgAction::SetFalse, conflicts_with = "program", help_heading = FILE)]
    pub races: bool,

    /// Let memory pass that is never freed
    #[arg(long = "no-leaks", action = ArgAction::SetFalse, conflicts_with = "program", help_heading = FILE)]
    pub leaks: bool,

    /// Give no advice
    #[arg(long = "no-advice", action = ArgAction::SetFalse, conflicts_with = "program", help_heading = FILE)]
    pub advice: bool,

    #[arg(long, hide = true, conflicts_with = "program")]
    trust_early: bool,

    #[arg(long, hide = true, conflicts_with = "program")]
    threads_apart: bool,
}

impl Check {
    /// Why an option that there was once is refused, and what to do.
    pub fn gone(&self) -> Option<&'static str> {
        match self {
            Self { threads_apart: true, .. } => Some(
                "--threads-apart is not an option any more: what one host thread has synchronised with counts for all \
                 threads of its process; leave it out",
            ),
            Self { trust_early: true, .. } => Some(
                "--trust-early is not an option any more: a launch with programmatic stream serialization is judged as \
                 an ordinary one; leave it out",
            ),
            _ => None,
        }
    }

    /// What is looked for, given what the program asks for.
    pub fn settings(&self, program: Settings) -> Settings {
        Settings {
            races: self.races && program.races,
            leaks: self.leaks && program.leaks,
            advice: self.advice && program.advice,
        }
    }
}

const CHECK_EXAMPLES: &str = concat!(
    "\
Examples:
  millpond check litmus/zoo/20-one-read-event.litmus
  millpond check --witness litmus/measured/2-free-before-use.litmus
  millpond check --expect litmus
  millpond check --fix wrong.litmus > right.litmus
  MILLPOND_TRACE=run.trace ./program && millpond check run.trace
  millpond check -- ./program --its arguments
  millpond check run.trace --json | jq -r '.findings[].facts'

Exit status: 0 all is well, 1 something is wrong, 2 bad input. With -- PROGRAM: the program's; 1 where something was \
found and it ended with 0; 2 where it cannot be run so.

More: ",
    page!("check"),
    ", of a PROGRAM: ",
    page!("any-program")
);
