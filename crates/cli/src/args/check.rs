//! The arguments of `millpond check`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgAction;
use millpond_core::check::Settings;

/// The help headings of the options that apply to only one of the two modes.
const FILE: &str = "Options for a FILE";
const PROGRAM: &str = "Options for a PROGRAM";

/// The arguments of `millpond check`.
#[derive(clap::Args, Debug)]
#[command(after_long_help = CHECK_EXAMPLES)]
#[command(
    override_usage = "millpond check [OPTIONS] <FILE>...\n       millpond check [OPTIONS] -- <PROGRAM> [ARGUMENT]..."
)]
pub struct Check {
    /// The programs; `-` is standard input; a folder stands for the litmus programs and operation traces in it
    #[arg(conflicts_with = "program", value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Any CUDA program and its arguments, checked while it runs
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,

    /// Find unordered accesses, too: each kernel is assumed to write all memory whose address it receives
    #[arg(long = "races", requires = "program", conflicts_with = "files", help_heading = PROGRAM)]
    pub all_races: bool,

    /// Record the whole stack of each call, and show the stacks of both operations with each violation
    ///
    /// The stacks have frames of Python and of native code. Each call takes some microseconds more.
    #[arg(long, requires = "program", conflicts_with = "files", help_heading = PROGRAM)]
    pub deep: bool,

    /// Leave PyTorch's allocator as it is in a Python program: Millpond then sees its segments, but no tensor
    #[arg(long, requires = "program", conflicts_with = "files", help_heading = PROGRAM)]
    pub keep_allocator: bool,

    /// End with status 2 if the program succeeded and no CUDA call was seen
    ///
    /// A program whose calls are out of reach (such as a script that starts a static program) is not checked at all,
    /// and would otherwise end with its own status.
    #[arg(long, requires = "program", conflicts_with = "files", help_heading = PROGRAM)]
    pub require_calls: bool,

    /// End with status 0 if the findings match the `!!` of a litmus program, and with 1 if they differ
    ///
    /// A program without `!!` expects no finding. An operation trace has no expectations and is judged as without this
    /// option.
    #[arg(long, conflicts_with_all = ["program", "fix"], help_heading = FILE)]
    pub expect: bool,

    /// Print JSON and nothing else
    ///
    /// One program gives an object with `findings`; several, or a folder, give an array of such objects.
    #[arg(long, conflicts_with = "program", help_heading = FILE)]
    pub json: bool,

    /// Show a schedule that does the damage, for each violation of order
    ///
    /// It is the shortest order, of those that a device may run, in which poison is touched or an access overtakes
    /// another. No operation of the litmus program is refused. Leaks and rules about calls have no such schedule; the
    /// output says so.
    #[arg(long, conflicts_with = "program", help_heading = FILE)]
    pub witness: bool,

    /// Print the program with the missing edges added
    ///
    /// Takes one litmus program. Each edge that the help of a finding names is written into the text, and is kept if
    /// the finding disappears and no new one appears. What was added, and what is left with its help, is printed to
    /// standard error. The exit status is 1 if a violation is left.
    #[arg(long, conflicts_with_all = ["json", "witness", "program"], help_heading = FILE)]
    pub fix: bool,

    /// Do not report unordered accesses that may touch different bytes
    #[arg(long = "no-races", action = ArgAction::SetFalse, conflicts_with = "program", help_heading = FILE)]
    pub races: bool,

    /// Do not report memory that is never freed
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
    /// Returns the reason why an option that was removed is refused, with what to do instead.
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

    /// Combines these options with the program's own settings: a check runs only if both enable it.
    pub fn settings(&self, program: Settings) -> Settings {
        Settings {
            races: self.races && program.races,
            leaks: self.leaks && program.leaks,
            advice: self.advice && program.advice,
            unused_graphs: program.unused_graphs,
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
