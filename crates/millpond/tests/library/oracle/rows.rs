//! The questions to both, and their answers.
//!
//! All of a test's questions are asked, with any answers. Then the answers are printed, and the test fails if any pair
//! is not as expected.

use std::fmt::{Debug, Display};

use millpond::Error;
use millpond_driver::DriverError;
use millpond_driver::cuda::abi::Code;

use super::cuda::Cuda;

/// The questions of one test.
pub(crate) struct Rows<'a> {
    cuda: &'a Cuda,
    lines: Vec<String>,
    wrong: usize,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(cuda: &'a Cuda) -> Self {
        Self { cuda, lines: Vec::new(), wrong: 0 }
    }

    fn add(&mut self, is_right: bool, line: String) {
        self.wrong += usize::from(!is_right);
        self.lines.push(format!("{} {line}", if is_right { "ok   " } else { "WRONG" }));
    }

    fn ours<T, E: Display>(&self, ours: &Result<T, E>, code: Option<Code>) -> String {
        match (ours, code) {
            (Ok(_), _) => "done".into(),
            (Err(error), Some(code)) => format!("{}: {error}", self.cuda.table.explain(code)),
            (Err(error), None) => format!("without a code of CUDA's: {error}"),
        }
    }

    /// Both answer the same: success, or a refusal for the same reason.
    pub(crate) fn agree<T, E: Display + AsError>(&mut self, what: &str, theirs: Code, ours: Result<T, E>) -> Option<T> {
        let code = ours.as_ref().map_or_else(|error| code_of(error.as_error()), |_| Some(Code::SUCCESS));
        let line = format!("{what}: CUDA {}; Millpond {}", self.cuda.table.explain(theirs), self.ours(&ours, code));
        self.add(code == Some(theirs), line);
        ours.ok()
    }

    /// Both have the same number, or the same yes or no.
    pub(crate) fn equal<V: PartialEq + Debug>(&mut self, what: &str, theirs: V, ours: V) {
        let line = format!("{what}: CUDA {theirs:?}; Millpond {ours:?}");
        self.add(theirs == ours, line);
    }

    /// CUDA answers `expected`, and Millpond deliberately answers differently, for the reason `why`.
    pub(crate) fn differ<T, E: Display + AsError>(
        &mut self,
        what: &str,
        why: &str,
        (theirs, expected): (Code, Code),
        ours: Result<T, E>,
        is_meant: impl FnOnce(Result<&T, &Error>) -> bool,
    ) -> Option<T> {
        let meant = is_meant(ours.as_ref().map_err(AsError::as_error));
        let code = ours.as_ref().map_or_else(|error| code_of(error.as_error()), |_| Some(Code::SUCCESS));
        let explain = |code| self.cuda.table.explain(code);
        let line = format!(
            "{what}: CUDA {} (expected {}); Millpond otherwise, as {why}: {}",
            explain(theirs),
            explain(expected),
            self.ours(&ours, code)
        );
        self.add(theirs == expected && meant, line);
        ours.ok()
    }

    /// CUDA accepts and reports nothing.
    pub(crate) fn silent(&mut self, what: &str, theirs: Code) {
        let line = format!("{what}: CUDA {}", self.cuda.table.explain(theirs));
        self.add(theirs == Code::SUCCESS, line);
    }

    /// A fact about one side only.
    pub(crate) fn holds(&mut self, what: &str, is_right: bool, found: impl Display) {
        self.add(is_right, format!("{what}: {found}"));
    }

    /// Prints any answer of CUDA, for information.
    pub(crate) fn note(&mut self, what: &str, theirs: Code) {
        self.lines.push(format!("note  {what}: CUDA {}", self.cuda.table.explain(theirs)));
    }

    /// Prints all answers, and fails if anything is wrong. `asked` is an error if not all was asked.
    #[track_caller]
    pub(crate) fn finish(self, asked: millpond::Result<()>) {
        let after = self.cuda.table.synchronize();
        let text = self.lines.join("\n");
        println!("{text}");
        assert!(asked.is_ok(), "what the test needs of Millpond was refused: {asked:?}\n{text}");
        assert!(self.wrong == 0, "{} of {} answers are not as they should be:\n{text}", self.wrong, self.lines.len());
        assert!(after == Code::SUCCESS, "after it the device answers {}:\n{text}", self.cuda.table.explain(after));
    }
}

impl Drop for Rows<'_> {
    /// Prints the answers from before a test failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("answers until then:\n{}", self.lines.join("\n"));
        }
    }
}

/// A refusal, with or without a returned buffer.
pub(crate) trait AsError {
    fn as_error(&self) -> &Error;
}

impl AsError for Error {
    fn as_error(&self) -> &Error {
        self
    }
}

impl<T: bytemuck::Pod> AsError for millpond::Refused<T> {
    fn as_error(&self) -> &Error {
        &self.error
    }
}

/// Returns the code that Millpond's documentation gives for a refusal, or `None` if CUDA has no code for it.
fn code_of(error: &Error) -> Option<Code> {
    Some(match error {
        Error::OutOfMemory(_) => Code::OUT_OF_MEMORY,
        Error::Driver(error) if matches!(**error, DriverError::OutOfMemory { .. }) => Code::OUT_OF_MEMORY,
        Error::InvalidArgument(_) => Code::INVALID_VALUE,
        Error::Violation(violation) => Code(violation.code?),
        _ => return None,
    })
}
