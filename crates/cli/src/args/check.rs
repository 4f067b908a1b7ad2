//! The arguments of `millpond check`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgAction;
use millpond_core::check::Settings;

use super::values::file_to_write;
use crate::attach::Files;

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

    /// Write the findings to FILE as SARIF 2.1.0, for code scanning
    #[arg(
        long, value_name = "FILE", value_parser = file_to_write(),
        requires = "program", conflicts_with = "files", help_heading = PROGRAM,
    )]
    pub sarif: Option<PathBuf>,

    /// Write the findings and the summary to FILE in place of standard error
    #[arg(
        short, long, value_name = "FILE", value_parser = file_to_write(),
        requires = "program", conflicts_with = "files", help_heading = PROGRAM,
    )]
    pub output: Option<PathBuf>,

    /// Leave out the findings that a rule in FILE matches
    ///
    /// Each line is a rule: patterns for `kind`, `file`, `function`, `kernel` and `allocation`, as in `kind=free-* \
    /// file=train.py`. Rules that match nothing are listed.
    #[arg(
        long, value_name = "FILE",
        requires = "program", conflicts_with = "files", help_heading = PROGRAM,
    )]
    pub suppressions: Option<PathBuf>,

    /// Print a rule for `--suppressions` for each finding
    #[arg(long, requires = "program", conflicts_with = "files", help_heading = PROGRAM)]
    pub print_suppressions: bool,

    /// End with status 0 if the findings match the `!!` of a litmus program, and with 1 if they differ
    ///
    /// A program without `!!` expects no finding. An operation trace has no expectations and is judged as without this
    /// option.
    #[arg(long, conflicts_with_all = ["program", "fix"], help_heading = FILE)]
    pub expect: bool,

    /// Print JSON and nothing else; for a PROGRAM, write it to FILE
    ///
    /// One file, and one program, give an object with `findings`. Several files, or a folder, give an array of such
    /// objects.
    #[arg(long, num_args = 0..=1, value_name = "FILE")]
    pub json: Option<Option<PathBuf>>,

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

    /// Returns the files to check. `--json` takes no file there, so that a word after it is one of them.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.json.iter().flatten().chain(&self.files)
    }

    /// Returns the files of a check of a program.
    ///
    /// # Errors
    /// `--json` without a file.
    pub fn report_files(&self) -> Result<Files<'_>, String> {
        let json = match &self.json {
            Some(path) => match path.as_deref().filter(|path| path.as_os_str() != "-") {
                Some(path) => Some(path),
                None => {
                    let reason = "--json needs a file here: standard output is the program's";
                    return Err(format!("{reason}\n  help: `millpond check --json findings.json -- PROGRAM`"));
                }
            },
            None => None,
        };
        Ok(Files {
            json,
            sarif: self.sarif.as_deref(),
            text: self.output.as_deref(),
            suppressions: self.suppressions.as_deref(),
            print_suppressions: self.print_suppressions,
        })
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
  millpond check --sarif findings.sarif --suppressions known.txt -- python train.py
  millpond check run.trace --json | jq -r '.findings[].facts'

Exit status: 0 all is well, 1 something is wrong, 2 bad input. With -- PROGRAM: the program's; 1 where something was \
found and it ended with 0; 2 where it cannot be run so.

More: ",
    page!("check"),
    ", of a PROGRAM: ",
    page!("any-program")
);
