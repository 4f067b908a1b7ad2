//! The texts of errors: one sentence, or everything known.

use std::fmt;

use millpond_driver::DriverError;

use super::Error;

/// Everything known about an error, over several lines.
#[derive(Clone, Copy)]
pub struct Report<'e>(&'e Error);

impl<'e> Report<'e> {
    pub(super) fn of(error: &'e Error) -> Self {
        Self(error)
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Error::OutOfMemory(report) => report.fmt(f),
            Error::Violation(finding) => {
                finding.fmt(f)?;
                finding.also.iter().try_for_each(|also| write!(f, "\n{also}"))
            }
            Error::InvalidArgument(invalid) => invalid.fmt(f),
            Error::Driver(error) => match &**error {
                DriverError::Failed { call: "open CUDA", reason } => write!(f, "CUDA cannot be opened: {reason}"),
                error => write!(f, "the device refused: {error}"),
            },
            Error::Share(error) => error.fmt(f),
            Error::DeviceLost { reason } => {
                write!(f, "the device is lost: {reason}; nothing more runs on it, its buffers can still be dropped")
            }
        }
    }
}

impl fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report().to_string();
        let sentence = report.split_once('\n').map_or(&*report, |(sentence, _)| sentence);
        f.write_str(sentence.trim_end_matches(':'))
    }
}
