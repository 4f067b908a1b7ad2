//! The protocol without the library: importers and exporters that send anything.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use millpond::check::Act;
use millpond::share::Ticket;
use millpond_core::share::{ForeignPoint, ForeignUse, MESSAGE_BYTES_MAX, MemoryGrant, Reply, Request};
use rustix::cmsg_space;
use rustix::io::{Errno, Result};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, recvmsg, sendmsg,
    socket_with,
};

/// A connection between an importer and an exporter, either end.
pub(crate) struct Raw(OwnedFd);

fn socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket")
}

fn address(exporter: u128) -> SocketAddrUnix {
    SocketAddrUnix::new_abstract_name(format!("millpond-{exporter:032x}").as_bytes()).expect("a name")
}

impl Raw {
    /// Connects as an importer to the exporter of the ticket.
    pub(crate) fn connect(ticket: &Ticket) -> Result<Raw> {
        let socket = socket();
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(10)))?;
        connect(&socket, &address(ticket.exporter))?;
        Ok(Raw(socket))
    }

    pub(crate) fn say(&self, request: &Request) -> Result<()> {
        self.send(&request.to_bytes(), &[])
    }

    pub(crate) fn send(&self, packet: &[u8], files: &[BorrowedFd<'_>]) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        sendmsg(&self.0, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL).map(|_| ())
    }

    /// Receives a packet with its files, or `None` at the end.
    pub(crate) fn receive(&self) -> Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(253))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR | Errno::CONNRESET) => {}
                other => break other?,
            }
        };
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                files.extend(received);
            }
        }
        bytes.truncate(got.bytes);
        Ok((got.bytes > 0).then_some((bytes, files)))
    }

    /// Sends a request and receives the answer, or `None` if the exporter has closed the connection.
    pub(crate) fn ask(&self, request: &Request) -> Option<(Reply, Vec<OwnedFd>)> {
        let _ = self.say(request);
        let (bytes, files) = self.receive().ok().flatten()?;
        Some((Reply::from_bytes(&bytes).expect("an exporter's reply"), files))
    }

    /// Claims memory.
    pub(crate) fn claim(&self, ticket: &Ticket) -> MemoryGrant {
        match self.ask(&claim(ticket)) {
            Some((Reply::Memory(grant), _)) => grant,
            other => panic!("no memory: {other:?}"),
        }
    }

    /// Returns `true` if the exporter closes the connection within the time that a packet may take.
    pub(crate) fn is_hung_up(&self) -> bool {
        matches!(self.receive(), Ok(None))
    }
}

pub(crate) fn claim(ticket: &Ticket) -> Request {
    Request::Claim { kind: ticket.kind, nonce: ticket.nonce }
}

/// Makes a read by any device.
pub(crate) fn one_use(device: u128, chain: u32, seq: u64) -> ForeignUse {
    ForeignUse { point: ForeignPoint { device, chain, seq }, act: Act::Read, stream: 0, op: 0, process: 0 }
}

/// A socket that listens as an exporter does.
pub(crate) struct RawExporter(OwnedFd);

impl RawExporter {
    pub(crate) fn new(name: u128) -> RawExporter {
        let listener = socket();
        bind(&listener, &address(name)).expect("nobody has the name");
        listen(&listener, 8).expect("it listens");
        RawExporter(listener)
    }

    pub(crate) fn accept(&self) -> Raw {
        Raw(accept_with(&self.0, SocketFlags::CLOEXEC).expect("somebody comes"))
    }
}

impl AsFd for Raw {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
