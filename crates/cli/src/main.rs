//! The command `millpond`.
#![forbid(unsafe_code)]

mod serve;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use millpond_cli::Status;

fn main() -> ExitCode {
    let (mut out, mut err) = (anstream::stdout(), anstream::stderr());
    match millpond_cli::run(std::env::args_os(), &serve::open, &mut out, &mut err)
        .and_then(|it| out.flush().map(|()| it))
    {
        Ok(status) => ExitCode::from(status as u8),
        // Whoever reads the output has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::from(Status::Fine as u8),
        Err(error) => {
            // Where standard error cannot be written either, the status alone must tell.
            let _ = writeln!(err, "error: the output cannot be written: {error}");
            ExitCode::from(Status::Found as u8)
        }
    }
}
