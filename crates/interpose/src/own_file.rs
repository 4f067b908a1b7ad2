//! A file of this library in a program that may close every descriptor, as daemons do. The program may then get the
//! same descriptor number for its own file: nothing may be written there.
//!
//! This module knows no trace. It allocates only when the file is opened again.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use millpond_driver::output::without_signals;

/// A file that was made here.
#[derive(Debug)]
pub(crate) struct OwnFile {
    /// `None` if the program has closed it and it cannot be opened again.
    file: Option<File>,
    path: PathBuf,
    /// Its device and its inode.
    identity: (u64, u64),
}

impl OwnFile {
    /// Creates a file, which must not exist.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create_new(true).open(path)?;
        let identity = identity(&file)?;
        Ok(Self { file: Some(file), path: std::path::absolute(path)?, identity })
    }

    /// Appends to the file. If the program has closed it, it is opened again.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.is_there() {
            let file = File::options().append(true).open(&self.path)?;
            if identity(&file)? != self.identity {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "the program closed it, and it is not where it was",
                ));
            }
            self.file = Some(file);
        }
        self.put(bytes)
    }

    /// Appends to the file, if the program has not closed it.
    pub(crate) fn write_if_there(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.is_there() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        self.put(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| without_signals(|| file.write_all(bytes)))
    }

    fn is_there(&mut self) -> bool {
        let is_own = self.file.as_ref().is_some_and(|file| identity(file).is_ok_and(|it| it == self.identity));
        if !is_own && let Some(file) = self.file.take() {
            // The descriptor belongs to the program now, which closes it.
            let _ = file.into_raw_fd();
        }
        is_own
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|it| (it.dev(), it.ino()))
}
