//! Packets with files between processes of one machine, and the identity of the other end.
//!
//! Sockets are named by a random number of the exporter in the system's abstract namespace, so there is nothing to
//! clean up, and nothing to connect to once the exporter is gone. This number is used for nothing else, because all
//! processes can see it. The identity of the other end comes from the system, never from a message. Depends on no
//! message. Sending never waits for a slow reader and never raises a signal.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use millpond_core::share::{FETCH_CHUNKS_MAX, MESSAGE_BYTES_MAX};
use millpond_driver::{process, refuse_files, socket_peer, socket_peer_file};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// The most files that the system sends with a packet.
const FILES_MAX: usize = 253;
/// The magic number of the file system of pidfds, in which each process has a unique number for ever (Linux 6.9).
const PIDFS: u64 = 0x5049_4446;

/// The identity of the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Party {
    /// Its process; 0 if this process's namespace does not show it.
    pub(super) process: u32,
    /// Its user.
    pub(super) user: u32,
}

/// A key that distinguishes processes as long as they are connected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ProcessKey {
    /// The inode number of its pidfd: no other process ever has it.
    File(u64),
    /// Its process number.
    Number(u32),
    /// The process is not known, and the connection stands for it.
    Connection(u64),
}

/// The result of a receive.
pub(super) enum Received {
    /// A packet of this many bytes, with its files.
    Packet(usize, Vec<OwnedFd>),
    /// There is no packet now.
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

/// Makes an exporter's socket. If the system can forbid it, no process can send files to it.
pub(super) fn listen(exporter: u128) -> Result<OwnedFd> {
    let listener = socket()?;
    let _ = refuse_files(&listener);
    rustix::io::ioctl_fionbio(&listener, true)?;
    net::bind(&listener, &address(exporter)?)?;
    net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Accepts the next importer, if there is one.
pub(super) fn accept(listener: &OwnedFd) -> Result<Option<OwnedFd>> {
    match net::accept_with(listener, SocketFlags::CLOEXEC) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Connects to an exporter, until a deadline.
pub(super) fn connect(exporter: u128, until: Instant) -> Result<OwnedFd> {
    let connection = socket()?;
    wait_until(&connection, Timeout::Send, until)?;
    net::connect(&connection, &address(exporter)?)?;
    Ok(connection)
}

/// Sets the deadline for sends or receives that wait.
pub(super) fn wait_until(connection: &OwnedFd, what: Timeout, until: Instant) -> Result<()> {
    let rest = until.saturating_duration_since(Instant::now());
    if rest.is_zero() {
        return Err(Errno::AGAIN);
    }
    set_socket_timeout(connection, what, Some(rest.max(Duration::from_millis(1))))
}

/// Returns the identity of the process that made the other end.
pub(super) fn party(connection: &OwnedFd) -> Result<Party> {
    let peer = socket_peer(connection).map_err(errno)?;
    Ok(Party { process: peer.process, user: peer.user })
}

/// Returns a file that becomes readable once a process has ended and everything that it had open is closed, or `None`
/// if the system has no such files. It is an error if the system has no room for one: nothing may be lent without it.
pub(super) fn life(connection: &OwnedFd, party: Party) -> Result<Option<OwnedFd>> {
    match socket_peer_file(connection).map_err(errno) {
        Ok(file) => return Ok(Some(file)),
        Err(Errno::NOPROTOOPT) => {}
        Err(error) => return Err(error),
    }
    let Some(process) = i32::try_from(party.process).ok().and_then(Pid::from_raw) else { return Ok(None) };
    let file = match pidfd_open(process, PidfdFlags::empty()) {
        Ok(file) => file,
        Err(Errno::NOSYS) => return Ok(None),
        Err(error) => return Err(error),
    };
    // While the process's connection exists, the number still belongs to it.
    match is_hung_up(connection) {
        true => Err(Errno::SRCH),
        false => Ok(Some(file)),
    }
}

/// Returns the key of a process. `connection` stands for it if nothing else does.
pub(super) fn process_key(party: Party, life: Option<&OwnedFd>, connection: u64) -> ProcessKey {
    let number = life.and_then(|life| {
        let is_own = rustix::fs::fstatfs(life).is_ok_and(|system| system.f_type as u64 == PIDFS);
        is_own.then(|| rustix::fs::fstat(life).ok().map(|file| file.st_ino)).flatten()
    });
    match (number, party.process) {
        (Some(number), _) => ProcessKey::File(number),
        (None, 0) => ProcessKey::Connection(connection),
        (None, process) => ProcessKey::Number(process),
    }
}

/// Returns `true` if the other end is gone or will send nothing more.
pub(super) fn is_hung_up(connection: &OwnedFd) -> bool {
    let mut ends = [PollFd::new(connection, PollFlags::RDHUP)];
    let _ = poll(&mut ends, Some(&Timespec::default()));
    ends[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR)
}

/// Waits until a packet can be sent, for at most `time`.
pub(super) fn wait_for_room(connection: &OwnedFd, time: Duration) {
    let patience = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    let _ = poll(&mut [PollFd::new(connection, PollFlags::OUT)], Some(&patience));
}

/// Returns `true` if the process of this pidfd has ended.
pub(super) fn is_over(life: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(life, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Waits until a file is readable or at its end.
pub(super) fn wait_for(file: &OwnedFd) {
    while poll(&mut [PollFd::new(file, PollFlags::IN)], None) == Err(Errno::INTR) {}
}

/// Shuts the connection down: nothing is sent or received any more.
pub(super) fn hang_up(connection: &OwnedFd) {
    let _ = net::shutdown(connection, net::Shutdown::Both);
}

/// Makes two connected sockets: what is sent through one is received through the other.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Sends a packet with files. With `waits`, waits a while for room; otherwise no room is an error.
pub(super) fn send(connection: &OwnedFd, packet: &[u8], files: &[BorrowedFd<'_>], waits: bool) -> Result<()> {
    if process::is_forked() {
        // The socket belongs to the parent; a forked process does not use it.
        return Err(Errno::PERM);
    }
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

/// Makes a buffer for any packet.
pub(super) fn room() -> Vec<u8> {
    vec![0; MESSAGE_BYTES_MAX]
}

/// Receives a packet that may have no files, without waiting and without touching a file. A packet with files stays
/// in the socket and is an error. (The cost of closing an unknown file is not known.)
pub(super) fn take(connection: impl AsFd, room: &mut [u8]) -> Result<Received> {
    let mut take = |flags| loop {
        let (mut packet, mut none) = ([IoSliceMut::new(room)], RecvAncillaryBuffer::default());
        match net::recvmsg(&connection, &mut packet, &mut none, flags | RecvFlags::DONTWAIT) {
            // A reset is reported once. The packets sent before it, or the end, come after it.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            other => break other,
        }
    };
    let seen = match take(RecvFlags::PEEK) {
        Err(Errno::AGAIN) => return Ok(Received::Nothing),
        other => other?,
    };
    if seen.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE);
    }
    let got = take(RecvFlags::empty())?;
    Ok(if got.bytes == 0 { Received::End } else { Received::Packet(got.bytes, Vec::new()) })
}

/// Receives a packet. With `waits`, waits for a while; otherwise does not wait.
pub(super) fn receive(connection: impl AsFd, room: &mut [u8], waits: bool) -> Result<Received> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | if waits { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let got = loop {
        match net::recvmsg(&connection, &mut [IoSliceMut::new(room)], &mut control, flags) {
            // A reset is reported once. The packets sent before it, or the end, come after it.
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
    if got.flags.contains(ReturnFlags::CTRUNC) {
        // This process has no room for the files: no process sends more than the control buffer holds.
        return Err(Errno::MFILE);
    }
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    Ok(if got.bytes == 0 { Received::End } else { Received::Packet(got.bytes, files) })
}

/// Returns a random number that cannot be guessed.
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

/// Returns this process's user, or `None` if its user namespace shows several users, including this one, as the same.
pub(super) fn own_user() -> Option<u32> {
    let user = rustix::process::geteuid().as_raw();
    (user != UNMAPPED || shows_all_users()).then_some(user)
}

/// The user that a user namespace shows for users that it does not know.
const UNMAPPED: u32 = 65534;

/// Returns `true` if this process's user namespace knows every user.
fn shows_all_users() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}
