//! The system's information about the other end of a Unix socket. The caller decides what it permits.
//!
//! `libc` declares these options. No safe wrapper accepts process number 0, which is the number of a process outside
//! this one's process namespace.

use std::ffi::c_int;
use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libc::{SO_PEERCRED, SOL_SOCKET, TIOCOUTQ, getsockopt, ioctl, setsockopt};

/// Since Linux 6.5.
const SO_PEERPIDFD: c_int = 77;
/// Since Linux 6.16.
const SO_PASSRIGHTS: c_int = 83;

/// The process that made the other end, at the time of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketPeer {
    /// The number of the process; 0 if it is in a process namespace that this process does not see.
    pub process: u32,
    /// The user of the process.
    pub user: u32,
}

fn option<T: Default>(socket: impl AsFd, name: c_int) -> Result<T> {
    let (mut value, mut bytes) = (T::default(), size_of::<T>() as u32);
    let into = std::ptr::from_mut(&mut value).cast();
    // SAFETY: `into` has room for `bytes`; every `T` used here consists of integers, for which any bytes are valid.
    let code = unsafe { getsockopt(socket.as_fd().as_raw_fd(), SOL_SOCKET, name, into, &mut bytes) };
    if code == 0 { Ok(value) } else { Err(Error::last_os_error()) }
}

/// Returns the process that made the other end.
///
/// # Errors
/// It is not a connected Unix socket.
pub fn socket_peer(socket: impl AsFd) -> Result<SocketPeer> {
    let [process, user, _group] = option::<[u32; 3]>(socket, SO_PEERCRED)?;
    Ok(SocketPeer { process, user })
}

/// Returns a file that names the process which made the other end: it is readable once the process has ended. It names
/// this very process, even if another process now has its number.
///
/// # Errors
/// `ENOPROTOOPT` if the system has no such option; the limit of open files is reached.
pub fn socket_peer_file(socket: impl AsFd) -> Result<OwnedFd> {
    let number = option::<c_int>(socket, SO_PEERPIDFD)?;
    // SAFETY: the system made it for this call, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Forbids other processes to send files through connections to this socket, if the system supports it.
///
/// # Errors
/// The system does not support it.
pub fn refuse_files(socket: impl AsFd) -> Result<()> {
    let no: c_int = 0;
    let from = std::ptr::from_ref(&no).cast();
    // SAFETY: `from` is an integer of the given size.
    let code = unsafe { setsockopt(socket.as_fd().as_raw_fd(), SOL_SOCKET, SO_PASSRIGHTS, from, 4) };
    if code == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Returns `true` if the other end has not read all bytes that were sent through the socket.
///
/// # Errors
/// It is not a socket.
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
        // Systems before 6.5 do not have the option.
        if let Err(error) = socket_peer_file(&here) {
            assert_eq!(error.raw_os_error(), Some(92), "{error}");
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(socket_peer(&file).is_err() && is_unread(&file).is_err());
    }
}
