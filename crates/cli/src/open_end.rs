//! Output that its reader may close early, as in `millpond check x.trace | head -n 1`. The findings and the exit status
//! are the same as if all of it had been read.

use std::io::{self, ErrorKind, Write};

/// A writer that passes bytes on until the reader closes its end. After that it accepts bytes and drops them.
pub(crate) struct OpenEnd<W> {
    /// Opens the output at the first write: by then it is known whether colours are wanted.
    open: fn() -> W,
    output: Option<W>,
    is_closed: bool,
}

impl<W> OpenEnd<W> {
    pub(crate) fn new(open: fn() -> W) -> Self {
        Self { open, output: None, is_closed: false }
    }

    fn unless_closed<T>(&mut self, act: impl FnOnce(&mut W) -> io::Result<T>, closed: T) -> io::Result<T> {
        if self.is_closed {
            return Ok(closed);
        }
        match act(self.output.get_or_insert_with(self.open)) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(closed)
            }
            done => done,
        }
    }
}

impl<W: Write> Write for OpenEnd<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unless_closed(|output| output.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_closed(Write::flush, ())
    }
}
