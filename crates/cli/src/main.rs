//! The command `millpond`.
#![forbid(unsafe_code)]

mod open_end;
mod serve;

use std::io::Write;
use std::process::ExitCode;

use millpond_cli::Status;
use open_end::OpenEnd;

fn main() -> ExitCode {
    let (mut out, mut err) = (OpenEnd::new(anstream::stdout), OpenEnd::new(anstream::stderr));
    match millpond_cli::run(std::env::args_os(), &serve::open, &mut out, &mut err)
        .and_then(|it| out.flush().map(|()| it))
    {
        Ok(status) => ExitCode::from(status as u8),
        Err(error) => {
            // If standard error cannot be written either, only the status reports the error.
            let _ = writeln!(err, "error: the output cannot be written: {error}");
            ExitCode::from(Status::BadInput as u8)
        }
    }
}
