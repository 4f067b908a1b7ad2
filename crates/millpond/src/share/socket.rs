//! Packets with files between processes of one machine, and who is at the other end.
//!
//! Sockets have names that the exporting device's random number makes, in the system's abstract space: nothing to
//! clean up, and nothing to connect to once the exporter is gone. Knows no message. What is sent never waits for a slow
//! reader, and never raises a signal.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use millpond_core::share::{FETCH_CHUNKS_MAX, MESSAGE_BYTES_MAX};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How long an importer waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Connections that wait to be taken.
const BACKLOG: i32 = 128;

/// Who is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Party {
    /// Its process.
    pub(super) process: u32,
    /// Its user.
    pub(super) user: u32,
}

/// What came.
pub(super) enum Received {
    /// A packet of so many bytes, with its files.
    Packet(usize, Vec<OwnedFd>),
    /// Nothing is there now.
    Nothing,
    /// The other end is gone.
    End,
}

fn address(exporter: u128) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("millpond-{exporter:032x}").as_bytes())
}

fn socket() -> Result<OwnedFd> {
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// An exporter's socket.
pub(super) fn listen(exporter: u128) -> Result<OwnedFd> {
    let listener = socket()?;
    rustix::io::ioctl_fionbio(&listener, true)?;
    net::bind(&listener, &address(exporter)?)?;
    net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// The next importer, if one is there.
pub(super) fn accept(listener: &OwnedFd) -> Result<Option<OwnedFd>> {
    match net::accept_with(listener, SocketFlags::CLOEXEC) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A connection to an exporter; answers are waited for a while.
pub(super) fn connect(exporter: u128) -> Result<OwnedFd> {
    let connection = socket()?;
    set_socket_timeout(&connection, Timeout::Recv, Some(PATIENCE))?;
    set_socket_timeout(&connection, Timeout::Send, Some(PATIENCE))?;
    net::connect(&connection, &address(exporter)?)?;
    Ok(connection)
}

/// Who made the other end.
pub(super) fn party(connection: &OwnedFd) -> Result<Party> {
    let cred = socket_peercred(connection)?;
    Ok(Party { process: cred.pid.as_raw_nonzero().get() as u32, user: cred.uid.as_raw() })
}

/// A file that can be read from once a process is over, and with it all that it had open; none where the system has no
/// such files or does not show the process. While the process's connection stands, the number is still its own.
pub(super) fn life(connection: &OwnedFd, party: Party) -> Option<OwnedFd> {
    let process = Pid::from_raw(i32::try_from(party.process).ok()?)?;
    let file = pidfd_open(process, PidfdFlags::empty()).ok()?;
    let mut ends = [PollFd::new(connection, PollFlags::RDHUP)];
    let _ = poll(&mut ends, Some(&Timespec::default()));
    (!ends[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP)).then_some(file)
}

/// Waits until a file can be read from, or is at its end.
pub(super) fn wait_for(file: &OwnedFd) {
    while poll(&mut [PollFd::new(file, PollFlags::IN)], None) == Err(Errno::INTR) {}
}

/// Nothing is said or heard any more.
pub(super) fn hang_up(connection: &OwnedFd) {
    let _ = net::shutdown(connection, net::Shutdown::Both);
}

/// Two ends that know each other: what is told through one reaches whoever has the other.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Sends a packet with files. `waits`: for room, for a while; else no room is an error.
pub(super) fn send(connection: &OwnedFd, packet: &[u8], files: &[BorrowedFd<'_>], waits: bool) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FETCH_CHUNKS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Errno::TOOBIG);
    }
    let flags = SendFlags::NOSIGNAL | if waits { SendFlags::empty() } else { SendFlags::DONTWAIT };
    loop {
        match net::sendmsg(connection, &[IoSlice::new(packet)], &mut control, flags) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(()),
        }
    }
}

/// Room for any packet.
pub(super) fn room() -> Vec<u8> {
    vec![0; MESSAGE_BYTES_MAX]
}

/// Takes a packet. `waits`: for a while; else for nothing.
pub(super) fn receive(connection: impl AsFd, room: &mut [u8], waits: bool) -> Result<Received> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FETCH_CHUNKS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | if waits { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let got = loop {
        match net::recvmsg(&connection, &mut [IoSliceMut::new(room)], &mut control, flags) {
            // A reset is told once: what was sent before it lies behind it, or the end.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(Errno::AGAIN) if !waits => return Ok(Received::Nothing),
            other => break other?,
        }
    };
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        // A packet that is too large, or files that this process has no room for.
        return Err(Errno::MSGSIZE);
    }
    Ok(if got.bytes == 0 { Received::End } else { Received::Packet(got.bytes, files) })
}

/// A random number that nobody can guess.
pub(super) fn random() -> Result<u128> {
    let mut bytes = [0u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Err(Errno::INTR) => {}
            other => filled += other?,
        }
    }
    Ok(u128::from_ne_bytes(bytes))
}

/// This process's user.
pub(super) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
