//! What the system says of the other end of a Unix socket. Facts only: who may do what is the caller's to decide.
//!
//! The system's library declares these options, and no safe wrapper of them takes a process number of 0, which is what
//! a process outside of this one's process namespace has.

use std::ffi::c_int;
use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libc::{SO_PEERCRED, SOL_SOCKET, TIOCOUTQ, getsockopt, ioctl, setsockopt};

/// Since Linux 6.5.
const SO_PEERPIDFD: c_int = 77;
/// Since Linux 6.16.
const SO_PASSRIGHTS: c_int = 83;

/// Who made the other end, at the time of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketPeer {
    /// Its process; 0 where that is in a process namespace which this process does not see.
    pub process: u32,
    /// Its user.
    pub user: u32,
}

fn option<T: Default>(socket: impl AsFd, name: c_int) -> Result<T> {
    let (mut value, mut bytes) = (T::default(), size_of::<T>() as u32);
    let into = std::ptr::from_mut(&mut value).cast();
    // SAFETY: `into` has room for `bytes`; every `T` asked for is made of integers, which any bytes are.
    let code = unsafe { getsockopt(socket.as_fd().as_raw_fd(), SOL_SOCKET, name, into, &mut bytes) };
    if code == 0 { Ok(value) } else { Err(Error::last_os_error()) }
}

/// Who made the other end.
///
/// # Errors
/// It is no connected Unix socket.
pub fn socket_peer(socket: impl AsFd) -> Result<SocketPeer> {
    let [process, user, _group] = option::<[u32; 3]>(socket, SO_PEERCRED)?;
    Ok(SocketPeer { process, user })
}

/// A file of the process that made the other end: readable once the process has ended. It is that very process, also
/// where its number serves another by now.
///
/// # Errors
/// `ENOPROTOOPT` where the system has no such option; that as many files are open as may be.
pub fn socket_peer_file(socket: impl AsFd) -> Result<OwnedFd> {
    let number = option::<c_int>(socket, SO_PEERPIDFD)?;
    // SAFETY: the system made it for this call, and it is known here only.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// No process can send files through connections to this socket, where the system knows how to forbid it.
///
/// # Errors
/// It does not.
pub fn refuse_files(socket: impl AsFd) -> Result<()> {
    let no: c_int = 0;
    let from = std::ptr::from_ref(&no).cast();
    // SAFETY: `from` is an integer of the size that is said.
    let code = unsafe { setsockopt(socket.as_fd().as_raw_fd(), SOL_SOCKET, SO_PASSRIGHTS, from, 4) };
    if code == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Whether something that was sent through it waits to be read.
///
/// # Errors
/// It is no socket.
pub fn is_unread(socket: impl AsFd) -> Result<bool> {
    let mut bytes: c_int = 0;
    // SAFETY: the request writes one integer.
    let code = unsafe { ioctl(socket.as_fd().as_raw_fd(), TIOCOUTQ, std::ptr::from_mut(&mut bytes)) };
    if code == 0 { Ok(bytes > 0) } else { Err(Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_is_who_made_it() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        assert_eq!(socket_peer(&here).unwrap().process, std::process::id());
        assert!(!is_unread(&here).unwrap());
        here.write_all(b"x").unwrap();
        assert!(is_unread(&here).unwrap());
        there.read_exact(&mut [0]).unwrap();
        assert!(!is_unread(&here).unwrap());
        // Systems before 6.5 have none.
        if let Err(error) = socket_peer_file(&here) {
            assert_eq!(error.raw_os_error(), Some(92), "{error}");
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(socket_peer(&file).is_err() && is_unread(&file).is_err());
    }
}
